# CE is `far`; the container sends to a network behind it, encapsulated to the page's SID.
ip addr add 192.0.2.1/24 dev eth2
ip -n far addr add 192.0.2.2/24 dev eth0
ip -n far addr add 198.51.100.1/32 dev lo
ip -n container route add 198.51.100.0/24 encap seg6 mode encap segs fd00:a::4 dev eth0
until ping -c 1 -W 1 192.0.2.2; do :; done
trielined --dev eth1 --dev eth2 &
disown -a
