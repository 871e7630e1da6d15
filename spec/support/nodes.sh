#!/bin/sh
# Two nodes on one machine, for specs and benches of ranks: network namespaces with host names of their own, and a link
# between them that is held to so many Mbit/s each way. They need the right to make networks.
# usage: nodes.sh start MBITS           makes them
#        nodes.sh mpirun N COMMAND ...  runs a command on N ranks of each, by Open MPI, over TCP
#        nodes.sh stop                  takes them away
#        nodes.sh missing               says what is not here, or nothing
command=$1
[ $# -gt 0 ] && shift
here=$(cd "$(dirname "$0")" && pwd)

missing() {
    for name in ip tc unshare mpirun.openmpi; do
        command -v "$name" >/dev/null 2>&1 || { echo "$name is not installed"; return; }
    done
    { ip netns add "wane-$$" && ip netns del "wane-$$"; } >/dev/null 2>&1 || echo 'no right to make networks'
}

start() { # Mbit/s
    stop 2>/dev/null # of a run that was killed
    ip netns add wane1 && ip netns add wane2 && ip link add wane1 netns wane1 type veth peer name wane2 netns wane2 || exit 1
    for k in 1 2; do
        ip netns exec wane$k ip addr add 10.97.0.$k/24 dev wane$k || exit 1
        ip netns exec wane$k ip link set lo up
        ip netns exec wane$k ip link set wane$k up
        ip netns exec wane$k tc qdisc add dev wane$k root tbf rate "$1"mbit burst 64k latency 200ms || exit 1
    done
}

stop() {
    ip netns del wane1
    ip netns del wane2
}

on() { # node, then a command
    node=$1
    shift
    # shellcheck disable=SC2016
    exec ip netns exec "$node" unshare -u sh -c 'hostname "$0"; exec "$@"' "$node" "$@"
}

case $command in
    missing) missing ;;
    start) start "$1" ;;
    stop) stop ;;
    agent) # as ssh: a host, which is the second node, then a command line
        shift
        on wane2 sh -c "$*"
        ;;
    mpirun)
        each=$1
        shift
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        on wane1 mpirun.openmpi --host "10.97.0.1:$each,10.97.0.2:$each" --mca plm_rsh_agent "sh $here/nodes.sh agent" \
            --mca oob_tcp_if_include 10.97.0.0/24 --mca btl_tcp_if_include 10.97.0.0/24 --mca btl ^openib --oversubscribe \
            -x WANE_THREADS=1 -x WANE_COSTS=off -n $((2 * each)) "$@"
        ;;
    *) echo "nodes.sh: start, mpirun, stop or missing, not '$command'" >&2; exit 2 ;;
esac
