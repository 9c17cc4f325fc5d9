#!/bin/bash
# Slurm: sbatch run/batch/slurm.sh run/usps_mac.toml [more options of macmpi.run]
# Stops with a checkpoint before the time limit, goes back to the queue, and goes on from there.  docs/clusters.md
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
if [ -z "${1:-}" ]; then
    echo "usage: sbatch run/batch/slurm.sh CONFIG.toml [options]" >&2
    exit 2
fi
if [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "this is no Slurm job (SLURM_JOB_ID is not set): submit it with sbatch" >&2
    exit 2
fi
config=$1
read -ra python <<< "${PYTHON:-python}"
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
export MACMPI_EXIT_CODES=$PWD/.macmpi-exit-codes-$SLURM_JOB_ID
rm -rf "$MACMPI_EXIT_CODES"
mkdir "$MACMPI_EXIT_CODES" || exit 2

# An empty file for each exit code of a rank, and for that of a rank that ends all others: srun kills the others for any
# code but 0, and reports how they died.
code=0
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c \
    'trap : USR1 TERM; "$@"; code=$?; : > "$MACMPI_EXIT_CODES/$code"; [ "$code" -eq 75 ] || exit "$code"' rank \
    "${python[@]}" -m macmpi.run "$config" --resume auto --max-time "${MAX_TIME:-auto}" "${@:2}" || code=$?

for said in 75 74 70 2; do
    [ ! -e "$MACMPI_EXIT_CODES/$said" ] || code=$said
done
rm -rf "$MACMPI_EXIT_CODES"

if [ "$code" -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "${MOST_RESTARTS:-200}" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
