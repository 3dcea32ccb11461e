# A list of the countries of prefixes, and a map of type LPM_TRIE that another program has pinned.
printf '%s\n' '8.0.0.0/9 us' '193.0.0.0/19 nl' '192.0.2.0/25 de' '192.0.2.128/25 de' '2a00::/32 nl' '2001:db8::/32 de' |
	gzip >country-prefixes.txt.gz
ip route add 192.0.2.0/24 dev lo
ip route add 198.51.100.0/24 dev lo
clang-19 -target bpf -g -O2 "-I/usr/include/$(uname -m)-linux-gnu" -c "$REPOSITORY/tests/blackbox/lpm_trie/maps.bpf.c" -o maps.o
gcc "$REPOSITORY/tests/blackbox/lpm_trie/fill.c" -o fill -lbpf
mkdir /sys/fs/bpf/maps
echo 'v4 203.0.113.0 24 01000000' | ./fill maps.o /sys/fs/bpf/maps
mv /sys/fs/bpf/maps/v4 /sys/fs/bpf/blocklist
