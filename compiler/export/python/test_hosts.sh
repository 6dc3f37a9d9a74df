#!/usr/bin/env bash
# One plan over four hosts: network namespaces of this machine, each with an address of its own on a bridge, whose names all
# mean 127.0.0.1, as on many a machine. `test_hosts.sh SHARDC ENGINE PYTHON`. Ends with 3, and says so, where no namespaces can be
# made (they take root and `ip`).
set -euo pipefail
shardc="$1" engine="$2" python="$(realpath -s "$3")"
file="$(dirname "$0")/../../../examples/feed_forward/2d_weight_stationary.shard"
# Names and addresses of this run alone.
net="sh$$" subnet="10.99.$(($$ % 250))"
scratch="$(mktemp -d)"

gone() {
  for host in 0 1 2 3; do ip netns del "$net-$host" 2>/dev/null || true; done
  ip link del "$net" 2>/dev/null || true
  rm -rf "$scratch"
}
trap gone EXIT
if ! ip netns add "$net-0" 2>/dev/null || ! ip link add "$net" type bridge 2>/dev/null; then
  echo "NOT TESTED: $engine over several machines. Network namespaces take root and iproute2."
  exit 3
fi
ip link set "$net" up
for host in 0 1 2 3; do
  [ "$host" = 0 ] || ip netns add "$net-$host"
  ip link add "$net.$host" type veth peer name eth0 netns "$net-$host"
  ip link set "$net.$host" master "$net" up
  ip -n "$net-$host" addr add "$subnet.1$host/24" dev eth0
  ip -n "$net-$host" link set eth0 up
  ip -n "$net-$host" link set lo up
done
"$shardc" run "$file" --mesh x=2,y=2,z=2 --engine "$engine" --processes 4 --launch "ip netns exec $net-{}" \
  --coordinator "$subnet.10:29500" --scratch "$scratch" --python "$python"
