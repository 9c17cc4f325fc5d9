#!/bin/bash
# LSF: CONFIG=run/usps_mac.toml bsub < run/batch/lsf.sh
# Stops with a checkpoint before the time limit (-W, and MAX_TIME below it); LSF puts a job that ends with 75 back into
# the queue (-Q), and it goes on from there.  docs/clusters.md
#BSUB -J macmpi
#BSUB -n 12
#BSUB -R "span[hosts=1]"
#BSUB -W 4:00
#BSUB -wa USR1
#BSUB -wt 5
#BSUB -Q 75
#BSUB -o macmpi-%J.out
set -u
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
trap : USR1 TERM

mpiexec -n "${RANKS:-$LSB_DJOB_NUMPROC}" "${python[@]}" -m macmpi.run "$config" --resume auto \
    --max-time "${MAX_TIME:-3:50:00}" ${options[@]+"${options[@]}"}
