#!/bin/bash
# Slurm: sbatch run/batch/slurm.sh run/usps_mac.toml [--retries N] [more options of macmpi.run]
# Stops with a checkpoint before the time limit, goes back to the queue, and goes on from there.  docs/clusters.md
# In an array job %a in an option is the number of the task: --array=0-9 ... --set start.seed=%a --output runs/my-%a
#SBATCH --job-name=macmpi
#SBATCH --nodes=1
#SBATCH --ntasks=12
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -u
began=$(date +%s) # a limit of time counts from here, in each start
if [ -z "${1:-}" ]; then
    echo "usage: sbatch run/batch/slurm.sh CONFIG.toml [options]" >&2
    exit 2
fi
if [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "this is no Slurm job (SLURM_JOB_ID is not set): submit it with sbatch" >&2
    exit 2
fi
# The number of one job of an array stands for all of them too.
job=$SLURM_JOB_ID
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
config=$1
retries=0
if [ "${2:-}" = --retries ]; then
    retries=${3:-}
    [[ "$retries" =~ ^[0-9]+$ ]] || { echo "--retries '$retries': a number of new starts is needed" >&2; exit 2; }
    set -- "$config" "${@:4}"
fi
options=("${@:2}")
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || options=("${options[@]//%a/$SLURM_ARRAY_TASK_ID}")
read -ra python <<< "${PYTHON:-python}"
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

# Where a site has named no way for ranks to find each other, MPICH and its kin speak PMI2.
if [ -z "${SLURM_MPI_TYPE:-}" ] && scontrol show config 2> /dev/null | grep -q '^MpiDefault *= *none'; then
    export SLURM_MPI_TYPE=pmi2
fi

# An empty file for each exit code of a rank, and for that of a rank that ends all others: srun kills the others for any
# code but 0, and reports how they died.  Folders of jobs that were killed and are gone are removed.
export MACMPI_EXIT_CODES=$PWD/.macmpi-exit-codes-$SLURM_JOB_ID
for old in "$PWD"/.macmpi-exit-codes-*; do
    if [ -d "$old" ] && [ -z "$(squeue -h -j "${old##*-}" -o %i 2> /dev/null)" ]; then rm -rf "$old"; fi
done
cancelled=
trap 'cancelled=yes' TERM
trap 'rm -rf "$MACMPI_EXIT_CODES"' EXIT

for ((start = 0; ; start++)); do
    rm -rf "$MACMPI_EXIT_CODES"
    mkdir "$MACMPI_EXIT_CODES" || exit 2
    code=0
    # shellcheck disable=SC2016
    srun --kill-on-bad-exit=1 bash -c \
        'trap : USR1 TERM; "$@"; code=$?; : > "$MACMPI_EXIT_CODES/$code"; [ "$code" -eq 75 ] || exit "$code"' rank \
        "${python[@]}" -m macmpi.run "$config" --resume auto --max-time "${MAX_TIME:-auto}" \
        --since "$began" ${options[@]+"${options[@]}"} || code=$?
    for said in 75 74 70 2; do
        [ ! -e "$MACMPI_EXIT_CODES/$said" ] || code=$said
    done
    case $code in 0 | 2 | 70 | 74 | 75) break ;; esac
    if [ -n "$cancelled" ] || [ "$start" -ge "$retries" ]; then break; fi
    echo "a rank has died (exit code $code): start $((start + 1)) of $retries again, from the newest checkpoint" >&2
done

if [ "$code" -eq 75 ] && [ -z "$cancelled" ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "${MOST_RESTARTS:-200}" ]; then
    scontrol requeue "$job"
fi
exit "$code"
