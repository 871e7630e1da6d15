#!/bin/sh
# A Slurm of one node for a spec: its own munged, slurmctld and slurmd, whose files are all in one folder.
# usage: slurm.sh start FOLDER    starts it, waits until the node is idle; then SLURM_CONF=FOLDER/slurm.conf reaches it
#        slurm.sh stop FOLDER     cancels what runs and ends the three processes that `start` started, and no others
#        slurm.sh missing         says what is not installed, or nothing
command=$1
folder=$2
export SLURM_CONF="$folder/slurm.conf"

wait_for() { # tenths of a second, then a command
    tries=$1
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
}
is_idle() { sinfo -h -o %T | grep -qx idle; }
has_no_jobs() { [ -z "$(squeue -h)" ]; }
has_ended() { ! kill -0 "$1"; }

missing() {
    for name in munged slurmctld slurmd sbatch srun scontrol; do
        command -v "$name" >/dev/null 2>&1 || { echo "$name is not installed"; return; }
    done
}

configure() { # port of slurmctld; slurmd has the next
    user=$(id -un)
    cat >"$SLURM_CONF" <<END
ClusterName=wane
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$1
SlurmdPort=$(($1 + 1))
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
SlurmUser=$user
SlurmdUser=$user
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
JobRequeue=1
ReturnToService=2
KillWait=1
SchedulerParameters=sched_interval=1,batch_sched_delay=0,requeue_delay=1
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=16
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

# Runs a program in the background and notes its number.
begin() {
    "$@" >>"$folder/said" 2>&1 </dev/null &
    echo $! >>"$folder/processes"
}

start() {
    mkdir -p "$folder/state" "$folder/spool" && chmod 700 "$folder" || exit 1
    (umask 077 && head -c 128 /dev/urandom >"$folder/key")
    configure $((20000 + $$ % 20000))
    begin munged -F --force --socket="$folder/munge.socket" --key-file="$folder/key" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munged.seed"
    wait_for 50 test -S "$folder/munge.socket"
    begin slurmctld -D
    begin slurmd -D
    wait_for 150 is_idle && return
    tail -n 5 "$folder/said" "$folder"/*.log
    exit 1
}

stop() {
    squeue -h -o %A 2>/dev/null | xargs -r scancel 2>/dev/null
    wait_for 50 has_no_jobs
    for process in $(cat "$folder/processes"); do
        kill "$process" 2>/dev/null
    done
    for process in $(cat "$folder/processes"); do
        wait_for 50 has_ended "$process" || kill -9 "$process"
    done
    return 0
}

case $command in
    start | stop | missing) "$command" ;;
    *) echo "slurm.sh: start, stop or missing, not '$command'" >&2; exit 2 ;;
esac
