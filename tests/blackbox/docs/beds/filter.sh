# The lists of docs/filter.md; the container has an address of each.
ip -n container addr add 192.0.2.7/32 dev lo
ip -n container addr add 203.0.113.7/32 dev lo
ip route add 192.0.2.7 via 10.1.0.2
ip route add 203.0.113.7 via 10.1.0.2
echo 192.0.2.0/24 >/etc/trieline/monitoring.txt
echo 203.0.113.0/24 | gzip >/var/lib/threats.txt.gz
