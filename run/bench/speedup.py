"""Speedup against processors: measured up to the number of cores, beyond it predicted by a model.

    python run/bench/speedup.py run/usps_mac.toml run/coil_mac.toml run/coil_select.toml synthetic
    python run/bench/speedup.py run/usps_mac.toml --weak                       as many points a rank at all rank counts,
                                                                               measured, and predicted for --predict
    python run/bench/speedup.py run/usps_mac.toml --draw --cluster my.toml     predict again from what was measured

Strong scaling: the same iterations at every number of ranks (the same bits, so the same work), seconds of training.
Each launch has one BLAS thread a rank; launches are interleaved (1, 2, 1 next to 1, 1, 2, ...) after one that is thrown
away, the first iteration of each is left out.  Results go to OUTPUT/NAME.json, and the figure, with all that is there,
to OUTPUT/speedup.png.

Undisturbed: the efficiency from the least seconds of each iteration over the launches.  Others: the most cores that
other work kept busy during a launch; launches that are disturbed are repeated.

The model (macmpi/plan/cost.py) is fitted to one rank (its parts timed, run/bench/workload.py), to an exchange
between two ranks and to one-rank runs side by side (crowding: what cores cost each other); measured rank counts are
held out, and its error on them is printed.  CLUSTER.toml describes another machine: alpha, beta (seconds a message
step and a byte), cores (of a node), speed (of a core, this machine's being 1), crowding (default: as here).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from cost_model import ceiling, grown, parmac, predict_all, scaled  # noqa: E402
from measure import Kind, Measured, measure, messages  # noqa: E402
from settings import decided  # noqa: E402
from speedup_tables import print_measured, print_predicted, print_weak  # noqa: E402
from synthetic import write_problem  # noqa: E402
from workload import flops, trace  # noqa: E402

from macmpi import UsageError  # noqa: E402
from macmpi import config as configs  # noqa: E402
from macmpi.data.loading import Source  # noqa: E402
from macmpi.plan.cost import Machine  # noqa: E402

PREDICTED = [1, 2, 4, 8, 12, 16, 24, 48, 96, 192, 384, 768, 1024, 2048, 4096]


@dataclass(frozen=True)
class Problem:
    """A config, settings for it, and how many iterations are measured."""

    name: str
    path: Path
    iterations: int
    settings: tuple[str, ...] = ()


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Speedup against processors: measured, and predicted beyond the cores.")
    p.add_argument("problems", nargs="*", metavar="CONFIG.toml|synthetic")
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="rank counts to measure, none above the cores")
    p.add_argument("--predict", type=int, nargs="+", default=PREDICTED, metavar="P", help="rank counts to predict")
    p.add_argument("--iterations", type=int, default=7)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--weak", action="store_true", help="points in proportion to ranks (data.points)")
    p.add_argument("--cluster", type=Path, metavar="FILE.toml", help="predict for another machine")
    p.add_argument("--output", type=Path, default=Path("runs/speedup"), metavar="DIR")
    p.add_argument("--draw", action="store_true", help="measure nothing: tables and figure of what is in DIR")
    return p


def cores() -> int:
    return len(os.sched_getaffinity(0))


def strong(problem: Problem, ranks: Sequence[int], repeats: int, folder: Path) -> dict[str, Any]:
    """Measure one problem, and fit the model to all but the held-out rank counts."""
    kinds = [Kind(r, 1, problem.settings) for r in ranks] + [Kind(1, cores(), problem.settings)]
    *alone, crowded = measure(problem.path, kinds, problem.iterations, repeats, folder)
    found = dict(zip(ranks, alone, strict=True))
    result = {
        "name": problem.name,
        "iterations": problem.iterations,
        "repeats": repeats,
        "cores": cores(),
        "dgemm": statistics.median([m.rate for m in alone]),
        "flops": flops(problem.path, problem.settings, problem.iterations),
        "measured": {str(r): summary(m) for r, m in found.items()},
    }
    if decided(problem.path, problem.settings).method.name == "mac":
        alpha, beta = messages()
        crowding = max(crowded.undisturbed / found[1].undisturbed, 1.0)
        machine = Machine(alpha, beta, cores(), 1.0, crowding)
        result["model"] = asdict(machine)
    return result


def summary(m: Measured) -> dict[str, Any]:
    return {**m.parts, "least": m.spread[0], "most": m.spread[1], "undisturbed": m.undisturbed, "others": m.others}


def sweeps_of(problem: Problem, seconds: float) -> list[Any]:
    """The traced iterations, scaled to the seconds measured on one rank."""
    traced = trace(problem.path, problem.settings, problem.iterations)
    scale = seconds * len(traced) / sum(took for _, _, took in traced)
    return [(scaled(work, scale), plan) for work, plan, _ in traced]


def predictions(problem: Problem, result: dict[str, Any], ranks: Sequence[int], cluster: Path | None) -> None:
    """Adds what the model says: on this machine for the held-out rank counts, on that of `cluster` for all."""
    here = Machine(**result["model"])
    sweeps = sweeps_of(problem, result["measured"]["1"]["seconds"])
    result["held_out"] = {
        count: predict_all(sweeps, here, int(count)).total / len(sweeps) for count in result["measured"] if count != "1"
    }
    machine = replace(here, **tomllib.loads(cluster.read_text())) if cluster else here
    result["machine"] = asdict(machine)

    def node(ranks: int) -> Machine:
        """The cluster's, or one like this with a core for each rank."""
        return machine if cluster else replace(machine, cores=max(machine.cores, ranks))

    result["predicted"] = {
        str(r): {name: s / len(sweeps) for name, s in vars(predict_all(sweeps, node(r), r)).items()} for r in ranks
    }
    work, plan = sweeps[-1]
    result["ceilings"] = ceiling(work, plan)
    units = sum(plan.chain.block_shapes[b][0] for s in plan.chain.segments for b in s.regressed)
    z = sum(w.point * p.n_train for w, p in sweeps) / len(sweeps)
    w = result["predicted"]["1"]["ideal"] - z if "1" in result["predicted"] else result["measured"]["1"]["seconds"] - z
    each = plan.dtype.itemsize * plan.offsets.weights[-1] / units
    result["parmac"] = {str(r): parmac(r, units, z, w, machine, each) for r in ranks}


def weak(problem: Problem, ranks: Sequence[int], repeats: int, folder: Path) -> dict[str, Any]:
    """Points in proportion to ranks: the largest number of ranks has all of them."""
    config = configs.read(problem.path, list(problem.settings))
    whole = len(Source(config).outline().X)
    kinds = [Kind(r, 1, (*problem.settings, f"data.points={whole * r // max(ranks)}")) for r in ranks]
    found = dict(zip(ranks, measure(problem.path, kinds, problem.iterations, repeats, folder), strict=True))
    result = {
        "name": problem.name,
        "points": {str(r): whole * r // max(ranks) for r in ranks},
        "measured": {str(r): summary(m) for r, m in found.items()},
    }
    if decided(problem.path, problem.settings).method.name == "mac":
        alpha, beta = messages()
        result["model"] = asdict(Machine(alpha, beta, cores()))
    return result


def weak_predictions(problem: Problem, result: dict[str, Any], ranks: Sequence[int], cluster: Path | None) -> None:
    """Adds what the model says of as many points a rank as one rank was measured on."""
    few = replace(problem, settings=(*problem.settings, f"data.points={result['points']['1']}"))
    sweeps = sweeps_of(few, result["measured"]["1"]["seconds"])
    machine = replace(Machine(**result["model"]), **tomllib.loads(cluster.read_text())) if cluster else None
    result["predicted"] = {}
    for r in ranks:
        node = machine or replace(Machine(**result["model"]), cores=max(cores(), r))
        many = [(grown(work, r), replace(plan, n_train=plan.n_train * r)) for work, plan in sweeps]
        result["predicted"][str(r)] = predict_all(many, node, r).total / len(sweeps)


def problem_of(word: str, args: argparse.Namespace, folder: Path) -> Problem:
    if word == "synthetic":
        return Problem(word, write_problem(folder), args.iterations)
    return Problem(Path(word).stem, Path(word), args.iterations)


def check(args: argparse.Namespace) -> None:
    """What would fail after minutes of measuring is refused at once; 1 rank is always predicted, to compare with.

    Raises UsageError.
    """
    bounds = {"ranks": (min(args.ranks), 1), "iterations": (args.iterations, 2), "repeats": (args.repeats, 1)}
    for key, (value, least) in {**bounds, "predict": (min(args.predict), 1)}.items():
        if value < least:
            raise UsageError(f"--{key} {value}: at least {least}")
    args.predict = sorted({1, *args.predict})
    for word in args.problems:
        if word != "synthetic":
            configs.read(Path(word), [])
    if args.draw:
        check_results(args)
    else:
        if too_many := [r for r in args.ranks if r > cores()]:
            raise UsageError(f"--ranks {too_many}: of {cores()} cores here; what more would take is --predict's")
        if 1 not in args.ranks:
            raise UsageError("--ranks: 1 is needed, to compare with")
        if not args.problems:
            raise UsageError("which problems?  configs, or: synthetic")
    if args.cluster is not None:
        check_cluster(args.cluster)


def check_results(args: argparse.Namespace) -> None:
    """--draw has something to draw, of each problem that is named."""
    if args.weak:
        raise UsageError("--draw measures nothing, and weak scaling has no figure: leave out one of --draw and --weak")
    for name in (Path(word).stem for word in args.problems):
        if name not in (result["name"] for result in results(args.output)):
            raise UsageError(f"--draw: {args.output} holds no result of {name}; measure it first, without --draw")
    if not results(args.output):
        raise UsageError(f"--draw: {args.output} holds no results; measure first, without --draw")


def check_cluster(path: Path) -> None:
    """The file has alpha and beta, and what it has are numbers in their bounds.  Raises UsageError."""
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--cluster {path}: {error}; docs/clusters.md describes the file") from None
    keys = [f.name for f in fields(Machine)]
    if unknown := sorted(given.keys() - set(keys)):
        raise UsageError(f"--cluster {path}: unknown key {unknown[0]}; known: {', '.join(keys)}")
    if lacking := [key for key in ("alpha", "beta") if key not in given]:
        raise UsageError(f"--cluster {path}: {lacking[0]} is missing; docs/clusters.md says how to find it")
    for key, value in given.items():
        kind, right = (int, "a whole number") if key == "cores" else (int | float, "a number")
        bound = "not below" if key in ("alpha", "beta", "handshake", "meeting") else "above"
        number = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < 0.0 or (bound == "above" and not value):
            raise UsageError(f"--cluster {path}: {key} = {value!r}: {right} {bound} 0 is needed")


def results(folder: Path) -> list[dict[str, Any]]:
    """Those of strong scaling in a folder.  Raises UsageError where one cannot be read."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}; measure again") from None
    return [result for result in found if "flops" in result]


def main() -> None:
    p = parser()
    args = p.parse_args()
    try:
        check(args)
    except UsageError as error:
        p.error(str(error))
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for word in args.problems:
            problem = problem_of(word, args, Path(temporary))
            stored = args.output / f"{problem.name}{'-weak' if args.weak else ''}.json"
            if args.weak:
                result = weak(problem, args.ranks, args.repeats, Path(temporary))
            elif args.draw:
                (result,) = (r for r in results(args.output) if r["name"] == problem.name)
            else:
                result = strong(problem, args.ranks, args.repeats, Path(temporary))
            if "model" in result and args.weak:
                weak_predictions(problem, result, args.predict, args.cluster)
            elif "model" in result:
                predictions(problem, result, args.predict, args.cluster)
            elif not args.weak:
                print(f"{problem.name}: nothing is predicted; the cost model knows the half steps of MAC alone")
            stored.write_text(json.dumps(result, indent=1))
            if args.weak:
                print_weak(result)
                continue
            print_measured(result)
            if "predicted" in result:
                print_predicted(result)
            sys.stdout.flush()
    from speedup_figure import draw

    if found := results(args.output):
        print(f"\nfigure: {draw(found, args.output / 'speedup.png')}")


if __name__ == "__main__":
    main()
