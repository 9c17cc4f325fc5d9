#!/bin/bash
# LSF: CONFIG=run/usps_mac.toml bsub < run/batch/lsf.sh
# Stops with a checkpoint before the time limit (-W, and MAX_TIME below it); LSF puts a job that ends with 75 back into
# the queue (-Q), and it goes on from there.  docs/clusters.md
# OPTIONS: options of macmpi.run, after "--retries N" if a rank that dies shall be followed by another start.
#BSUB -J macmpi
#BSUB -n 12
#BSUB -R "span[hosts=1]"
#BSUB -W 4:00
#BSUB -wa USR1
#BSUB -wt 5
#BSUB -Q 75
#BSUB -o macmpi-%J.out
set -u
began=$(date +%s) # a limit of time counts from here, in each start
if [ -z "${CONFIG:-}" ]; then
    echo "usage: CONFIG=run/usps_mac.toml bsub < run/batch/lsf.sh" >&2
    exit 2
fi
if [ -z "${LSB_JOBID:-}" ] || [ -z "${RANKS:-${LSB_DJOB_NUMPROC:-}}" ]; then
    echo "this is no LSF job (LSB_JOBID or LSB_DJOB_NUMPROC is not set): submit it with bsub" >&2
    exit 2
fi
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

for ((start = 0; ; start++)); do
    code=0
    mpiexec -n "${RANKS:-$LSB_DJOB_NUMPROC}" "${python[@]}" -m macmpi.run "$config" --resume auto \
        --max-time "${MAX_TIME:-3:50:00}" --since "$began" ${options[@]+"${options[@]}"} || code=$?
    case $code in 0 | 2 | 70 | 74 | 75) break ;; esac
    if [ -n "$cancelled" ] || [ "$start" -ge "$retries" ]; then break; fi
    echo "a rank has died (exit code $code): start $((start + 1)) of $retries again, from the newest checkpoint" >&2
done
exit "$code"
