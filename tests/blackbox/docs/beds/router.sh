# A router between two hosts; the shell is on the router.
#
#   [container] eth0 ──────── eth1 [the shell] eth2 ──────── eth0 [far]
#      10.1.0.2     10.1.0.1          10.2.0.1     10.2.0.2
#      fd00:1::2    fd00:1::1         fd00:2::1    fd00:2::2
#      02:…:02:02   02:…:01:01        02:…:00:01   02:…:00:02

side() {
	ip addr add "10.$2.0.1/24" dev "eth$2"
	ip addr add "fd00:$2::1/64" dev "eth$2" nodad
	ip link set "eth$2" up
	ip -n "$1" addr add "10.$2.0.2/24" dev eth0
	ip -n "$1" addr add "fd00:$2::2/64" dev eth0 nodad
	ip -n "$1" link set eth0 up
	ip -n "$1" route add default via "10.$2.0.1"
	ip -n "$1" route add default via "fd00:$2::1"
	# Checksums in the packets, as on a wire; a veth takes redirected frames only while its peer has GRO.
	ip netns exec "$1" ethtool -K eth0 tx off gro on
	ethtool -K "eth$2" tx off gro on
	until ping -c 1 -W 1 "10.$2.0.2" && ping -c 1 -W 1 "fd00:$2::2"; do :; done
}

for host in container far; do
	ip netns add $host
	ip -n $host link set lo up
	ip netns exec $host sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv4.conf.all.rp_filter=0
done
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.default.seg6_enabled=1
ip link add eth1 address 02:00:00:00:01:01 type veth peer name eth0 address 02:00:00:00:02:02 netns container
ip link add eth2 address 02:00:00:00:00:01 type veth peer name eth0 address 02:00:00:00:00:02 netns far
side container 1
side far 2
