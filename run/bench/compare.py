"""MAC against what one would train with instead, each tuned over a printed grid with a printed budget.

    python run/bench/compare.py adam --torch-python T        # stochastic MAC and MAC; PyTorch's Adam, SGD, L-BFGS
    python run/bench/compare.py rivals --torch-python T    # stochastic MAC; Adam, Muon, SOAP, schedule-free, SINGD
    python run/bench/compare.py parallel --torch-python T  # stochastic MAC and Adam (DistributedDataParallel)
    python run/bench/compare.py paper                        # section 4.2: MAC/QP, SGD, CG
    python run/bench/compare.py batch                        # all points at once: MAC, L-BFGS, CG
    python run/bench/compare.py tasks --torch-python T       # five tasks: defaults of stochastic MAC, tuned Adam
    python run/bench/compare.py shapes --torch-python T      # a large net and five other shapes (shapes.py)
    python run/bench/compare.py family --torch-python T      # Shampoo, K-FAC, SINGD (family.py)
    python run/bench/compare.py machine --torch-python T     # on all cores, by the wall clock (machine.py)

T: an interpreter with NumPy and torch.  Same split, net and initial weights (starts.py), one thread a process,
precision as the configs and grids say; evaluation counts for nobody.  Grids are cut down by successive halving; the
winners run `--repeats` times, first as they are tuned, then all contenders in turn; the turns do the same arithmetic,
and every iteration takes the median of its seconds.  With --slices S the runs of a turn are on one core at once, each
for its share of every S seconds, so that a machine's swings fall on all of them alike.  At each level a contender's
figure is that of the finalist that is soonest there.  Results stay in --output; what lies there is not run again, so
that with --pause S the comparison ends after about S seconds (exit code 75) and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import contenders as who  # noqa: E402
import family  # noqa: E402
import machine  # noqa: E402
import shapes  # noqa: E402
from contest import Candidate, Contender, Contest, Curve, lowest, merged, reached, to_level  # noqa: E402

SECONDS, TRAIN, VALIDATION, WRONG = range(4)
"""Columns of a curve."""

NETS = {"shapes": (shapes.SHAPES, shapes.SHAPES), "family": (family.NETS, family.QUICK)}
NETS |= {"machine": (machine.NETS, machine.QUICK)}
"""Nets of studies, and those of --quick."""


Runs = dict[str, list[Curve]]
"""Of each contender the curves of its finalists."""


def held(contest: Contest, study: who.Study, repeats: int) -> Runs:
    """The grids, then the winners in turn.  Where one rung before the last leaves the only finalist, that is enough."""
    finals: list[tuple[Contender, Candidate]] = []
    for contender in study.contenders:
        single = len(contender.candidates) <= contender.finalists
        chosen = contender.finalists == 1 and [keep for _, keep in contender.rungs[-2:-1]] == [1]
        grids = contender if repeats and not chosen else replace(contender, rungs=contender.rungs[:-1])
        winners = contender.candidates if single else replace(contest, turn=0.0).tune(grids, study.levels)
        finals += [(contender, c) for c in winners]
    runs: dict[tuple[str, Candidate], list[Curve]] = {}
    for repeat in range(repeats):
        turn = [(contender, c) for contender, c in finals if repeat < contender.turns]
        if contest.turn:
            contest.in_slices([(c, contender.rungs[-1][0]) for contender, c in turn], repeat)
        for contender, c in turn:
            (curve,) = contest.curves([c], contender.rungs[-1][0], repeat)
            runs.setdefault((contender.name, c), []).append(curve)
            contest.spent[contender.name] += round(contender.rungs[-1][0])
    found: Runs = {contender.name: [] for contender in study.contenders}
    for (name, c), turns in runs.items():
        curve = merged(turns)
        spread = ", ".join(f"{turn[-1][SECONDS] / max(len(turn) - 1, 1):.3f}" for turn in turns)
        print(f"  final, {name}: {c}; ends at {curve[-1][TRAIN]:.3f}; seconds an iteration {spread}", flush=True)
        found[name].append(curve)
    return found


def table(study: who.Study, runs: Runs, levels: list[tuple[str, float]]) -> list[str]:
    """Markdown: seconds and validation error at each level, and how much sooner the first contender is."""
    first, *others = runs
    head = [f"{first}: s, validation", *(f"{other}: s, validation (times)" for other in others)]
    groups = [[o for o in others if o.endswith(who.FROM_OURS) == given] for given in (False, True)]
    head += [f"best of the others{who.FROM_OURS * given}: times" for given, group in enumerate(groups) if group]
    lines = [f"| E1 train <= | {' | '.join(head)} |", "|" + "---|" * (len(head) + 1)]
    for label, level in levels:
        ours, validation = to_level(runs[first], level)
        cells = [cell(ours, validation)]
        for other in others:
            seconds, theirs = to_level(runs[other], level)
            if math.isfinite(seconds):
                cells.append(cell(seconds, theirs) + (f" ({seconds / ours:.1f})" if 0.0 < ours < math.inf else ""))
            else:
                last = max(curve[-1][SECONDS] for curve in runs[other])
                cells.append(f"> {last:.0f}" + (f" (> {last / ours:.1f})" if 0.0 < ours < math.inf else ""))
        for group in filter(None, groups):
            best = min(to_level(runs[other], level)[0] for other in group)
            cells.append(f"{best / ours:.1f}" if max(best, ours) < math.inf and ours > 0.0 else "-")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def among(study: who.Study, names: Sequence[str]) -> who.Study:
    """The first contender, and those others whose name begins with one of these."""
    first, *others = study.contenders
    return replace(study, contenders=(first, *(c for c in others if c.name.startswith(tuple(names)))))


def cell(seconds: float, validation: float) -> str:
    return f"{seconds:.2f}, {validation:.2f}" if math.isfinite(seconds) else "never"


def reference(study: who.Study) -> dict[str, float]:
    """What E1 train is compared with, by name."""
    from macmpi import config
    from macmpi.data.loading import load
    from macmpi.nets.build import build_chain
    from macmpi.nets.losses import loss_of
    from macmpi.results import scores

    keys = config.read(Path(study.config), [])
    dataset = load(keys.data)
    chain = build_chain(keys.model, dataset.X.shape[1], dataset.Y.shape[1])
    return {level.name: level.value for level in scores.levels(chain, dataset, loss_of(keys))}


def facts(contest: Contest) -> str:
    """Versions and rates of the machine, for the report of the runs."""
    program = (
        "import numpy, scipy; from macmpi import __version__ as v; from macmpi.plan.estimate import dgemm_rate;"
        "print(f'macmpi {v}, NumPy {numpy.__version__}, SciPy {scipy.__version__},"
        " dgemm {dgemm_rate(repeats=30) / 1e9:.1f} GFLOP/s')"
    )
    ours = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    peers = contest.folder / "peers.json"
    theirs = json.loads(peers.read_text()) if peers.exists() else {}
    rates = "".join(f", {k} {v if isinstance(v, str) else f'{v:.1f}'}" for k, v in theirs.items())
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return f"{model}, {os.cpu_count()} cores; {ours.stdout.strip()}{f'; PyTorch: {rates[2:]}' if rates else ''}"


def picture(path: Path, study: who.Study, runs: Runs, marks: dict[str, float]) -> None:
    """E1 train against seconds, both axes logarithmic, the medians' runs in front."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    for i, (name, finalists) in enumerate(runs.items()):
        for j, curve in enumerate(finalists):
            seconds, errors = zip(*((r[0], r[TRAIN]) for r in curve if r[0] > 0.0), strict=True)
            axes.plot(seconds, errors, color=f"C{i}", lw=1.0, alpha=0.6, label=None if j else name)
    for name, value in marks.items():
        axes.axhline(value, color="0.5", lw=0.8, ls="--")
        axes.annotate(name, (1.0, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="seconds of training", ylabel="E1 train", title=study.title)
    ticks = [2, 3, 4, 5, 6, 8, 10, 15]
    axes.set_yticks(ticks, [str(t) for t in ticks], minor=False)
    axes.minorticks_off()
    axes.legend()
    figure.savefig(path, dpi=130)


def compare(contest: Contest, study: who.Study, repeats: int) -> None:
    """One study: grids, finals, table, picture."""
    print(f"## {study.title}\n", flush=True)
    for c in study.contenders:
        print(f"  {c.name}: {len(c.candidates)} candidates, rungs {', '.join(f'{s:g} s' for s, _ in c.rungs)}")
    runs = held(contest, study, repeats)
    if not repeats:
        return
    marks = reference(study)
    levels = [(f"{v:g}", v) for v in study.levels]
    pca = next((v for name, v in marks.items() if name.startswith("PCA")), None)
    if pca:
        levels = sorted([*levels, (f"{pca:.2f} (PCA)", pca)], key=lambda pair: -pair[1])
    print("\n" + "\n".join(table(study, runs, levels)))
    said(contest)
    picture(contest.folder / f"{study.title.split(',')[0].replace(' ', '_')}.png", study, runs, marks)


def tasks(contest: Contest, repeats: int) -> None:
    """For each task: what tuned Adam ends with, and when stochastic MAC with its defaults is there."""
    head = (
        "task",
        "Adam's seconds",
        "Adam's lowest E1 train (MAC's)",
        "MAC there after",
        "Adam's lowest validation",
        "MAC's",
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in who.TASKS:
        print(f"## {name}\n", flush=True)
        study = who.task_study(name)
        ours, theirs = held(contest, study, repeats).values()
        if not repeats:
            continue
        (adam,), (mac,) = theirs, ours
        end, best = lowest(adam), min(r[VALIDATION] for r in adam)
        at = reached(adam, best, VALIDATION)[0]
        wrong = [min(r[WRONG] for r in curve) for curve in (adam, mac)]
        there = reached(mac, end)[0], reached(mac, best, VALIDATION)[0]
        after = [f"{seconds:.1f} s" if math.isfinite(seconds) else "never" for seconds in there]
        labels = f"; wrong {wrong[0]:.2%}, MAC {wrong[1]:.2%}" if any(wrong) else ""
        cells = (
            name,
            f"{adam[-1][SECONDS]:.1f} s",
            f"{end:.4g} (MAC {lowest(mac):.4g})",
            after[0],
            f"{best:.4g} after {at:.1f} s{labels}",
            f"{min(r[VALIDATION] for r in mac):.4g}; there after: {after[1]}",
        )
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if not repeats:
        return
    print("\n" + "\n".join(lines))
    said(contest)


def of_shapes(contest: Contest, names: Sequence[str], against: Sequence[str], repeats: int) -> None:
    """For each shape: when stochastic MAC, and the best of its tuned rivals, are at each level."""
    lines = list(shapes.HEAD)
    for name in names:
        print(f"## {name}\n", flush=True)
        own = replace(contest, records=shapes.SHAPES[name].records)
        study = among(shapes.study(name, contest.folder), against)
        if {c.name.endswith(who.FROM_OURS) for c in study.contenders[1:]} != {False, True}:
            raise SystemExit(f"--against {' '.join(against)}: {name} needs a rival from either start, such as Adam")
        runs = held(own, study, repeats)
        if repeats:
            lines += shapes.rows(name, runs)
            print("\n".join(lines), flush=True)
    said(contest)


def said(contest: Contest) -> None:
    """What tuning and final runs took, and on which machine."""
    print(f"\nBudget, seconds of training: {', '.join(f'{k} {v}' for k, v in contest.spent.items())}")
    print(facts(contest), flush=True)


def of_family(contest: Contest, names: Sequence[str], repeats: int, quick: bool) -> None:
    """For each net: when stochastic MAC, and each rival of its family, are at each level."""
    lines = machine.ruled(family.HEAD)
    for name in names:
        print(f"## {name}\n", flush=True)
        study = family.study(name, quick)
        runs = held(contest, study, repeats)
        if repeats:
            lines += family.rows(name, study.levels, runs)
            print("\n".join(lines), flush=True)
    said(contest)


def of_machine(contest: Contest, names: Sequence[str], repeats: int, quick: bool, curves: Path) -> None:
    """For each net: when stochastic MAC on all cores, and each rival at its best way to use them, are at each level.

    curves: the folder of the rivals' curves, which no load changes.
    """
    lines, epochs = machine.ruled(machine.HEAD), machine.ruled(machine.PACES)
    for name in names:
        print(f"## {name}\n", flush=True)
        net = (machine.QUICK if quick else machine.NETS)[name]
        rivals = list(machine.tuned(machine.at_any_load(contest, curves), net))
        if not repeats:
            continue
        own = machine.timed(contest, net, rivals, machine.CORES, repeats)
        lines += machine.rows(name, net, own, rivals, contest.records)
        epochs += machine.paces(name, rivals)
        print("\n".join([*epochs, "", *lines]), flush=True)
        print(f"{name}: errors after the same steps differ by {machine.apart(rivals):.1e} between ways", flush=True)
    said(contest)


def with_winners(contest: Contest, study: who.Study) -> who.Study:
    """The parallel study: Adam's winners on one process, each minibatch divided over two."""
    winners = [replace(c, ranks=2) for c in contest.tune(who.ADAM, who.ADAM_STUDY.levels)[:1]]
    peers = Contender("PyTorch Adam, DistributedDataParallel (gloo), 2 ranks", winners, ((32.0, 1),), 1)
    return replace(study, contenders=(*study.contenders, peers))


def main() -> None:
    p = argparse.ArgumentParser(description="MAC against what one would train with instead.")
    studies = ("adam", "rivals", "parallel", "paper", "batch", "tasks", *NETS)
    p.add_argument("study", choices=studies, nargs="+")
    p.add_argument("--only", nargs="+", metavar="NET", help="of shapes, family and machine: some of their nets")
    p.add_argument("--curves", type=Path, metavar="DIR", help="of machine: keeps rivals' curves here, not in --output")
    p.add_argument("--quick", action="store_true", help="of family and machine: tiny runs, to see that all is there")
    p.add_argument(
        "--against",
        nargs="+",
        default=[""],
        metavar="TEXT",
        help="of adam, rivals and shapes: those whose name begins so",
    )
    p.add_argument(
        "--torch-python", default=sys.executable, help="an interpreter with NumPy and torch (extra: compare)"
    )
    p.add_argument("--output", type=Path, default=Path("runs/compare"))
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--tune", action="store_true", help="the grids alone")
    p.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: the processor's seconds, of one process"
    )
    p.add_argument(
        "--slices",
        type=float,
        default=0.0,
        metavar="S",
        help="final runs share one core; each has its part of S seconds",
    )
    p.add_argument("--pause", type=float, default=math.inf, metavar="S", help="end after S seconds; go on by the same")
    args = p.parse_args()
    if args.repeats < 1:
        p.error(f"--repeats {args.repeats}: at least 1; --tune runs the grids alone")
    if not args.pause >= 0.0:
        p.error(f"--pause {args.pause:g}: seconds from 0 on")
    if args.slices and not (0.0 < args.slices < math.inf and args.clock == "cpu" and "parallel" not in args.study):
        p.error(f"--slices {args.slices:g}: seconds above 0, of single processes by their own clock: add --clock cpu")
    for name in args.study:
        known = NETS.get(name, ((), ()))[args.quick]
        if args.only and not set(args.only) <= set(known):
            p.error(f"--only {' '.join(args.only)}: {name} has {', '.join(known) or 'no nets to choose from'}")
    if "machine" in args.study and args.clock == "cpu":
        p.error("--clock cpu: machine is by the wall clock")
    if args.output.exists() and not args.output.is_dir():
        p.error(f"--output {args.output}: a file has this name; name a folder")
    if not Path(who.FAST).is_file():
        p.error(f"{who.FAST} is not there: run it from the folder that holds run/")
    if set(args.study) - {"paper", "batch"}:
        try:
            subprocess.run([args.torch_python, "-c", "import numpy, torch"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            p.error(f"{args.torch_python} has no torch: make compare installs it, or --torch-python")
    folder = args.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    pause = time.monotonic() + args.pause
    for name in args.study:
        contest = Contest(folder, args.torch_python, pause, args.clock, turn=args.slices)
        repeats = 0 if args.tune else args.repeats
        nets = args.only or list(NETS.get(name, ((), ()))[args.quick])
        if name == "tasks":
            tasks(contest, repeats)
        elif name == "shapes":
            of_shapes(contest, nets, args.against, repeats)
        elif name == "family":
            of_family(contest, nets, repeats, args.quick)
        elif name == "machine":
            of_machine(contest, nets, repeats, args.quick, args.curves or folder)
        elif name == "parallel":
            compare(contest, with_winners(contest, who.PARALLEL_STUDY), repeats)
        else:
            studies = {
                "adam": who.ADAM_STUDY,
                "rivals": who.RIVALS_STUDY,
                "paper": who.PAPER_STUDY,
                "batch": who.BATCH_STUDY,
            }
            compare(contest, among(studies[name], args.against), repeats)


if __name__ == "__main__":
    main()
