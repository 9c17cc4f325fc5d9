"""`make test-slurm`: run/batch/slurm.sh under a real Slurm, brought up on nodes inside this machine.

python tests/nodes/slurm.py [--only TEXT] [--times N] [--keep].  Root, Debian's slurm-wlm, munge and iproute2 are
needed.  The results of a whole suite are written to docs/suites/slurm.json.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch.cases import assert_same_run, checkpoints, curve, hdf5, write_case
from launch.here import run_here
from launch.launching import HOOK, LAUNCHER
from outcomes import ROOT, Cases, closed, folder, parsed, tried, versions
from slurm_cluster import Slurm, missing

SCRIPT = ROOT / "run" / "batch" / "slurm.sh"
PYTHON = {"PYTHON": str(sys.executable)}
ONE, TWO, THREE = ("--nodes=1", "--ntasks=2"), ("--nodes=2", "--ntasks=4"), ("--nodes=3", "--ntasks=6")
LAYOUTS = {"one node": ONE, "two nodes": TWO, "three nodes": THREE}
MISTAKE = 'data = "points.npz"\nmodel.hiddn = [3]\n'
NAMED = "model.hiddn: unknown key; did you mean model.hidden?"
AHEAD = 4
"""Iterations that a run goes on for after it has been stopped."""

CASES = Cases()


def submit(slurm: Slurm, where: Path, *words: object, layout: tuple[str, ...] = TWO, **variables: str) -> str:
    """A job of slurm.sh.  Options of sbatch stand in the layout."""
    hook = {"PYTHONPATH": f"{HOOK}:{ROOT}"} if "MACMPI_FAULT" in variables else {}
    return slurm.submit(*layout, SCRIPT, *words, cwd=where, **PYTHON | hook | variables)


def said(where: Path, job: str) -> str:
    return (where / f"macmpi-{job}.out").read_text(errors="replace")


def ended(slurm: Slurm, where: Path, job: str, state: str, code: int | None = None, restarts: int = 0) -> str:
    """What a job has said that is over for good, in that state, with that exit code and number of restarts."""
    found, text = slurm.ended(job), said(where, job)
    told = f"{[found[key] for key in ('JobState', 'ExitCode', 'Restarts')]}, not {state}, {code}, {restarts}: {text}"
    assert found["JobState"] == state, told
    assert code is None or found["ExitCode"] == f"{code}:0", told
    assert int(found["Restarts"]) >= restarts if restarts else found["Restarts"] == "0", told
    slurm.until(lambda: not list(where.glob(".macmpi*")), "end of the folder of exit codes", 30.0)
    return text


def same_as_straight(where: Path, config: str, run: str = "run", *settings: object) -> None:
    """The bits of one process that nothing has stopped."""
    length = curve(where / run)[-1]["iteration"]
    run_here(config, "--output", "straight", "--iterations", length, *settings, cwd=where, code=0)
    assert_same_run(where / run, where / "straight")
    shutil.rmtree(where / "straight")


def endless(where: Path) -> Path:
    """A run that goes on until it is stopped, with a checkpoint an iteration."""
    config = write_case(where, "long")
    config.write_text(config.read_text().replace("[run]", "[run]\nmax_iterations = 1000000"))
    return config


def under_way(slurm: Slurm, where: Path, job: str, after: int = 1) -> int:
    """The newest checkpoint's iteration, once it is past another one."""

    def newest() -> int:
        found = checkpoints(where / "run")
        return int(found[0].stem.split("-")[1]) if found else 0

    slurm.until(lambda: newest() > after, f"checkpoint after {after}: {slurm.job(job).get('JobState')}")
    return newest()


def soon_over(where: Path, config: Path) -> None:
    """The run shall end some iterations after the newest checkpoint: the queued job reads the config again."""
    length = int(checkpoints(where / "run")[0].stem.split("-")[1]) + AHEAD
    config.write_text(re.sub("max_iterations = .*", f"max_iterations = {length}", config.read_text()))


def stopped_and_resumed(
    slurm: Slurm, where: Path, job: str, config: Path, limit: float = 120.0, restarts: int = 1
) -> str:
    """Waits until the job is back in the queue; what it has said once it has run to its end, with the same bits.

    The end is set once the run has stopped: it would not be stopped, but over, in its last iteration.
    """
    slurm.until(lambda: int(slurm.job(job).get("Restarts") or 0) >= restarts, "restart", limit)
    slurm.until(lambda: slurm.job(job)["JobState"] in ("PENDING", "RUNNING"), "job in the queue")
    soon_over(where, config)
    text = ended(slurm, where, job, "COMPLETED", 0, restarts=restarts)
    same_as_straight(where, config.name)
    return text


for _name, _layout in LAYOUTS.items():

    @CASES.case(f"a run on {_name}", "exit code 0, the bits of one process")
    def plain(slurm: Slurm, where: Path, layout: tuple[str, ...] = _layout) -> None:
        write_case(where, "autoencoder")
        job = submit(slurm, where, "autoencoder.toml", "--output", "run", "--iterations", 6, layout=layout)
        assert "finished" in ended(slurm, where, job, "COMPLETED", 0)
        same_as_straight(where, "autoencoder.toml")

    @CASES.case(f"wrong config on {_name}", "exit code 2, one message, no restart, nothing created")
    def wrong(slurm: Slurm, where: Path, layout: tuple[str, ...] = _layout) -> None:
        write_case(where, "autoencoder")
        (where / "bad.toml").write_text(MISTAKE)
        job = submit(slurm, where, "bad.toml", layout=layout)
        assert ended(slurm, where, job, "FAILED", 2).count(NAMED) == 1
        assert not (where / "runs").exists()


@CASES.case("wrong config, srun --kill-on-bad-exit without the script", "exit code 2 and the message arrive")
def wrong_plain(slurm: Slurm, where: Path) -> None:
    (where / "bad.toml").write_text(MISTAKE)
    line = f"srun --mpi={LAUNCHER.pmi} --kill-on-bad-exit=1 {sys.executable} -m macmpi.run bad.toml"
    job = slurm.submit(*THREE, "--job-name=macmpi", "--output=%x-%j.out", f"--wrap={line}", cwd=where)
    assert ended(slurm, where, job, "FAILED", 2).count(NAMED) == 1


@CASES.case("srun --mpi=none", "exit code 2, one line that names --mpi=pmi2, nothing created")
def unconnected(slurm: Slurm, where: Path) -> None:
    write_case(where, "autoencoder")
    job = submit(slurm, where, "autoencoder.toml", layout=THREE, SLURM_MPI_TYPE="none")
    text = ended(slurm, where, job, "FAILED", 2)
    assert text.count("macmpi: ") == text.count("srun --mpi=pmi2") == 1, text
    assert not (where / "runs").exists()


@CASES.case("srun --mpi=none --kill-on-bad-exit without the script", "the same")
def unconnected_plain(slurm: Slurm, where: Path) -> None:
    write_case(where, "autoencoder")
    line = f"srun --mpi=none --kill-on-bad-exit=1 {sys.executable} -m macmpi.run autoencoder.toml"
    job = slurm.submit(*THREE, "--job-name=macmpi", "--output=%x-%j.out", f"--wrap={line}", cwd=where)
    text = ended(slurm, where, job, "FAILED", 2)
    assert text.count("macmpi: ") == text.count("srun --mpi=pmi2") == 1, text


@CASES.case("an exception in one rank", "exit code 70, its traceback with the rank, no restart")
def exception(slurm: Slurm, where: Path) -> None:
    write_case(where, "autoencoder")
    job = submit(slurm, where, "autoencoder.toml", "--output", "run", MACMPI_FAULT="3:z:2:exception")
    text = ended(slurm, where, job, "FAILED", 70)
    assert text.count("rank 3/4 failed; all ranks end") == text.count("ValueError: the fault") == 1, text


@CASES.case("a number that is not finite", "exit code 70, one line that all ranks agree on, no restart")
def not_finite(slurm: Slurm, where: Path) -> None:
    write_case(where, "autoencoder")
    job = submit(slurm, where, "autoencoder.toml", "--output", "run", MACMPI_FAULT="1:gather_rows:2:nan")
    text = ended(slurm, where, job, "FAILED", 70)
    assert text.count("the Z-step gave point") == 1, text
    assert "Traceback" not in text


@CASES.case("the disk is full at the end", "exit code 74, the remedy, no restart")
def full(slurm: Slurm, where: Path) -> None:
    write_case(where, "autoencoder")
    words = ("autoencoder.toml", "--output", "run", "--iterations", 6)
    job = submit(slurm, where, *words, MACMPI_FAULT="0:model:0:full")
    assert ended(slurm, where, job, "FAILED", 74).count("model.h5 could not be written: No space left") == 1
    again = submit(slurm, where, *words)
    ended(slurm, where, again, "COMPLETED", 0)
    same_as_straight(where, "autoencoder.toml")


@CASES.case("scancel --signal=USR1", "checkpoint, back to the queue under the same number, same bits")
def signalled(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run")
    under_way(slurm, where, job)
    slurm.run("scancel", "--signal=USR1", job)
    assert "the same command with --resume auto goes on" in stopped_and_resumed(slurm, where, job, config)


@CASES.case("the time limit", "stops by itself before it, without SLURM_JOB_END_TIME too; back to the queue, same bits")
def limit(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run", layout=(*TWO, "--time=1", "--signal=USR1@1"))
    text = stopped_and_resumed(slurm, where, job, config)
    assert "DUE TO TIME LIMIT" not in text, text


@CASES.case("Slurm's signal before the limit", "checkpoint, back to the queue, same bits")
def warned(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(
        *(slurm, where, config.name, "--output", "run"),
        layout=(*TWO, "--time=2", "--signal=USR1@30"),
        MAX_TIME="1:00:00",
    )
    under_way(slurm, where, job)
    stopped_and_resumed(slurm, where, job, config, 150.0)


@CASES.case("a job of five minutes", "is not signalled as it begins")
def five_minutes(slurm: Slurm, where: Path) -> None:
    write_case(where, "autoencoder")
    words = ("autoencoder.toml", "--output", "run", "--iterations", 6)
    job = submit(slurm, where, *words, layout=(*TWO, "--time=5"))
    assert "stopped" not in ended(slurm, where, job, "COMPLETED", 0)


for _way in ("--batch --signal=USR1", "--batch --signal=TERM", "--full --signal=USR1"):

    @CASES.case(f"scancel {_way}", "checkpoint, back to the queue under the same number, same bits")
    def signalled_shell(slurm: Slurm, where: Path, way: str = _way) -> None:
        config = endless(where)
        job = submit(slurm, where, config.name, "--output", "run")
        under_way(slurm, where, job)
        slurm.run("scancel", *way.split(), job)
        assert "the same command with --resume auto goes on" in stopped_and_resumed(slurm, where, job, config)


@CASES.case("--signal=B:USR1, a signal to the shell alone", "checkpoint, back to the queue, same bits")
def warned_shell(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    layout = (*TWO, "--time=2", "--signal=B:USR1@30")
    job = submit(slurm, where, config.name, "--output", "run", layout=layout, MAX_TIME="1:00:00")
    under_way(slurm, where, job)
    stopped_and_resumed(slurm, where, job, config, 150.0)


@CASES.case("scancel --batch --signal=USR1 as the job begins", "back to the queue at once; same bits in the end")
def signalled_early(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run")
    slurm.until(lambda: bool(list(where.glob(".macmpi*"))), "folder of exit codes")
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    slurm.until(lambda: slurm.job(job).get("Restarts") not in (None, "0"), "restart")
    under_way(slurm, where, job)
    slurm.run("scancel", "--signal=USR1", job)
    stopped_and_resumed(slurm, where, job, config, restarts=2)


ENVIRONMENT = f"source /etc/profile; source {Path(sys.executable).parent}/activate; export PYTHONPATH={ROOT}"
"""Lines of a user's, at the place that the script has for them."""


@CASES.case("--export=NONE, the environment made in the script", "checkpoint, back to the queue, same bits")
def without_environment(slurm: Slurm, where: Path) -> None:
    text = SCRIPT.read_text()
    assert text.count("\n# The place for: ") == 1
    (where / "own.sh").write_text(re.sub("\n# The place for: .*", f"\n{ENVIRONMENT}", text))
    exported(slurm, where, "--export=NONE", where / "own.sh")


@CASES.case("--export=LIST", "the same")
def with_some_variables(slurm: Slurm, where: Path) -> None:
    exported(slurm, where, "--export=PATH,PYTHON,PYTHONPATH,SLURM_CONF", SCRIPT)


def exported(slurm: Slurm, where: Path, option: str, script: Path) -> None:
    config, before = endless(where), set(os.listdir("/"))
    job = slurm.submit(*TWO, option, script, config.name, "--output", "run", cwd=where, **PYTHON)
    under_way(slurm, where, job)
    slurm.run("scancel", "--signal=USR1", job)
    stopped_and_resumed(slurm, where, job, config)
    assert set(os.listdir("/")) <= before, "a path of an empty variable"


@CASES.case("--time=UNLIMITED", "no limit; exit code 0")
def unlimited(slurm: Slurm, where: Path) -> None:
    write_case(where, "autoencoder")
    words = ("autoencoder.toml", "--output", "run", "--iterations", 6)
    job = submit(slurm, where, *words, layout=(*TWO, "--time=UNLIMITED"))
    assert "finished" in ended(slurm, where, job, "COMPLETED", 0)


@CASES.case(
    "submitted by srun within a task of an array, which has been started again, with memory, layout and MPI of its own",
    "the job itself goes back to the queue, the task does not; %a is no number; same bits",
)
def submitted_inside(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    (where / "users.sh").write_text(
        "#!/bin/bash\n"
        '[ -n "${SLURM_RESTART_COUNT:-}" ] || { touch begun; sleep 600; }\n'
        f'srun --mpi=none -n1 sbatch --parsable --mem=400 --nodes=2 --ntasks=4 {SCRIPT} "$@" > number.tmp\n'
        "mv number.tmp number; sleep 600\n"
    )
    options = ("--array=3", "--requeue", "--ntasks=2", "--ntasks-per-node=2", "--mem-per-cpu=50", "--cpus-per-task=2")
    options += ("--distribution=cyclic", "--hint=nomultithread", "--output=users.out", "--open-mode=append")
    words = (config.name, "--output", "run", "--set", 'data.source="points.npz"')
    users = slurm.submit(*options, "users.sh", *words, cwd=where, **PYTHON, MOST_RESTARTS="1")
    slurm.until(lambda: (where / "begun").exists(), "task")
    slurm.run("scontrol", "requeue", f"{users}_3")
    slurm.until(lambda: (where / "number").exists(), "job")
    job = (where / "number").read_text().strip()
    under_way(slurm, where, job)
    slurm.run("scancel", "--signal=USR1", job)
    stopped_and_resumed(slurm, where, job, config)
    assert slurm.job(f"{users}_3")["Restarts"] == "1"
    assert slurm.job(f"{users}_3")["JobState"] == "RUNNING"
    slurm.run("scancel", users)


NOTED = 8.0
"""Seconds in which slurmctld has noted that a job runs: it writes its state at most every five.  One that is killed
before knows the job as waiting, starts it once more, and takes its node out of service (Duplicate jobid)."""


@CASES.case("the controller is away as a run stops", "back to the queue once it is there again, same bits")
def controller_away(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run", layout=(*ONE, "--nodelist=node1"))
    under_way(slurm, where, job)
    time.sleep(NOTED)
    slurm.end_controller()
    try:
        slurm.nodes["node1"].run("pkill", "-USR1", "-f", r"^\S*python\S* -m [m]acmpi.run")
        slurm.until(lambda: "resume auto goes on" in said(where, job), "end of the run")
        time.sleep(3.0)
    finally:
        slurm.begin_controller()
    stopped_and_resumed(slurm, where, job, config)


FIT = """import numpy, macmpi
X = numpy.random.default_rng(0).normal(size=(40, 4))
print("fitted", macmpi.fit(X, X[:, :2], ranks=2, max_time=60.0).predict(X).shape)
"""


@CASES.case("fit(ranks=2) in a job, by itself and within srun", "a model each time, of ranks on the same node")
def fitted(slurm: Slurm, where: Path) -> None:
    (where / "fit.py").write_text(FIT)
    lines = [
        f"{start} timeout 60 {sys.executable} fit.py"
        for start in ("", "srun --mpi=none", f"srun --mpi={LAUNCHER.pmi} -n1")
    ]
    layout = ("--nodes=1", "--ntasks=1", "--cpus-per-task=2", "--job-name=macmpi", "--output=%x-%j.out")
    job = slurm.submit(*layout, f"--wrap={' && '.join(lines)}", cwd=where)
    assert ended(slurm, where, job, "COMPLETED", 0).count("fitted (40, 2)") == 3


@CASES.case("scancel", "the newest checkpoint stays, nothing else is left, no restart; a new job goes on, same bits")
def cancelled(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run")
    under_way(slurm, where, job)
    slurm.run("scancel", job)
    ended(slurm, where, job, "CANCELLED")
    time.sleep(6.0)  # a job that had gone back to the queue would be there by now
    assert slurm.job(job)["JobState"] == "CANCELLED"
    soon_over(where, config)
    again = submit(slurm, where, config.name, "--output", "run", layout=ONE)
    ended(slurm, where, again, "COMPLETED", 0)
    same_as_straight(where, config.name)


@CASES.case("scancel before training", "nothing is left, no restart")
def cancelled_early(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run")
    slurm.until(lambda: bool(list(where.glob(".macmpi*"))), "folder of exit codes")
    slurm.run("scancel", job)
    ended(slurm, where, job, "CANCELLED")


@CASES.case("scancel, and ranks that end by no signal", "nothing is left, no restart")
def cancelled_deaf(slurm: Slurm, where: Path) -> None:
    """As of a task that Slurm has started after it has sent the signals."""
    (where / "deaf").write_text("#!/bin/sh\ntrap '' TERM USR1\ntouch begun\nsleep 60\n")
    (where / "deaf").chmod(0o755)
    job = submit(slurm, where, "any.toml", PYTHON=str(where / "deaf"))
    slurm.until(lambda: (where / "begun").exists(), "rank")
    slurm.run("scancel", job)
    ended(slurm, where, job, "CANCELLED")


@CASES.case("scontrol requeue", "from the newest checkpoint, same bits")
def requeued(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run")
    under_way(slurm, where, job)
    slurm.run("scontrol", "requeue", job)
    stopped_and_resumed(slurm, where, job, config)


@CASES.case("scontrol suspend, for longer than run.deadline", "goes on where it was once it is resumed, same bits")
def suspended(slurm: Slurm, where: Path) -> None:
    config, deadline = endless(where), 10.0
    config.write_text(config.read_text().replace("[run]", f"[run]\ndeadline = {deadline}"))
    job = submit(slurm, where, config.name, "--output", "run")
    under_way(slurm, where, job)
    slurm.run("scontrol", "suspend", job)
    slurm.until(lambda: slurm.job(job)["JobState"] == "SUSPENDED", "suspension")
    time.sleep(5.0)  # Slurm stops the processes two seconds after it has told them
    reached = under_way(slurm, where, job)
    time.sleep(2.0 * deadline)
    assert under_way(slurm, where, job) == reached, "it was not suspended"
    slurm.run("scontrol", "resume", job)
    under_way(slurm, where, job, reached + 2)
    slurm.run("scancel", "--signal=USR1", job)
    assert "no answer" not in stopped_and_resumed(slurm, where, job, config)


@CASES.case("kill -9 of a rank, --retries 1", "a second start in the same job, from the newest checkpoint, same bits")
def retried(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--retries", 1, "--output", "run")
    reached = under_way(slurm, where, job)
    kill_a_rank(slurm)
    under_way(slurm, where, job, reached + 2)
    slurm.run("scancel", "--signal=USR1", job)
    text = stopped_and_resumed(slurm, where, job, config)
    assert text.count("a rank has died") == 1, text


@CASES.case("kill -9 of a rank", "the job fails with the launcher's code, no restart, nothing left")
def killed(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run")
    under_way(slurm, where, job)
    kill_a_rank(slurm)
    ended(slurm, where, job, "FAILED")
    assert slurm.job(job)["ExitCode"] not in ("0:0", "75:0")


def kill_a_rank(slurm: Slurm) -> None:
    """The last rank on any of the nodes, and not the shell around it."""
    for name in reversed(slurm.names):
        if found := slurm.nodes[name].run("pgrep", "-f", r"^\S*python\S* -m [m]acmpi.run", check=False).split():
            slurm.nodes[name].run("kill", "-KILL", found[-1])
            return
    raise AssertionError("no rank was found")


@CASES.case("an array job", "%a in options is the task's number: a run for each, the bits of one process")
def array(slurm: Slurm, where: Path) -> None:
    write_case(where, "autoencoder")
    words = ("autoencoder.toml", "--output", "run-%a", "--set", "start.seed=%a", "--iterations", 4)
    first = submit(slurm, where, *words, layout=(*ONE, "--array=0-2", "--output=task-%a.out"))
    for task in range(3):
        slurm.until(lambda t=task: (where / f"run-{t}" / "model.h5").exists(), f"model of task {task}")
    slurm.until(lambda: first not in slurm.run("squeue", "-h", "-o", "%F"), "end of the array")
    for task in range(3):
        same_as_straight(where, "autoencoder.toml", f"run-{task}", "--set", f"start.seed={task}")
    assert hdf5(where / "run-0" / "model.h5") != hdf5(where / "run-1" / "model.h5")


@CASES.case("two jobs in one folder", "the second ends with exit code 2 and names the first; the first goes on")
def second(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run", layout=(*ONE, "--nodelist=node1"))
    under_way(slurm, where, job)
    other = submit(slurm, where, config.name, "--output", "run", layout=(*ONE, "--nodelist=node2"))
    found = slurm.ended(other)
    assert found["ExitCode"] == "2:0", found
    assert said(where, other).count("in use by the run of host node1") == 1
    slurm.run("scancel", "--signal=USR1", job)
    stopped_and_resumed(slurm, where, job, config)


@CASES.case("the slurmd of a node dies", "Slurm puts the job back, it goes on elsewhere or there, same bits")
def dead_daemon(slurm: Slurm, where: Path) -> None:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run", layout=(*TWO, "--nodelist=node2,node3"))
    under_way(slurm, where, job)
    slurm.end_daemon("node3")
    try:
        slurm.until(lambda: slurm.states()["node3"].startswith("down"), "node that is down")
    finally:
        slurm.begin_node("node3")
    stopped_and_resumed(slurm, where, job, config)


@CASES.case("one of several nodes dies", "back to the queue, same bits; no more than the last iteration is lost")
def dead_node(slurm: Slurm, where: Path) -> str:
    config = endless(where)
    job = submit(slurm, where, config.name, "--output", "run", layout=("--nodes=2-3", "--ntasks=4"))
    reached = under_way(slurm, where, job)
    slurm.nodes["node2"].kill()
    try:
        slurm.until(lambda: slurm.states()["node2"].startswith("down"), "node that is down")
        assert int(checkpoints(where / "run")[0].stem.split("-")[1]) >= reached
        stopped_and_resumed(slurm, where, job, config)
    finally:
        slurm.begin_node("node2")
        slurm.until(lambda: slurm.states()["node2"] == "idle", "node that is back")
    return "resumed on the nodes that were left"


def main() -> None:
    args = parsed(__doc__.splitlines()[0])
    if why := missing():
        print(f"test-slurm: {why}", file=sys.stderr)
        sys.exit(2)
    chosen = [case for case in CASES if args.only in case.name]
    with folder(args.keep) as place, Slurm(place) as slurm:
        used = versions(slurm=slurm.run("sinfo", "--version").split()[-1])
        rows = tried(chosen, args.times, slurm, place)
    what = "run/batch/slurm.sh under a Slurm of three nodes, each of 4 cores, in namespaces of one machine"
    name, command = "slurm", "make test-slurm"
    if "openmpi" in used:
        name, command = "slurm-openmpi", "make MPI=openmpi test-slurm"
    closed(name, command, what, rows, used, not args.only)


if __name__ == "__main__":
    main()
