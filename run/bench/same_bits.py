"""Same results as another commit: python run/bench/same_bits.py COMMIT [CASE ...] [--real] [--ranks 1,3].

Checks out COMMIT into a temporary folder, trains every case with both source trees on the same machine, and compares
all datasets of the two model.h5 files (not the model card, an attribute that tells seconds) and the learning curves,
on each number of ranks; and in the present tree the numbers of ranks with each other, which are to have equal bits
always.  The cases (same_bits_cases.py) are small nets on data that are made here; --real takes those on real data
(MACMPI_DATA) instead.  The cases of a tree and a number of ranks share one launch; one that did not end there is
launched again alone.  Tolerance 0 asks for the same bits; else the largest difference allowed between the commits,
relative to the largest number of the dataset.  A case must also show what it is there for, such as weights that are 0.
Prints a row for each case; exit code 1 where one differs, does not end, or shows nothing, 2 where there is no such one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from programs import ROOT, checked_out, environment, mpiexec
from same_bits_case import EVERYWHERE, Case, Keys, Real, Seen
from same_bits_cases import CASES, REAL
from same_bits_data import write_data

ALL: dict[str, Case | Real] = {**CASES, **REAL}
ERRORS = ("mu", "E1_train", "E1_val", "E_Q", "constraint")
"""Keys that every record has; others are compared where both curves have them."""

SMALL, LARGE = 120.0, 3600.0
"""Seconds that a case of small data, or of real data, may take before its launch is given up."""

TOGETHER = 24
"""Cases of small data that share a launch."""

AT_ONCE = 2
"""Launches that run side by side."""


def commit(name: str) -> str:
    """A name of a commit that git knows.  Raises ArgumentTypeError."""
    known = ["git", "-C", ROOT, "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    if subprocess.run(known, capture_output=True, check=False).returncode:
        raise argparse.ArgumentTypeError(f"git knows no commit {name!r}")
    return name


def parser() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n")
    p = argparse.ArgumentParser(description=first, epilog=rest)
    p.add_argument("commit", metavar="COMMIT", type=commit, help="any name of a commit that git knows")
    p.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(ALL)} (default: all small ones)")
    p.add_argument("--real", action="store_true", help=f"all on real data: {', '.join(REAL)}")
    p.add_argument("--ranks", type=numbers, default=(1, 3), metavar="P,Q", help="numbers of ranks (1,3)")
    p.add_argument("--tolerance", type=float, default=0.0)
    p.add_argument("--keep", type=Path, metavar="DIR", help="an empty folder that keeps the runs")
    return p


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def toml(value: Any) -> str:
    """A value of a config as TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(inside)}' for key, inside in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


def config_text(keys: Keys) -> str:
    """A config of these keys."""
    return "".join(f"{key} = {toml(value)}\n" for key, value in keys.items())


@dataclass(frozen=True)
class Launch:
    """The cases of a source tree on a number of ranks, whose runs lie in a folder."""

    tree: Path
    ranks: int
    folder: Path
    data: dict[str, str]

    def job(self, name: str) -> dict[str, Any]:
        """What same_bits_runs.py is to do for a case."""
        case, output = ALL[name], self.folder / name
        words = ["--output", str(output)]
        if isinstance(case, Real):
            given = [word for setting in case.settings for word in ("--set", setting)]
            config, runs = self.tree / "run" / f"{case.config}.toml", [given]
        else:
            config, runs = self.folder / f"{name}.toml", [list(own) for own in case.runs]
            keys = {"data.source": self.data.get(case.data, case.data), **case.keys}
            config.write_text(config_text(keys))
        words = [str(config), *words, "--iterations", str(case.iterations)]
        return {
            "runs": [[*words, *own] for own in runs],
            "printed": str(self.printed(name)),
            "ended": str(self.ended(name)),
        }

    def printed(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    def ended(self, name: str) -> Path:
        return self.folder / f"{name}.code"

    def start(self, names: Iterable[str], title: str) -> subprocess.Popen[bytes]:
        """Launches the program for these cases, one after the other."""
        jobs = self.folder / f"{title}.json"
        jobs.write_text(json.dumps([self.job(name) for name in names]))
        words = ["-P", Path(__file__).with_name("same_bits_runs.py"), jobs]
        command = mpiexec(self.ranks, *words) if self.ranks > 1 else [sys.executable, *map(str, words)]
        sets = {"MACMPI_DATA": str(Path(os.environ.get("MACMPI_DATA", ROOT / "data")).resolve())}
        env = environment(self.tree) | sets
        with (self.folder / f"{title}.txt").open("ab") as out:
            return subprocess.Popen(command, cwd=self.folder, env=env, stdout=out, stderr=out)

    def carry_out(self, names: Sequence[str]) -> None:
        """Trains the cases in one launch; where that ends early, the case that it was at alone, then the rest."""
        left = list(names)
        while left:
            self._wait(left, "all")
            left = [name for name in left if not self.ended(name).exists()]
            if left:
                name = left.pop(0)
                shutil.rmtree(self.folder / name, ignore_errors=True)
                self._wait([name], f"{name}-alone")

    def _wait(self, names: Sequence[str], title: str) -> None:
        process = self.start(names, title)
        try:
            process.wait(sum(SMALL if isinstance(ALL[name], Case) else LARGE for name in names))
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()

    def failure(self, name: str) -> str:
        """What a case said that did not end well; "" of one that did."""
        code = self.ended(name).read_text() if self.ended(name).exists() else ""
        if code == "0":
            return ""
        said = [
            path.read_text().strip()
            for path in (self.printed(name), self.folder / f"{name}-alone.txt")
            if path.exists()
        ]
        last = next((text.splitlines()[-1] for text in said if text), "nothing was said")
        return f"{f'exit code {code}' if code else 'it did not end'}: {last}"

    def seen(self, name: str) -> Seen:
        """What a case has left."""
        output = self.folder / name
        records = [json.loads(line) for line in (output / "curve.jsonl").read_text().splitlines()]
        with h5py.File(output / "model.h5") as file:
            maps, shared = (json.loads(file.attrs[key]) for key in ("maps", "numbers"))
        return Seen(maps, shared, datasets(output / "model.h5"), records, self.printed(name).read_text(), self.ranks)


def datasets(path: Path) -> dict[str, np.ndarray]:
    """All datasets of a file by name."""
    found: dict[str, np.ndarray] = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def curve(records: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The values of each key over the records that have it, but for times and the number of ranks."""
    keys = {key for r in records for key in r if not key.startswith("seconds") and key not in ("ranks", "run")}
    found = {}
    for key in keys:
        values = [r[key] for r in records if key in r]
        try:
            found[f"curve {key}"] = np.array(values, dtype=float)
        except (TypeError, ValueError):
            found[f"curve {key}"] = np.array([json.dumps(value) for value in values])
    return found


def differences(old: dict[str, np.ndarray], new: dict[str, np.ndarray], tolerance: float) -> Iterator[str]:
    """A line for each dataset that is missing, of another shape or type, or further off than the tolerance."""
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield f"{name} only in the {'old' if name in old else 'new'} one"
            continue
        a, b = np.asarray(old[name]), np.asarray(new[name])
        if a.shape != b.shape or a.dtype != b.dtype:
            yield f"{name} is {a.dtype} {a.shape} in the old one, {b.dtype} {b.shape} in the new one"
        elif a.dtype.kind not in "biuf":
            if a.tolist() != b.tolist():
                yield f"{name} is another text"
        elif a.tobytes() != b.tobytes():
            off = float(np.abs(a.astype(float) - b).max()) / (float(np.abs(a).max()) or 1.0)
            if not off <= tolerance or tolerance == 0.0:
                yield f"{name} differs by {off:.1e} of its largest number"


def results_of(one: Seen, other: Seen) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The datasets and curves of two runs; of the curves the keys that both have, and those that every record has."""
    curves = curve(one.records), curve(other.records)
    keys = (curves[0].keys() & curves[1].keys()) | {f"curve {name}" for name in ERRORS}
    first, second = ({key: array for key, array in own.items() if key in keys} for own in curves)
    return one.datasets | first, other.datasets | second


def compared(name: str, launches: dict[tuple[str, int], Launch], tolerance: float) -> list[str]:
    """What is wrong with a case: how the trees differ, how the numbers of ranks do, what it fails to show."""
    failed = [
        f"{which}, {told(ranks)}: {said}" for (which, ranks), own in launches.items() if (said := own.failure(name))
    ]
    if failed:
        return failed
    seen = {key: launch.seen(name) for key, launch in launches.items()}
    counts, wrong = sorted({ranks for _, ranks in seen}), []
    for ranks in counts:
        found = list(differences(*results_of(seen["old", ranks], seen["new", ranks]), tolerance))
        wrong += [f"{told(ranks)}: {shortened(found)}"] if found else []
    for ranks in counts[1:]:
        found = list(differences(*results_of(seen["new", counts[0]], seen["new", ranks]), 0.0))
        wrong += [f"on {counts[0]} (old) and {ranks} ranks (new) of the new tree: {shortened(found)}"] if found else []
    case = ALL[name]
    for what, holds in (EVERYWHERE | (case.shows if isinstance(case, Case) else {})).items():
        wrong += [f"{told(ranks)}: does not show {what}" for ranks in counts if not holds(seen["new", ranks])]
    return wrong


def repeated(name: str, seen: Seen, known: dict[str, str]) -> list[str]:
    """What is wrong where a case has the bits of an earlier one without being meant to, or has not and is.

    known: the first case of each sum of weights and errors.
    """
    case = ALL[name]
    held = [array.tobytes() for array in (seen.weights, *(curve(seen.records)[f"curve {key}"] for key in ERRORS))]
    own = hashlib.sha256(b"".join(held)).hexdigest()
    if meant := case.as_case if isinstance(case, Case) else "":
        return [f"has not the bits of {meant}"] if meant in known.values() and known.get(own) != meant else []
    first = known.setdefault(own, name)
    return [f"has the bits of {first}: its own keys do nothing"] if first != name else []


def told(ranks: int) -> str:
    return f"{ranks} rank{'s' if ranks > 1 else ''}"


def shortened(found: list[str]) -> str:
    """The first three, and how many more there are."""
    return "; ".join([*found[:3], *([f"{len(found) - 3} more"] if len(found) > 3 else [])])


def groups(names: Sequence[str]) -> Iterator[list[str]]:
    """Cases that share a launch: TOGETHER small ones, of real data each alone."""
    small = [name for name in names if isinstance(ALL[name], Case)]
    yield from (small[i : i + TOGETHER] for i in range(0, len(small), TOGETHER))
    yield from ([name] for name in names if isinstance(ALL[name], Real))


def main() -> int:
    args = parser().parse_args()
    if unknown := set(args.cases) - ALL.keys():
        print(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    names = args.cases or list(REAL if args.real else CASES)
    alike = "the same bits" if args.tolerance == 0.0 else f"alike to {args.tolerance:g}"
    ranks, bad, began = ", ".join(map(str, args.ranks)), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as made, checked_out(args.commit, Path(made)) as tree:
        folder = args.keep.resolve() if args.keep else Path(made)
        folder.mkdir(exist_ok=True)
        data = write_data(folder)
        launches: dict[tuple[str, int], Launch] = {}
        known: dict[str, str] = {}
        for count in args.ranks:
            for which, sources in (("old", tree), ("new", ROOT)):
                own = folder / f"{which}-{count}"
                own.mkdir(parents=True)
                launches[which, count] = Launch(sources, count, own, data)
        for group in groups(names):
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda launch, group=group: launch.carry_out(group), launches.values()))
            for name in group:
                wrong = compared(name, launches, args.tolerance)
                if not wrong:
                    wrong = repeated(name, launches["new", args.ranks[0]].seen(name), known)
                bad += bool(wrong)
                print(f"{name:26s} ranks {ranks:8s} {' | '.join(wrong) or alike}", flush=True)
    print(f"{len(names) - bad} of {len(names)} cases: {alike} as {args.commit}, in {time.monotonic() - began:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
