"""`python -m macmpi.show MODEL.h5`: prints the model card of a trained net, for people or as JSON.  Needs no MPI."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from macmpi import UsageError, many
from macmpi.console import decimals, duration, printable
from macmpi.files import first_line
from macmpi.parallel.command import Namespace, by_one_process
from macmpi.parallel.kernels import described
from macmpi.results.card import Card, Record, evenly, plain
from macmpi.results.model import Model
from macmpi.results.model_file import load

BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " _.,-=+*#"
"""Bars of heights 0 to 8, and bars for terminals that print only ASCII."""

COLUMNS = 60
"""The largest number of characters of a curve that is drawn in a line."""

ROWS = 5
"""The number of records of the curve that are shown as numbers."""

LABEL = 14
"""The width of the column of labels, in characters."""


# --- the parts --------------------------------------------------------------------------------------------------------


def layers(model: Model) -> list[str]:
    """Lists the maps of the net, each in a word or two, such as "affine 64"; all steps of a recurrent layer as one."""
    chain, words, skipped = model.chain, list[str](), set[int]()
    for i, map_ in enumerate(chain.maps):
        if map_.own.kind == "first_state":  # each step has an affine map and an activation
            steps = [j for j, block in enumerate(chain.whole.blocks) if block == chain.whole.blocks[i + 1]]
            words.append(f"recurrent, {len(steps)} steps of {chain.maps[i + 1].own.n_out:,}")
            skipped |= {i + 1, *range(i + 3, steps[-1] + 2)}
        elif i not in skipped:
            words.append(_layer(map_))
    return words


def _layer(map_: Any) -> str:
    spec, carried = map_.own.spec(), map_.n_out - map_.own.n_out
    word = str(spec["name"]) if "name" in spec else f"{spec['kind']} {map_.own.n_out:,}"
    word += f" of width {spec['width']:g}" if "width" in spec else ""
    return f"{word} ({carried:,} carried)" if carried else word


def net_lines(model: Model) -> Iterator[tuple[str, str]]:
    """Describes the net itself, which every model.h5 has: pairs of a label and a text."""
    yield "net", f"{model.sizes} {model.task}, {model.chain.existing:,} weights"
    yield "layers", shortened(layers(model), " > ")
    if model.classes is not None:
        yield "classes", shortened([str(c) for c in model.classes.tolist()], ", ")
    yield "weights", ", ".join(f"{name} (used)" if name == model.in_use else name for name in model.kept)


def card_lines(card: Card) -> Iterator[tuple[str, str]]:
    """Describes the card: data, training, errors and scores, curve, machine; pairs of a label and a text."""
    about, training = card.data, card.training
    yield "data", f"{about.source}: {about.training_points:,} training, {about.validation_points:,} validation points"
    yield "", f"{many(about.inputs, 'column')} in, {about.outputs:,} out; SHA-256 {about.sha256[:16]}"
    took = f"{duration(training.seconds)} on {many(training.ranks, 'rank')}"
    yield "training", f"{training.method}, {training.iterations:,} iterations, {took}"
    best = f"iteration {training.best_iteration:,}" if training.best_iteration else "the start"
    best = "a constant" if training.constant else best
    yield "", f"ended: {training.ended or '-'}; best weights: {best}; written {training.written or '-'}"
    if training.ridges:
        yield "", f"ridges selected: {', '.join(f'{ridge:g}' for ridge in training.ridges)}"
    for name, error in card.errors.items():
        yield f"E1 of {name}", str(error)
    lines = card.scores.get("lines")
    for i, line in enumerate(lines if isinstance(lines, list) else []):
        yield "" if i else "scores", str(line) if i else f"{line}   (best weights, validation points)"
    yield from curve_lines(card.curve)
    yield from machine_lines(card.machine)


def curve_lines(curve: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Draws the validation errors of all records in a line, and writes some of the records as numbers."""
    values = [record.E1_val for record in curve]
    if not any(value is not None for value in values):
        return
    yield "curve", f"{sparkline(values, bars_of(sys.stdout))}  E1 validation, on a logarithmic scale"
    moves = len({record.mu for record in curve}) > 1
    for record in (curve[i] for i in evenly(len(curve), ROWS)):
        pairs = (("E1 train", record.E1_train), ("val", record.E1_val))
        errors = (f"{name} {decimals(v):>9}" for name, v in pairs if v is not None)
        mu = f"mu {record.mu:7.0e}  " if moves and record.mu is not None else ""
        phase = "" if record.phase == "iteration" else f"  {record.phase}"
        yield "", f"{record.iteration:>6,}  {mu}{'  '.join(errors)}  {duration(record.seconds or 0.0):>8}{phase}"


def bars_of(stream: Any) -> str:
    """Returns the characters that draw bars of different heights on a stream."""
    try:
        BARS.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return PLAIN_BARS
    return BARS


def sparkline(values: Sequence[float | None], bars: str = BARS) -> str:
    """Draws values as a line of bars on a logarithmic scale, at most COLUMNS of them, evenly spaced.

    A value that is None, not positive or not finite is a gap.
    """
    chosen = [values[i] for i in evenly(len(values), COLUMNS)]
    logs = [math.log(v) if v is not None and 0.0 < v < math.inf else None for v in chosen]
    known = [v for v in logs if v is not None]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    steps = len(bars) - 2
    return "".join(" " if v is None else bars[1 + (round(steps * (v - low) / span) if span else 0)] for v in logs)


def machine_lines(machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Describes the machine and the versions of the run that wrote the model, as far as they are known."""
    said = {name: str(machine[name]) for name in ("host", "machine", "cores", "git_commit") if machine.get(name)}
    if "host" in said:
        cores = f", {said['cores']} cores" if "cores" in said else ""
        yield "machine", f"{said['host']} ({said.get('machine', '-')}{cores})"
    versions = machine.get("versions")
    if isinstance(versions, dict):
        yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())
    with suppress(LookupError, TypeError, AttributeError):  # older versions did not record it
        yield "arithmetic", described(machine["kernels"])
    if "git_commit" in said:
        yield "commit", said["git_commit"]


def shortened(words: Sequence[str], between: str, most: int = 24) -> str:
    """Joins words; if there are more than `most`, only the first and the last ones."""
    if len(words) <= most:
        return between.join(words)
    return between.join([*words[: most - 5], f"... ({len(words):,})", *words[-4:]])


def shown(lines: Iterable[tuple[str, str]]) -> str:
    """Writes pairs of a label and a text as lines, with the labels in one column."""
    return "\n".join(f"{printable(label):{LABEL}s}{printable(text)}".rstrip() for label, text in lines)


# --- the command ------------------------------------------------------------------------------------------------------


def as_json(model: Model, numbers: dict[str, Any]) -> str:
    """Writes net, weights, attributes and card as one JSON object; card is null if the file has none."""
    whole = {
        "net": {"sizes": list(model.chain.layer_sizes), "kind": model.task, "maps": layers(model)},
        "classes": model.classes,
        "weights": list(model.kept),
        "numbers": numbers,
        "card": model.card,
    }
    return json.dumps(plain(whole), indent=1, allow_nan=False)


def told(args: Namespace) -> str:
    """Reads the model and returns the text to print.  Raises UsageError."""
    if args.config and args.json:
        raise UsageError("--config and --json: give one of them; the JSON holds the config too")
    model = load(args.model)
    numbers = {k: v.item() for k, v in model.attributes.items() if isinstance(v, np.number) and np.isfinite(v)}
    try:
        card = model.card
        if args.json:
            return as_json(model, numbers)
        if args.config and card is None:
            raise UsageError("it has no model card, hence no config; config.toml of its run directory is one")
        if card is None:
            noted = ("numbers", ", ".join(f"{name} {value:g}" for name, value in numbers.items()))
            missing = ("card", "none: written by an older version, or before training began")
            return shown([*net_lines(model), noted, missing])
        if args.config:
            return "\n".join(map(printable, card.config.splitlines()))
        return shown([*net_lines(model), *card_lines(card)])
    except UsageError as error:
        raise UsageError(f"{args.model}: {error}") from None
    except (ValueError, RecursionError) as error:  # for instance a number of thousands of digits
        raise UsageError(f"{args.model}: the model card is damaged: {first_line(error)}") from None


main = by_one_process("show", told)


if __name__ == "__main__":
    main()
