"""The examples of run/ and Adam on the same nets: error, and seconds of the processor, on one rank each.

    MACMPI_DATA=... python run/bench/beside_adam.py beside_adam.md [usps_mac usps_deep ...]

Adam (minibatches of 50, momentum 0.9) has the start and the precision of the example and a number of epochs; its rate
is halved and doubled until the lowest validation error has a higher one on both sides.  Errors are those of the lowest
validation error of a run, seconds those until then and those of the whole run.  Rows that the file has are kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contest import CPU
from programs import give_up

HEAD = (
    "| config | E1 train / validation, wrong | seconds, of the run | Adam: rate | errors | seconds, of the run |\n"
    "|---|---|---|---|---|---|"
)

RATES = (1e-3, 2e-3)
"""Adam's first rates: halved and doubled from there, until the best has a worse one on both sides."""

ADAM = ("method.name=adam", "method.acceleration=none", "baseline.batch=50", "baseline.momentum=0.9")


@dataclass(frozen=True)
class Example:
    """Configs that are run one after the other, each from the model of the one before; Adam's epochs, or the example
    that has the same net."""

    configs: tuple[str, ...]
    epochs: int = 0
    net: str = ""


EXAMPLES = {
    "digits_mac": Example(("digits_mac",), 100),
    "usps_mac": Example(("usps_mac",), 40),
    "usps_fast": Example(("usps_fast",), net="usps_mac"),
    "usps_sparse": Example(("usps_sparse", "usps_sparse_fit"), net="usps_mac"),
    "usps_deep": Example(("usps_deep",), 20),
    "usps_classify": Example(("usps_classify",), 15),
    "usps_tied": Example(("usps_tied",), 40),
    "recurrent": Example(("recurrent",), 30),
    "usps_conv": Example(("usps_conv",), 15),
    "usps_conv_classify": Example(("usps_conv_classify",), 8),
}


@dataclass(frozen=True)
class Outcome:
    """Of the record with the lowest validation error, and the seconds of the whole run."""

    train: float
    validation: float
    wrong: float | None
    seconds: float
    whole: float

    def __str__(self) -> str:
        wrong = "" if self.wrong is None else f"; {100.0 * self.wrong:.2f} % wrong"
        return f"{self.train:.3f} / {self.validation:.3f}{wrong} | {self.seconds:.0f}, {self.whole:.0f}"


def trained(config: str, settings: Sequence[str], output: Path, limit: Sequence[str] = ()) -> Outcome:
    """One run by the processor's clock."""
    words = [f"run/{config}.toml", "--output", str(output), "--overwrite", *limit]
    words += [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([sys.executable, "-c", CPU, *words], capture_output=True, text=True, check=False)
    if done.returncode == 70 or not (output / "curve.jsonl").exists():
        give_up(words, done.returncode, done.stderr)
    records = [json.loads(line) for line in (output / "curve.jsonl").read_text().splitlines()]
    best = min(records, key=lambda r: float(r["E1_val"]))
    return Outcome(best["E1_train"], best["E1_val"], best.get("error_val"), best["seconds"], records[-1]["seconds"])


def own(example: Example, folder: Path) -> Outcome:
    """The last run of an example; its seconds are those of all."""
    spent, outcome, model = 0.0, None, None
    for config in example.configs:
        settings = [] if model is None else [f"start.model='{model}'"]
        outcome = trained(config, settings, folder / config)
        model, before = folder / config / "model.h5", spent
        spent += outcome.whole
    assert outcome is not None
    return Outcome(outcome.train, outcome.validation, outcome.wrong, before + outcome.seconds, spent)


def adam(example: Example, folder: Path) -> tuple[float, Outcome]:
    """The best rate, and its run."""
    limit = ("--iterations", str(example.epochs))
    found, wanted = dict[float, Outcome](), [*RATES]
    while wanted:
        for rate in wanted:
            settings = (*ADAM, f"baseline.rate={rate}")
            found[rate] = trained(example.configs[0], settings, folder / "adam", limit)
        best = min(found, key=lambda rate: found[rate].validation)
        wanted = [rate for rate in (best / 2.0, best * 2.0) if rate not in found]
    return best, found[best]


def main() -> None:
    path, names = Path(sys.argv[1]), sys.argv[2:] or list(EXAMPLES)
    rows = path.read_text().splitlines()[2:] if path.exists() else []
    for name in names:
        if any(row.startswith(f"| `{name}` |") for row in rows):
            continue
        example = EXAMPLES[name]
        with tempfile.TemporaryDirectory() as folder:
            ours = own(example, Path(folder))
            of_adam = f"as of `{example.net}` | | "
            if not example.net:
                rate, theirs = adam(example, Path(folder))
                of_adam = f"{rate:g} | {theirs} "
        rows.append(f"| `{name}` | {ours} | {of_adam}|")
        print(rows[-1], flush=True)
        path.write_text("\n".join([HEAD, *rows]) + "\n")


if __name__ == "__main__":
    main()
