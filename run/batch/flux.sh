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
lead=$((left / 5 < 300 ? left / 5 : 300))

# What the next job asks for, whatever the directives above say: nodes, slots, cores a slot, time, and the rest if any.
again=()
if asked=$(flux --parent jobs -n --format='{nnodes},{ntasks},{ncores},{duration},{queue},{bank}' "$(flux getattr jobid)")
then
    IFS=, read -r nodes slots cores seconds queue bank <<< "$asked"
    [ -z "$nodes" ] || again+=(-N "$nodes")
    [ -z "$slots" ] || again+=(-n "$slots")
    [ -z "$cores" ] || [ -z "$slots" ] || again+=(-c "$((cores / slots))")
    [ -z "$seconds" ] || again+=(-t "${seconds}s")
    [ -z "$queue" ] || again+=("--queue=$queue")
    [ -z "$bank" ] || again+=("--bank=$bank")
fi

# An empty file for the exit code of a rank that ends all others: flux run reports how the others died.
MACMPI_EXIT_CODES=$(mktemp -d "$PWD/.macmpi-exit-codes-XXXXXX") || exit 2
export MACMPI_EXIT_CODES

code=0
flux run -n "${RANKS:-12}" --time-limit="${left}s" --signal="USR1@$lead" \
    "${python[@]}" -m macmpi.run "$config" --resume auto --max-time "${MAX_TIME:-$left}" "${@:2}" || code=$?
for said in 75 74 70 2; do
    [ ! -e "$MACMPI_EXIT_CODES/$said" ] || code=$said
done
rm -rf "$MACMPI_EXIT_CODES"
unset MACMPI_EXIT_CODES

restarts=${RESTARTS:-0}
if [ "$code" -eq 75 ] && [ "$restarts" -lt "${MOST_RESTARTS:-200}" ]; then
    export RESTARTS=$((restarts + 1))
    flux --parent batch ${again[@]+"${again[@]}"} "${SCRIPT:-run/batch/flux.sh}" "$@"
fi
exit "$code"
