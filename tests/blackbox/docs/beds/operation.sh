# Packets without an end: through an SRv6 endpoint, and back by IPv4.
ip route add 192.0.2.0/24 via 10.2.0.2
ip route add 10.99.0.1 via 10.2.0.2 dev eth2
ip -6 route add fd00:a::1 encap seg6local action End.DX4 nh4 10.99.0.1 dev eth2
ip -n far addr add 198.51.100.1/32 dev lo
ip -n container route add 198.51.100.0/24 encap seg6 mode encap segs fd00:a::1 dev eth0
trielined --dev eth1 --dev eth2 &
ip netns exec container ping -i 0.02 198.51.100.1 &
disown -a
