# The kernel forwards, before the page begins.
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
