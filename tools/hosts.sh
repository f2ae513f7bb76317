#!/bin/sh
# Run a command on host0 of N hosts: network namespaces, joined by a bridge.
#
#     unshare --net --mount hosts.sh N command ...     all is gone when the command ends
#     hosts.sh on host1 command ...                     on host1, as `ssh host1` would
#
# With RATE=100mbit in the environment each host sends, and receives, no faster than that.
# Each host has its name and an address 10.77.0.x in an /etc/hosts of its own.
set -eu
PATH=$PATH:/usr/sbin:/sbin
on() {
  name=$1 && shift
  nsenter --net=/run/netns/"$name" unshare --uts sh -c \
    'hostname "$0" && exec "$@"' "$name" "$@"
}
if [ "$1" = on ]; then
  name=$2 && shift 2
  on "$name" sh -c "$*"               # ssh, too, makes one line of the words
  exit
fi
count=$1 && shift
mount -t tmpfs none /run && mkdir /run/netns
echo "127.0.0.1 localhost" > /run/hosts
ip link add bridge type bridge && ip link set bridge up
for i in $(seq 0 $((count - 1))); do
  echo "10.77.0.$((i + 1)) host$i" >> /run/hosts
  ip netns add "host$i"
  ip link add "port$i" type veth peer name eth0 netns "host$i"
  ip link set "port$i" master bridge up
  ip -n "host$i" address add "10.77.0.$((i + 1))/24" dev eth0
  ip -n "host$i" link set eth0 up
  ip -n "host$i" link set lo up
  [ "${RATE:-}" ] || continue
  ip -n "host$i" link set eth0 mtu 9000 && ip link set "port$i" mtu 9000
  tc -n "host$i" qdisc add dev eth0 root tbf rate "$RATE" burst 32kb latency 200ms
  tc qdisc add dev "port$i" root tbf rate "$RATE" burst 32kb latency 200ms
done
mount --bind /run/hosts /etc/hosts
on host0 "$@"                          # no exec: the bridge lives as long as we do
