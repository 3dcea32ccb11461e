# The SIDs, the list and the program of docs/sid-hooks.md; each SID decapsulates towards `far`.
ip route add 10.99.0.1 via 10.2.0.2 dev eth2
for sid in 1 2 3; do
	ip -6 route add fd00:a::$sid encap seg6local action End.DX4 nh4 10.99.0.1 dev eth2
	ip -n container route add 198.51.100.$sid encap seg6 mode encap segs fd00:a::$sid dev eth0
	ip -n far addr add 198.51.100.$sid/32 dev lo
done
ip -n container addr add 203.0.113.7/32 dev lo
ip route add 203.0.113.7 via 10.1.0.2
echo 203.0.113.0/24 >/etc/trieline/inside.txt
set --
for headers in "$REPOSITORY"/*/include "/usr/include/$(uname -m)-linux-gnu"; do
	set -- "$@" -I "$headers"
done
clang-19 -target bpf -mcpu=v3 -O2 -g "$@" -c "$REPOSITORY/examples/sid-hook/dscp.bpf.c" -o dscp.bpf.o
gcc -o pin "$REPOSITORY/tests/blackbox/docs/beds/pin.c" -lbpf
./pin dscp.bpf.o /sys/fs/bpf/mine
