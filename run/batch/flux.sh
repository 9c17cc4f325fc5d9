#!/bin/bash
# Flux: flux batch run/batch/flux.sh run/usps_mac.toml [--retries N] [more options of macmpi.run]
# Stops with a checkpoint before the time limit, submits itself again, and goes on from there.  docs/clusters.md
# flux: -N1
# flux: -n12
# flux: --time-limit=4h
# flux: --job-name=macmpi

# The place for: source /etc/profile; module load ...; source ~/macmpi-env/bin/activate

# shellcheck disable=SC2016,SC2034,SC2329
set -u
began=$(date +%s) # a limit of time counts from here, in each start
if [ -z "${1:-}" ]; then
    echo "usage: flux batch run/batch/flux.sh CONFIG.toml [options]" >&2
    exit 2
fi
if ! job=$(flux getattr jobid) || ! flux job timeleft > /dev/null; then
    echo "this is no Flux job (flux getattr jobid or flux job timeleft has failed): submit it with flux batch" >&2
    exit 2
fi
restarts=${MACMPI_RESTARTS:-0}
given=("$@")

# What the next job asks for, whatever the directives above say: nodes, slots, cores a slot, time, and the rest if any.
again=()
if asked=$(flux --parent jobs -n --format='{nnodes},{ntasks},{ncores},{duration},{queue},{bank}' "$job"); then
    IFS=, read -r nodes slots cores seconds queue bank <<< "$asked"
    [ -z "$nodes" ] || again+=(-N "$nodes")
    [ -z "$slots" ] || again+=(-n "$slots")
    [ -z "$cores" ] || [ -z "$slots" ] || again+=(-c "$((cores / slots))")
    [ -z "$seconds" ] || again+=(-t "${seconds}s")
    [ -z "$queue" ] || again+=("--queue=$queue")
    [ -z "$bank" ] || again+=("--bank=$bank")
fi

before_a_start() {
    local left lead
    launcher=(flux run -n "${RANKS:-12}")
    limit=${MAX_TIME:-unlimited}
    left=$(flux job timeleft) # "infinity" without a limit
    if [[ "$left" =~ ^[0-9]+ ]]; then
        left=${BASH_REMATCH[0]}
        lead=$((left / 5 < 300 ? left / 5 : 300))
        launcher+=(--time-limit="${left}s" --signal="USR1@$lead")
        limit=${MAX_TIME:-$((left + $(date +%s) - began))} # --since counts from there
    fi
}
tell() {
    flux job kill --signal=USR1 "$(flux job last)" 2> /dev/null
}
is_cancelled() {
    [ -n "$terminated" ]
}
go_back() (
    script=${SCRIPT:-run/batch/flux.sh}
    [ -f "$script" ] || script=$0
    export "${own[@]}" MACMPI_RESTARTS=$((restarts + 1))
    flux --parent batch ${again[@]+"${again[@]}"} "$script" "${given[@]}"
)

# From here on all scripts are the same.  Above are said: job, a name that no other job has; restarts, how often it has
# gone back to the queue; before_a_start, which sets launcher, what starts the ranks, and limit, for --max-time; tell,
# which sends the ranks SIGUSR1; is_cancelled; go_back.
config=$1
shift
retries=0
if [ "${1:-}" = --retries ]; then
    retries=${2:-}
    [[ "$retries" =~ ^[0-9]+$ ]] || { echo "--retries '$retries': a number of new starts is needed" >&2; exit 2; }
    shift 2
fi
most=${MOST_RESTARTS:-200}
[[ "$most" =~ ^[0-9]+$ ]] || { echo "MOST_RESTARTS='$most': a number of restarts is needed" >&2; exit 2; }
read -ra python <<< "${PYTHON:-python}"
read -ra launch_options <<< "${LAUNCH_OPTIONS:-}"

# What is said to this job is not for jobs that its ranks submit.  How many ranks an enclosing job had, and which of
# them has submitted this job, is nothing to the ranks of this one.
own=(CONFIG LAUNCH_OPTIONS MACMPI_RESTARTS MAX_TIME MOST_RESTARTS OPTIONS PYTHON RANKS SCRIPT)
export -n "${own[@]}"
for name in "${!PMI@}" "${!PALS_@}" "${!OMPI_@}" "${!MPI_LOCAL@}"; do
    case $name in *_MCA_* | OMPI_ALLOW_RUN_AS_ROOT* | OMPI_PREFIX) ;; *) unset "$name" ;; esac
done

# A signal to this shell ends the run with a checkpoint: it is passed on, and the ranks are waited for.
pid='' signals=0 terminated='' cancelled=''
stop() {
    signals=$((signals + 1))
    [ -z "$pid" ] || tell
}
trap stop USR1 USR2 XCPU
trap 'terminated=yes; stop' TERM INT HUP

# Each rank leaves its exit code as an empty file, and so does one that ends all others (MACMPI_EXIT_CODES): launchers
# end the others for any code but 0, and report how these died.  A rank that SIGUSR1 ends before it has come to Python
# (128 + 10) has stopped, with nothing to keep; so has one that a signal meets before there is a Python.
codes=$PWD/.macmpi-exit-codes-${job:?}
trap 'rm -rf "$codes"' EXIT
rank='came= code=75
    trap came=yes USR1 USR2 XCPU TERM INT HUP
    export MACMPI_EXIT_CODES=${1:?}
    { : > "$1/began"; } 2> /dev/null
    [ -n "$came" ] || { "${@:2}"; code=$?; }
    if [ -e "$1" ]; then
        [ "$code" -ne 138 ] || : > "$1/75"
        : > "$1/$code" || exit "$code"
    fi
    [ "$code" -eq 75 ] || exit "$code"'

# A signal ends wait, also one that came before it, and not what is awaited.  Ranks of a cancelled job may live on until
# all of it is killed, this shell as well: what they leave is removed before.
await() {
    local alive=yes code=255
    while [ -n "$alive" ] && [ "$code" -gt 128 ]; do
        kill -0 "$1" 2> /dev/null || alive=''
        wait "$1"
        code=$?
        if [ -n "$terminated" ] && [ -z "$cancelled" ] && is_cancelled; then
            cancelled=yes
            rm -rf "$codes"
        fi
    done
    return "$code"
}

# A launcher that ends by itself may do so before its scheduler knows that a node has died.  Where ranks had begun, and
# nothing can be started in their place, the fault is not the program's.
starts() {
    before_a_start
    timeout -k 5 120 "${launcher[@]}" ${launch_options[@]+"${launch_options[@]}"} bash -c true > /dev/null &
    await $!
}

for ((start = 0; ; start++)); do
    rm -rf "$codes"
    mkdir "$codes" || exit 74
    code=75
    if [ "$signals" -eq 0 ]; then
        before_a_start
        "${launcher[@]}" ${launch_options[@]+"${launch_options[@]}"} bash -c "$rank" rank "$codes" \
            "${python[@]}" -m macmpi.run "$config" --resume auto --max-time "$limit" --since "$began" "$@" &
        pid=$!
        [ "$signals" -eq 0 ] || tell
        await "$pid"
        code=$?
        pid=''
        if [ "$code" -eq 138 ] && [ "$signals" -gt 0 ]; then code=75; fi
        for said in 75 74 70 2; do
            [ ! -e "$codes/$said" ] || code=$said
        done
        [ -z "$cancelled" ] || code=143
        if [ "$code" -eq 0 ] && [ ! -e "$codes/0" ]; then
            echo "no rank has left its exit code in $codes: submit the job again, and it goes on" >&2
            code=74
        fi
    fi
    case $code in 0 | 2 | 70 | 74 | 75) break ;; esac
    if [ -n "$cancelled" ] || is_cancelled; then break; fi
    if [ -e "$codes/began" ] && ! starts; then
        echo "ranks have died (exit code $code) and no others can be started, as where a node has died" >&2
        code=75
        break
    fi
    if [ "$start" -ge "$retries" ]; then break; fi
    echo "a rank has died (exit code $code): start $((start + 1)) of $retries again, from the newest checkpoint" >&2
done
rm -rf "$codes"

if [ "$code" -eq 75 ] && is_cancelled; then
    code=143
elif [ "$code" -eq 75 ] && { [ "$restarts" -ge "$most" ] || ! go_back; }; then
    echo "the job was not put back into the queue (restarts: $restarts): submit it again, and it goes on" >&2
fi
exit "$code"
