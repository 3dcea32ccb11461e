# A relay with static probes between two sockets.
cc -O2 -o /usr/sbin/relay "$REPOSITORY/trace/tests/relay.c"
./relay-messages /usr/sbin/relay /run/relay.pid &
until [ -s /run/relay.pid ]; do sleep 0.02; done
disown -a
