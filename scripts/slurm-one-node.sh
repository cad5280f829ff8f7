#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs a command beside a Slurm with one node, and ends that Slurm with the command.
#
#   scripts/slurm-one-node.sh COMMAND [ARGUMENT...]
#
# munged, slurmctld and slurmd run in namespaces of their own: processes, mounts, host name, and a
# network that has only a loopback interface. Their configuration, key, state and logs are in a /run
# of their own in memory. So a Slurm of this machine is not touched, and nothing is left, however
# this script ends. All files outside /run are those of the machine.
#
# Needs root and the Debian packages slurm-wlm and munge.
# Exit: as the command; 2 Slurm did not start, its logs are shown; 4 something is missing, named.
set -eu
PATH=$PATH:/usr/sbin:/sbin
export PATH

NODE=node
# Slurm resolves addresses only where an interface has one outside 127.0.0.0/8 (AI_ADDRCONFIG).
ADDRESS=192.0.2.1
# More than one task at the same time, however many processors there are.
CPUS=4
START_SECONDS=30

say() { printf 'slurm-one-node: %s\n' "$*" >&2; }

missing() {
    say "$*"
    exit 4
}

# proctrack/linuxproc does not find a program with a space in its name, and so never signals it.
configuration() {
    cat <<END
ClusterName=one
SlurmctldHost=$NODE($ADDRESS)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName=$NODE NodeAddr=$ADDRESS CPUs=$CPUS
PartitionName=all Nodes=$NODE Default=YES
END
}

is_ready() { [ "$(sinfo --noheader --format=%T 2>/run/slurm/sinfo.log)" = idle ]; }

start() {
    mount -t tmpfs -o mode=755 tmpfs /run
    ip link set lo up
    ip address add "$ADDRESS/32" dev lo
    echo "$NODE" >/proc/sys/kernel/hostname
    mkdir -p /run/munge /run/slurm/state /run/slurm/spool
    (umask 077 && head -c 128 /dev/urandom >/run/munge/key)
    munged --key-file=/run/munge/key --socket=/run/munge/socket --pid-file=/run/munge/pid \
        --seed-file=/run/munge/seed --log-file=/run/munge/log 2>/run/slurm/munged.log
    configuration >/run/slurm/slurm.conf
    export SLURM_CONF=/run/slurm/slurm.conf
    slurmctld
    slurmd -N "$NODE"
    tries=$((START_SECONDS * 10))
    until is_ready; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ]
        sleep 0.1
    done
}

not_started() {
    say "Slurm did not start; its logs:"
    tail -n 30 /run/slurm/*.log /run/munge/log >&2
    exit 2
}

# In the namespaces, as their first process: with its end the kernel ends all others.
if [ "${1:-}" = --inside ]; then
    shift
    trap not_started EXIT
    start </dev/null
    trap - EXIT
    "$@"
    exit
fi

if [ $# -eq 0 ]; then
    say "no command is given: scripts/slurm-one-node.sh COMMAND [ARGUMENT...]"
    exit 2
fi
for program in slurmctld slurmd sbatch squeue; do
    command -v "$program" >/dev/null || missing "$program (package slurm-wlm) is not installed"
done
command -v munged >/dev/null || missing "munged (package munge) is not installed"
[ "$(id -u)" -eq 0 ] || missing "needs root"
unshare --mount --net --pid --uts --ipc --fork true 2>/dev/null || missing "no namespaces here"

# `unshare` takes no signal but KILL, and its namespaces end with it. A shell has a command in the
# background ignore SIGINT and read nothing; this one shall neither.
exec 3<&0
env --default-signal=INT,QUIT setpriv --pdeathsig KILL \
    unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc \
    "$0" --inside "$@" <&3 3<&- &
namespaces=$!
trap 'kill -KILL "$namespaces"; exit 130' INT
trap 'kill -KILL "$namespaces"; exit 143' TERM HUP
wait "$namespaces"
