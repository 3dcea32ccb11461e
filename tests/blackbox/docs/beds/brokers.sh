# Brokers that messages pass all the time: redis, and some over UDP.
install broker sender /usr/sbin/
redis-server --port 6391 --save '' --pidfile /run/redis.pid --daemonize no >redis.log &
until redis-cli -p 6391 ping; do :; done
redis-cli -p 6391 -r -1 -i 0.01 ECHO id=12345 >echo.log &

./broker 4321 &
./sender 127.0.0.1 4321 4322 4323 4324 &
./collector 4318 &

# A container and a unit with a broker in each.
id=$(printf '%064x' $$)
mkdir -p "/var/lib/docker/containers/$id"
printf '{"Name": "/web"}' >"/var/lib/docker/containers/$id/config.v2.json"
cgroups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
in_cgroup() {
	mkdir -p "$cgroups/$1"
	./broker "$2" &
	echo $! >"$cgroups/$1/cgroup.procs"
}
in_cgroup "docker-$id.scope" 4323
in_cgroup gateway.service 4324

# A trieline node, which the shell is on, between a sender and a broker.
trielined --dev eth1 --dev eth2 &
ip netns exec far ./broker 4321 &
ip netns exec container ./sender 10.2.0.2 4321 &
disown -a
