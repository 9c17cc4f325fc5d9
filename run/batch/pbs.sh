#!/bin/bash
# PBS (OpenPBS, PBS Professional, Torque): qsub -v CONFIG=run/usps_mac.toml run/batch/pbs.sh
# OPTIONS: options of macmpi.run, after "--retries N" if a rank that dies shall be followed by another start.
# Stops with a checkpoint before the time limit, submits itself again, and goes on from there.  docs/clusters.md
#PBS -N macmpi
#PBS -l select=1:ncpus=12:mpiprocs=12
#PBS -l walltime=04:00:00
#PBS -j oe
#PBS -r y
set -u
began=$(date +%s) # a limit of time counts from here, in each start
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
retries=0
if [ "${options[0]:-}" = --retries ]; then
    retries=${options[1]:-}
    [[ "$retries" =~ ^[0-9]+$ ]] || { echo "--retries '$retries': a number of new starts is needed" >&2; exit 2; }
    options=("${options[@]:2}")
fi
cancelled=
trap : USR1
trap 'cancelled=yes' TERM

# Attributes of this job; qstat cuts long values and begins the rest with a tab.
job=$(qstat -f "$PBS_JOBID" | awk '/^\t/ { printf "%s", substr($0, 2); next } { printf "\n%s", $0 }')
told() {
    awk -v name="$1" '$1 == name && $2 == "=" { sub(/^[^=]*= /, ""); print; exit }' <<< "$job"
}

# Torque says the limit in PBS_WALLTIME too, but that may be another job's, passed on by qsub -V.  Without a limit the
# program refuses --max-time auto.
limit=$(told Resource_List.walltime)
if [ -n "$limit" ]; then
    PBS_WALLTIME=$(awk -F: '{ s = 0; for (i = 1; i <= NF; i++) s = 60 * s + $i; print s }' <<< "$limit")
    export PBS_WALLTIME
fi

# What the next job asks for, whatever the directives above say: PBS Professional shows select and place, Torque nodes.
again=()
[ -z "${PBS_O_QUEUE:-}" ] || again+=(-q "$PBS_O_QUEUE")
pass_on() {
    local value
    value=$(told "$2")
    [ -z "$value" ] || [ "$value" = _pbs_project_default ] || again+=("$1" "$3$value")
}
pass_on -A Account_Name ""
pass_on -P project ""
if [ -n "$(told Resource_List.select)" ]; then
    pass_on -l Resource_List.select select=
    pass_on -l Resource_List.place place=
else
    pass_on -l Resource_List.nodes nodes=
fi
pass_on -l Resource_List.walltime walltime=

for ((start = 0; ; start++)); do
    code=0
    mpiexec -n "${RANKS:-$(wc -l < "$PBS_NODEFILE")}" "${python[@]}" -m macmpi.run "$config" --resume auto \
        --max-time "${MAX_TIME:-auto}" --since "$began" ${options[@]+"${options[@]}"} || code=$?
    case $code in 0 | 2 | 70 | 74 | 75) break ;; esac
    if [ -n "$cancelled" ] || [ "$start" -ge "$retries" ]; then break; fi
    echo "a rank has died (exit code $code): start $((start + 1)) of $retries again, from the newest checkpoint" >&2
done

restarts=${RESTARTS:-0}
if [ "$code" -eq 75 ] && [ "$restarts" -lt "${MOST_RESTARTS:-200}" ]; then
    export RESTARTS=$((restarts + 1))
    unset PBS_WALLTIME
    qsub -V ${again[@]+"${again[@]}"} "${SCRIPT:-run/batch/pbs.sh}"
fi
exit "$code"
