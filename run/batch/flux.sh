#!/bin/bash
# Flux: flux batch run/batch/flux.sh run/usps_mac.toml [--retries N] [more options of macmpi.run]
# Stops with a checkpoint before the time limit, submits itself again, and goes on from there.  docs/clusters.md
# flux: -N1
# flux: -n12
# flux: --time-limit=4h
# flux: --job-name=macmpi
set -u
began=$(date +%s) # a limit of time counts from here, in each start
if [ -z "${1:-}" ]; then
    echo "usage: flux batch run/batch/flux.sh CONFIG.toml [options]" >&2
    exit 2
fi
if ! left=$(flux job timeleft); then
    echo "this is no Flux job (flux job timeleft has failed): submit it with flux batch" >&2
    exit 2
fi
config=$1
options=("${@:2}")
retries=0
if [ "${2:-}" = --retries ]; then
    retries=${3:-}
    [[ "$retries" =~ ^[0-9]+$ ]] || { echo "--retries '$retries': a number of new starts is needed" >&2; exit 2; }
    options=("${@:4}")
fi
read -ra python <<< "${PYTHON:-python}"
limit=${MAX_TIME:-$left}
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
codes=$MACMPI_EXIT_CODES
trap 'rm -rf "$codes"' EXIT
cancelled=
trap 'cancelled=yes' TERM

for ((start = 0; ; start++)); do
    [ "$start" -eq 0 ] || left=$(flux job timeleft) || break
    code=0
    flux run -n "${RANKS:-12}" --time-limit="${left}s" --signal="USR1@$lead" \
        "${python[@]}" -m macmpi.run "$config" --resume auto --max-time "$limit" \
        --since "$began" ${options[@]+"${options[@]}"} || code=$?
    for said in 75 74 70 2; do
        [ ! -e "$MACMPI_EXIT_CODES/$said" ] || code=$said
    done
    case $code in 0 | 2 | 70 | 74 | 75) break ;; esac
    if [ -n "$cancelled" ] || [ "$start" -ge "$retries" ]; then break; fi
    echo "a rank has died (exit code $code): start $((start + 1)) of $retries again, from the newest checkpoint" >&2
done
unset MACMPI_EXIT_CODES

restarts=${RESTARTS:-0}
if [ "$code" -eq 75 ] && [ "$restarts" -lt "${MOST_RESTARTS:-200}" ]; then
    export RESTARTS=$((restarts + 1))
    flux --parent batch ${again[@]+"${again[@]}"} "${SCRIPT:-run/batch/flux.sh}" "$@"
fi
exit "$code"
