#!/usr/bin/env bash
# Run a single-node Slurm cluster on this machine for tests, from Debian packages. Needs root.
# Usage: scripts/slurm_local.sh install | start FOLDER | stop FOLDER
# All files of the cluster are in FOLDER. To use it, set SLURM_CONF=FOLDER/slurm.conf.
set -euo pipefail
packages=(slurmctld slurmd slurm-client munge)

install() {
    command -v slurmctld slurmd sbatch munged >/dev/null && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

free_ports() {
    python3 -c 'import socket
sockets = [socket.create_server(("", 0)) for _ in range(2)]
print(*(server.getsockname()[1] for server in sockets))'
}

configure() {
    local name controller_port node_port
    name="$(hostname -s)"
    read -r controller_port node_port <<< "$(free_ports)"
    cat > slurm.conf <<END
ClusterName=local
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
SlurmctldPort=$controller_port
SlurmdPort=$node_port
AuthInfo=socket=$PWD/munge.socket
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmdPidFile=$PWD/slurmd.pid
SlurmctldLogFile=$PWD/slurmctld.log
SlurmdLogFile=$PWD/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
KillWait=30
ReturnToService=2
NodeName=$name NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=local Nodes=$name Default=YES MaxTime=INFINITE State=UP
END
}

start() {
    mkdir -p "$1" && cd "$1" && mkdir -p state spool
    chmod 755 .
    [ -f munge.key ] || (umask 077 && head -c 1024 /dev/urandom > munge.key)
    configure
    munged --force --key-file="$PWD/munge.key" --socket="$PWD/munge.socket" \
        --pid-file="$PWD/munged.pid" --log-file="$PWD/munged.log" --seed-file="$PWD/munged.seed"
    export SLURM_CONF="$PWD/slurm.conf"
    slurmctld
    slurmd
    for _ in $(seq 100); do
        if sinfo --noheader --format=%T 2>/dev/null | grep -q idle; then
            echo "export SLURM_CONF=$SLURM_CONF"
            return
        fi
        sleep 0.2
    done
    echo "Slurm did not start; see $PWD/slurmctld.log and $PWD/slurmd.log" >&2
    return 1
}

stop() {
    local daemon
    for daemon in slurmd slurmctld munged; do
        [ -f "$1/$daemon.pid" ] && kill "$(cat "$1/$daemon.pid")" || true
    done
}

case "${1:-}" in
    install) install ;;
    start) start "${2:?specify a folder}" ;;
    stop) stop "${2:?specify a folder}" ;;
    *) sed -n 2,4p "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
