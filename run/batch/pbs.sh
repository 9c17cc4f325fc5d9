#!/bin/bash
# PBS (OpenPBS, PBS Professional, Torque): qsub -v CONFIG=run/usps_mac.toml run/batch/pbs.sh
# Stops with a checkpoint before the time limit, submits itself again, and goes on from there.  docs/clusters.md
#PBS -N macmpi
#PBS -l select=1:ncpus=12:mpiprocs=12
#PBS -l walltime=04:00:00
#PBS -j oe
#PBS -r y
set -u
if [ -z "${CONFIG:-}" ]; then
    echo "usage: qsub -v CONFIG=run/usps_mac.toml run/batch/pbs.sh" >&2
    exit 2
fi
if [ -z "${PBS_JOBID:-}" ] || [ -z "${PBS_O_WORKDIR:-}" ] || [ -z "${RANKS:-${PBS_NODEFILE:-}}" ]; then
    echo "this is no PBS job (PBS_JOBID, PBS_O_WORKDIR or PBS_NODEFILE is not set): submit it with qsub" >&2
    exit 2
fi
cd "$PBS_O_WORKDIR" || exit 2
config=$CONFIG
read -ra python <<< "${PYTHON:-python}"
read -ra options <<< "${OPTIONS:-}"
trap : USR1 TERM

# Torque names the limit in PBS_WALLTIME; of the others it is asked.  Without one the program refuses --max-time auto.
if [ -z "${PBS_WALLTIME:-}" ]; then
    limit=$(qstat -f "$PBS_JOBID" | awk '$1 == "Resource_List.walltime" { print $3 }')
    if [ -n "$limit" ]; then
        PBS_WALLTIME=$(awk -F: '{ s = 0; for (i = 1; i <= NF; i++) s = 60 * s + $i; print s }' <<< "$limit")
        export PBS_WALLTIME
    fi
fi

code=0
mpiexec -n "${RANKS:-$(wc -l < "$PBS_NODEFILE")}" "${python[@]}" -m macmpi.run "$config" --resume auto \
    --max-time "${MAX_TIME:-auto}" ${options[@]+"${options[@]}"} || code=$?

restarts=${RESTARTS:-0}
if [ "$code" -eq 75 ] && [ "$restarts" -lt "${MOST_RESTARTS:-200}" ]; then
    export RESTARTS=$((restarts + 1))
    qsub -V "${SCRIPT:-run/batch/pbs.sh}"
fi
exit "$code"
