"""`make test-nodes`: ranks on several nodes inside this machine, started by mpiexec, without a batch system.

python tests/nodes/hydra.py [--only TEXT] [--times N] [--keep].  Root and iproute2 are needed.  The results of a whole
suite are written to docs/suites/nodes.json.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy comes: runs in this process are compared with those of ranks

from against_model import CLOSE, FITTED, HELD_OUT, SIZES, Gatherings, exchanged, fitted
from launch.cases import assert_same_run, checkpoints, curve, points, write_case, write_h5
from launch.here import run_here
from launch.launching import LAUNCHER, LAUNCHER_VARIABLES, LAUNCHERS, MPIEXEC
from namespaces import Nodes, lacking
from outcomes import Cases, closed, folder, parsed, tried, versions
from slow_links import OVER, SlowLinks

HEAD, NAMES = "head", ("node1", "node2", "node3")
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "replicated": ("autoencoder", ()),
    "one copy a node": ("autoencoder", ("--set", 'parallel.data="node"')),
    "sharded": ("sharded", ()),
    "stochastic": ("minibatches", ("--set", "stochastic.parts=12", "--set", "stochastic.grow_every=1000")),
    "ring": ("ring", ()),
    "selection": ("architecture", ()),
    "a refit of one copy a node": (
        "regression",
        ("--set", 'parallel.data="node"', "--set", 'method.name="stochastic"', "--set", "run.refit=true"),
    ),
}
"""Case of launch.cases, and settings."""

LAYOUTS = {"two nodes of two ranks": {"node1": 2, "node2": 2}, "three nodes of two ranks": dict.fromkeys(NAMES, 2)}
ITERATIONS, AHEAD = 4, 4
EXCHANGE = Path(__file__).with_name("exchange.py")
IN_LEVELS = Path(__file__).parents[1] / "launch" / "in_levels.py"
LIMIT = 240.0

SSH = """#!/bin/bash
# mpiexec calls it as it would ssh: [options] HOST COMMAND
while [ "${{1#-}}" != "$1" ]; do shift; done
pid=$(cat "{folder}/$1.pid") || exit 1
shift
exec nsenter -t "$pid" -n -u -i -p -m env --chdir="$PWD" sh -c "$*"
"""

CASES = Cases()


class Machines:
    """Nodes and a launcher that reaches them, while the context lasts.  mpiexec is on a node that computes nothing."""

    def __init__(self, place: Path) -> None:
        self.folder, self.nodes = place, Nodes([HEAD, *NAMES], place)
        self.under_way: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Machines:
        self.nodes.__enter__()
        script = self.folder / "launcher"
        script.write_text(SSH.format(folder=self.folder))
        script.chmod(0o755)
        for name in NAMES:
            self.note(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.under_way:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.nodes.__exit__(kind, error, trace)

    def note(self, name: str) -> None:
        """The launcher reads which process a node is."""
        (self.folder / f"{name}.pid").write_text(str(self.nodes[name].pid))

    def start(self, *words: object, cwd: Path, **changes: str) -> subprocess.Popen[str]:
        """A command on the first node's network, whose mpiexec reaches the others."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
        own |= {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(self.folder / "launcher")}
        enter = ["nsenter", "-t", str(self.nodes[HEAD].pid), "-n", "-u"]
        process = subprocess.Popen(
            [*enter, *(str(word) for word in words)],
            cwd=cwd,
            env=own | {"OPENBLAS_NUM_THREADS": "1"} | changes,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.under_way.append(process)
        return process

    def ended(self, process: subprocess.Popen[str], code: int | None = 0) -> str:
        """What a command has said that ends with this code."""
        out, _ = process.communicate(timeout=LIMIT)
        assert code is None or process.returncode == code, f"exit code {process.returncode}, not {code}: {out}"
        return out

    def ranks(self, layout: dict[str, int], *words: object, cwd: Path, **changes: str) -> subprocess.Popen[str]:
        """macmpi.run on some ranks of some nodes."""
        return self.start(*self.launch(layout), sys.executable, "-m", "macmpi.run", *words, cwd=cwd, **changes)

    def launch(self, layout: dict[str, int]) -> tuple[object, ...]:
        """mpiexec, up to the program."""
        hosts = ",".join(f"{name}:{ranks}" for name, ranks in layout.items())
        return MPIEXEC, "--host", hosts, "-n", sum(layout.values())


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.05)


def newest(where: Path) -> int:
    found = checkpoints(where / "run")
    return int(found[0].stem.split("-")[1]) if found else 0


def same_as_one_rank(where: Path, config: str, settings: Sequence[str] = ()) -> None:
    """The bits of one process that nothing has struck."""
    length = curve(where / "run")[-1]["iteration"]
    run_here(config, "--output", "straight", "--iterations", length, *settings, cwd=where, code=0)
    assert_same_run(where / "run", where / "straight")


for _method in METHODS:
    for _layout in LAYOUTS:

        @CASES.case(f"{_method} on {_layout}", "the bits of one rank")
        def bits(machines: Machines, where: Path, method: str = _method, layout: str = _layout) -> None:
            case, settings = METHODS[method]
            write_case(where, case)
            words = (f"{case}.toml", "--output", "run", "--iterations", ITERATIONS, *settings)
            out = machines.ended(machines.ranks(LAYOUTS[layout], *words, cwd=where))
            assert f"{sum(LAYOUTS[layout].values())} ranks" in out, out
            same_as_one_rank(where, f"{case}.toml", settings)


for _layout in LAYOUTS:

    @CASES.case(f"columns in two levels on {_layout}", "those of the whole, by groups of one node")
    def in_levels(machines: Machines, where: Path, layout: str = _layout) -> None:
        words = (*machines.launch(LAYOUTS[layout]), sys.executable, IN_LEVELS)
        assert machines.ended(machines.start(*words, cwd=where)).endswith("groups of 2, 0 wrong\n")


for _method in ("replicated", "one copy a node", "sharded"):

    @CASES.case(f"a node dies, {_method}", "the launch ends non-zero; the same command on two nodes goes on, same bits")
    def dead(machines: Machines, where: Path, method: str = _method) -> None:
        case, settings = {"replicated": ("long", ()), "one copy a node": ("long", METHODS[method][1])}.get(
            method, ("sharded", ("--set", "penalty.factor=1.01", "--set", "run.checkpoint_minutes=1e-9"))
        )
        config = write_case(where, case)
        words = (config.name, "--output", "run", *settings)
        set_length(config, 1_000_000)
        process = machines.ranks(LAYOUTS["three nodes of two ranks"], *words, cwd=where)
        until(lambda: newest(where) > 1 or process.poll() is not None, "checkpoints")
        machines.nodes["node2"].kill()
        try:
            machines.ended(process, None)
            assert process.returncode not in (0, 2, 70, 74, 75), process.returncode
        finally:
            machines.nodes.add("node2")
            machines.note("node2")
        set_length(config, newest(where) + AHEAD)
        machines.ended(machines.ranks({"node1": 2, "node3": 2}, *words, "--resume", "auto", cwd=where))
        same_as_one_rank(where, config.name, settings)


def set_length(config: Path, length: int) -> None:
    """The next start reads the config again."""
    text = re.sub("max_iterations = .*\n", "", config.read_text())
    config.write_text(
        text.replace("[run]", f"[run]\nmax_iterations = {length}")
        if "[run]" in text
        else f"{text}[run]\nmax_iterations = {length}\n"
    )


@CASES.case("a slow and lossy link", "10 ms of delay and 1 % of frames lost: the bits of one rank")
def lossy(machines: Machines, where: Path) -> None:
    write_case(where, "sharded")
    layout = LAYOUTS["two nodes of two ranks"]
    with SlowLinks([machines.nodes[name] for name in layout]) as links:
        links.delay, links.loss = 0.01, 0.01
        words = ("sharded.toml", "--output", "run", "--iterations", 2)
        machines.ended(machines.ranks(layout, *words, cwd=where, **OVER))
    same_as_one_rank(where, "sharded.toml")


@CASES.case("a gathering of rows against the model", "within 15 % at delays that were not fitted")
def gathered(machines: Machines, where: Path) -> dict[str, Any]:
    """Seconds of gatherings at four delays."""
    layout = LAYOUTS["two nodes of two ranks"]
    with SlowLinks([machines.nodes[name] for name in layout]) as links:
        seconds = {}
        for links.delay in sorted((*FITTED, *HELD_OUT)):
            seconds |= _seconds_by_size(machines, layout, links.delay, where)
    model = fitted(seconds, sum(layout.values()))
    errors = {key: model.gathering(*key) / took - 1.0 for key, took in seconds.items() if key[0] in HELD_OUT}
    largest = max(map(abs, errors.values()))
    assert largest <= CLOSE, errors
    named = {f"{1e3 * delay:g} ms, {size} bytes": round(error, 3) for (delay, size), error in errors.items()}
    return {**model.said(), "relative errors, held out": named, "largest": round(largest, 3)}


def _seconds_by_size(machines: Machines, layout: dict[str, int], delay: float, where: Path) -> Gatherings:
    program = (sys.executable, EXCHANGE, *map(str, SIZES))
    out = machines.ended(machines.start(*machines.launch(layout), *program, cwd=where, **OVER))
    return {(delay, int(size)): took for size, took in json.loads(out.splitlines()[-1]).items()}


ITERATED = ("replicated", "one copy a node", "sharded")
"""Methods of which the cost model has all exchanges of an iteration."""


@CASES.case("an iteration over slow links against the model", "within 15 % at a delay that was not fitted")
def iterated(machines: Machines, where: Path) -> dict[str, Any]:
    """What an iteration takes longer over slow links than over those of this machine: what its exchanges take.

    alpha, beta and the handshake are those of gatherings at other delays.
    """
    delay, errors, said = HELD_OUT[0], dict[str, float](), dict[str, str]()
    for nodes, layout in LAYOUTS.items():
        ranks = sum(layout.values())
        with SlowLinks([machines.nodes[name] for name in layout]) as links:
            seconds: Gatherings = {}
            for links.delay in FITTED:
                seconds |= _seconds_by_size(machines, layout, links.delay, where)
            model, links.delay = fitted(seconds, ranks), delay
            for method in ITERATED:
                case, settings = METHODS[method]
                config, took = write_case(where, case), []
                for name, changes in (("fast", {}), ("slow", OVER)):
                    words = (config.name, "--output", f"{method}-{nodes}-{name}".replace(" ", "-"), *settings)
                    words = (*words, "--iterations", "3")
                    machines.ended(machines.ranks(layout, *words, cwd=where, **changes))
                    took.append(_seconds_of_iteration(where / words[2]))
                expected = exchanged(where, config.name, settings, model.machine(delay, ranks // len(layout)), ranks)
                named = f"{method} on {nodes}"
                errors[named] = round(expected / (took[1] - took[0]) - 1.0, 3)
                said[named] = f"{expected:.3f} s predicted, {took[1] - took[0]:.3f} s measured"
    largest = max(map(abs, errors.values()))
    assert largest <= CLOSE, (errors, said)
    return {"delay": f"{1e3 * delay:g} ms", "relative errors": errors, "seconds": said, "largest": largest}


def _seconds_of_iteration(run: Path) -> float:
    """The median over the iterations behind the first one."""
    seconds = [record["seconds"] for record in curve(run) if record["phase"] == "iteration"]
    return median(b - a for a, b in pairwise(seconds))


@CASES.case("wrong config on three nodes", "exit code 2, one message, nothing created")
def wrong(machines: Machines, where: Path) -> None:
    (where / "bad.toml").write_text('data = "digits"\nmodel.hiddn = [3]\n')
    out = machines.ended(machines.ranks(LAYOUTS["three nodes of two ranks"], "bad.toml", cwd=where), 2)
    assert out.count("model.hiddn: unknown key") == 1, out
    assert not (where / "runs").exists()


@CASES.case("data and folders that only some nodes have", "exit code 2, rank and node named, nothing created")
def local(machines: Machines, where: Path) -> None:
    """A disk of its own for each node, with other data of that shape, equal ones, or none, or for the output."""
    write_case(where, "sharded")
    other, equal, disk = where / "other.h5", where / "points.h5", where / "disk"
    write_h5(other, X=points(7, 403, 9))
    disk.mkdir()
    nodes = [machines.nodes[name] for name in NAMES]
    for node in nodes:
        node.run("mount", "-t", "tmpfs", "tmpfs", disk)
    own = ("sharded.toml", "--set", f'data="{disk / "points.h5"}"', "--iterations", 2)
    layout, named = LAYOUTS["three nodes of two ranks"], "ranks 2-3 on node2"
    try:
        for copies, code, said in (
            ((equal, other, equal), 2, f"{named} found other data there than rank 0 (other rows"),
            (
                (equal, None, equal),
                2,
                f"{named} found other data there than rank 0 (data.source: {disk}/points.h5 does",
            ),
            ((equal, equal, equal), 0, "model: run/model.h5"),
        ):
            for node, copy in zip(nodes, copies, strict=True):
                node.run("rm", "-f", disk / "points.h5")
                if copy:
                    node.run("cp", copy, disk / "points.h5")
            out = machines.ended(machines.ranks(layout, *own, "--output", "run", cwd=where), code)
            assert said in out, out
            assert (where / "run").exists() == (code == 0)
        words = ("sharded.toml", "--output", disk / "run")
        out = machines.ended(machines.ranks(layout, *words, cwd=where), 2)
        assert "rank 0 and ranks 2-3 on node2, ranks 4-5 on node3 do not write to one folder there" in out, out
        assert nodes[0].run("ls", "-A", disk) == "points.h5\n"
    finally:
        for node in nodes:
            node.run("umount", disk)
    shutil.copy(equal, disk)
    same_as_one_rank(where, "sharded.toml", own[1:3])


@CASES.case("a signal to mpiexec", "checkpoint, exit code 75 from all nodes, the same command goes on, same bits")
def signalled(machines: Machines, where: Path) -> None:
    config = write_case(where, "long")
    set_length(config, 1_000_000)
    layout = LAYOUTS["three nodes of two ranks"]
    process = machines.ranks(layout, config.name, "--output", "run", cwd=where)
    until(lambda: newest(where) > 1 or process.poll() is not None, "checkpoints")
    process.send_signal(signal.SIGUSR1)
    machines.ended(process, 75)
    set_length(config, newest(where) + AHEAD)
    machines.ended(machines.ranks({"node2": 2}, config.name, "--output", "run", "--resume", "auto", cwd=where))
    same_as_one_rank(where, config.name)


def main() -> None:
    args = parsed((__doc__ or "").splitlines()[0])
    other = "" if LAUNCHER is LAUNCHERS["mpich"] else "the mpiexec of MPICH or Intel MPI is needed to reach these nodes"
    if why := lacking() or other:
        print(f"test-nodes: {why}", file=sys.stderr)
        sys.exit(2)
    chosen = [case for case in CASES if args.only in case.name]
    with folder(args.keep) as place, Machines(place) as machines:
        rows: list[dict[str, Any]] = tried(chosen, args.times, machines, place)
    what = "mpiexec (Hydra) over nodes in namespaces of one machine, each with network and shared memory of its own"
    closed("nodes", "make test-nodes", what, rows, versions(), not args.only)


if __name__ == "__main__":
    main()
