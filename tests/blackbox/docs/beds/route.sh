# Routes of each kind that docs/route.md shows.
ip -n far addr add 192.0.2.1/32 dev lo
ip route add 192.0.2.0/24 via 10.2.0.2
ip route add 198.51.100.0/24 via 10.2.0.99
ip route add blackhole 203.0.113.0/24
ip route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1 dev eth2
ip -6 route add fd00:e::/32 via fd00:2::2
# The sender leaves checksums unfinished until the page changes that.
ip netns exec container ethtool -K eth0 tx on
