#!/bin/bash
# Flux: flux batch run/batch/flux.sh run/usps_mac.toml [more options of macmpi.run]
# Stops with a checkpoint before the time limit, submits itself again, and goes on from there.  docs/clusters.md
# flux: -N1
# flux: -n12
# flux: --time-limit=4h
# flux: --job-name=macmpi
set -u
if [ -z "${1:-}" ]; then
    echo "usage: flux batch run/batch/flux.sh CONFIG.toml [options]" >&2
    exit 2
fi
if ! left=$(flux job timeleft); then
    echo "this is no Flux job (flux job timeleft has failed): submit it with flux batch" >&2
    exit 2
fi
config=$1
read -ra python <<< "${PYTHON:-python}"

code=0
flux run -n "${RANKS:-12}" --time-limit="${left}s" --signal=USR1@300 \
    "${python[@]}" -m macmpi.run "$config" --resume auto --max-time "${MAX_TIME:-$left}" "${@:2}" || code=$?

restarts=${RESTARTS:-0}
if [ "$code" -eq 75 ] && [ "$restarts" -lt "${MOST_RESTARTS:-200}" ]; then
    export RESTARTS=$((restarts + 1))
    flux --parent batch "${SCRIPT:-run/batch/flux.sh}" "$@"
fi
exit "$code"
