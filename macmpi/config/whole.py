"""A whole config: its tables, its forms as TOML and as a flat dictionary, configs derived from it, and unread keys.

Two kinds of keys are not read: those that no longer exist, which are refused unless they have their last default; and
those that have no effect with the rest of the config, of which a launch warns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from macmpi import shown
from macmpi.config import tables
from macmpi.config.model import LOSSES, OWNERS, Model
from macmpi.config.tables import HALF_STEPS


@dataclass(frozen=True)
class Config(tables.Table):
    """A whole config file.  `data = "path.h5"` is short for `[data] source = "path.h5"`."""

    data: tables.Data = field(default_factory=tables.Data)
    model: Model = field(default_factory=Model)
    loss: tables.Loss = field(default_factory=tables.Loss)
    start: tables.Start = field(default_factory=tables.Start)
    penalty: tables.Penalty = field(default_factory=tables.Penalty)
    z_step: tables.ZStep = field(default_factory=tables.ZStep)
    w_step: tables.WStep = field(default_factory=tables.WStep)
    method: tables.Method = field(default_factory=tables.Method)
    stochastic: tables.Stochastic = field(default_factory=tables.Stochastic)
    baseline: tables.Baseline = field(default_factory=tables.Baseline)
    selection: tables.Selection = field(default_factory=tables.Selection)
    parallel: tables.Parallel = field(default_factory=tables.Parallel)
    run: tables.Run = field(default_factory=tables.Run)


USUAL = Config()
"""Every key at its default."""

KINDS: dict[str, Any] = {
    f"{table.name}.{key.name}": key.metadata for table in fields(Config) for key in fields(getattr(USUAL, table.name))
}
"""For each key, "table.key", the metadata of its declaration, which say what it changes (`tables.END`)."""


def changes(key: str) -> str:
    """Returns what a key changes: the "result", the "end" of a run, or "nothing"; for unknown keys "result"."""
    return str(KINDS.get(key, {}).get("changes", "result"))


def differences(then: dict[str, Any], now: dict[str, Any], changing: str = "result") -> list[str]:
    """Describes the keys whose values in two configs differ in their meaning, as a list.

    then, now: the configs, {"table.key": value}.
    changing: what the compared keys change: the "result", the "end" of a run, or "nothing".
    """
    told = []
    for key in sorted(then.keys() | now.keys()):
        alike = KINDS.get(key, {}).get("alike", {})
        was, is_ = (config.get(key) for config in (then, now))
        meant = [alike.get(value, value) if alike else value for value in (was, is_)]
        if changes(key) == changing and meant[0] != meant[1]:
            told.append(f"{key} (was {was!r}, {f'is {is_!r}' if key in now else 'has gone'})")
    return told


def given(config: Config) -> list[str]:
    """Lists the keys, "table.key", whose values are not their defaults."""
    return [key for key in KINDS if attrgetter(key)(config) != attrgetter(key)(USUAL)]


def flat(config: Config) -> dict[str, Any]:
    """Returns the config as a flat dictionary, {"table.key": value}."""
    return {f"{t}.{k}": v for t, keys in asdict(config).items() for k, v in keys.items()}


def with_value(config: Config, key: str, value: Any) -> Config:
    """Returns the config with another value of one key, "table.key".  Raises ValueError if its table refuses it."""
    table, _, name = key.partition(".")
    return replace(config, **{table: replace(getattr(config, table), **{name: value})})


def toml(value: Any) -> str:
    """Writes a number, string, list or table as TOML, which is JSON except for tables and the control character DEL."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(inside)}' for key, inside in value.items())} }}"
    if isinstance(value, list) and any(isinstance(inside, dict) for inside in value):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def dump(config: Config) -> str:
    """Writes the config as TOML, with the value of every key."""
    lines = []
    for table, keys in asdict(config).items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {toml(value)}" for key, value in keys.items()]
        lines.append("")
    return "\n".join(lines)


# --- configs that are derived from another one ------------------------------------------------------------------------


def resized(config: Config, units: Sequence[int], widths: Sequence[float] = (), ridges: Sequence[float] = ()) -> Config:
    """Returns the config of a net of other sizes, without candidates of a selection that are larger than these sizes.

    units: the units of each hidden layer; layers that are tables keep theirs.
    widths, ridges: new values of model.width and penalty.ridge; () keeps the present ones.  Collective: no.
    """
    model, selection = config.model, config.selection
    assert isinstance(model.hidden, list)
    pairs = zip(units, model.hidden, strict=True)
    hidden = [int(n) if isinstance(layer, int) else layer for n, layer in pairs]
    pairs_of_sizes = zip(selection.sizes, units, strict=False)
    sizes = [sorted({int(most), *(n for n in tried if n <= most)}) if tried else [] for tried, most in pairs_of_sizes]
    model, penalty = replace(model, hidden=hidden), config.penalty
    if len(widths):
        model = replace(model, width=[float(width) for width in widths])
    if len(ridges):
        penalty = replace(penalty, ridge=[float(ridge) for ridge in ridges])
    return replace(config, model=model, penalty=penalty, selection=replace(selection, sizes=sizes))


def one_layer(config: Config, k: int, output: str, iterations: int) -> Config:
    """Returns the config by which hidden layer k is trained alone, as the hidden layer of an autoencoder.

    output: the activation of the autoencoder's output layer; iterations: the number of its iterations.
    It has the ridge of layer k.  Collective: no.
    """
    (units, activation, _), penalty = config.model.layers()[k], config.penalty
    mu_max = min(1e4, penalty.mu_max)
    return Config(
        model=Model([units], activation, output, precision=config.model.precision),  # type: ignore[arg-type]
        start=replace(config.start, method="uniform", model=""),
        method=tables.Method("mac", "none"),
        penalty=tables.Penalty(mu0=min(10.0, mu_max), mu_max=mu_max, ridge=penalty.each("ridge", k + 1)[k]),
        run=tables.Run(max_iterations=iterations),
    )


# --- keys that no run reads -------------------------------------------------------------------------------------------

GONE: dict[str, tuple[Any, str]] = {
    "start.iterations": (0, "each start has its own number, a constant of macmpi.methods.starts"),
    "method.cg_iterations": (10, "it is 10 now, the default of macmpi.methods.alternating.Alternating"),
    "baseline.parts": (2, "it is 2 now, the constant SHARED of macmpi.plan.plan"),
    "start.repulsion": (100.0, "it is 100 now, the constant REPULSION of macmpi.methods.starts"),
    "baseline.beta2": (0.999, "it is 0.999 now, the constant BETA2 of macmpi.methods.backprop"),
    "selection.smallest": (150, "selection.sizes lists candidates"),
    "selection.step": (25, "selection.sizes lists candidates"),
    "selection.iterations": (5, "it is 5 now, the constant ITERATIONS of macmpi.methods.unit_selection"),
}
"""Keys of version 0.1.0 that no longer exist: the last default of each, and the reason or the remedy."""

OF_MINIBATCHES = ("batch_max", "grow_every", "averaging", "records", "parts")
"""The keys of [stochastic] that have no effect where each step takes all points."""


def gone(key: str, value: Any) -> str | None:
    """Returns the refusal of a key that no longer exists, "" if it has its last default; None for other keys.

    Collective: no.
    """
    if key not in GONE:
        return None
    default, why = GONE[key]
    if value == default and isinstance(value, bool) is isinstance(default, bool):
        return ""
    return f"{key} has gone ({why}): leave it out, or use an earlier macmpi, which reads {key} = {shown(value)}"


def ignored(config: Config, asked: Config, reuses: bool = False) -> list[str]:
    """Lists the keys, "table.key", that `asked` gives and that a run with this config does not read.

    config: `asked` without "auto"; reuses: whether some weight of the net serves several places.  Collective: no.
    """
    method, start, penalty = config.method.name, config.start.method, config.penalty
    kinds, sites = ({layer[i] for layer in config.model.layers()} for i in (1, 2))
    nested, by_gradient = config.method.nested, config.penalty.stop == "gradient"
    ends = method == "mac" and config.run.finish is not False
    whole = config.stochastic.batch == "all"
    by_counting = method == "alternating" or nested or penalty.value("mu_every") > 0 or by_gradient
    unread = dict.fromkeys(HALF_STEPS, nested) | {f"model.{key}": not kinds & {*words} for key, words in OWNERS.items()}
    unread |= {
        "stochastic": method != "stochastic",
        **{f"stochastic.{key}": whole or method != "stochastic" for key in OF_MINIBATCHES},
        "stochastic.grow_every": method != "stochastic" or whole or (reuses and not config.stochastic.stream),
        "stochastic.cg_iterations": not (ends or (whole and method == "stochastic")),
        "stochastic.patience": method != "stochastic" or config.stochastic.stream,
        **{f"stochastic.{key}": not ends and method != "stochastic" for key in ("damping", "ridge")},
        "baseline": method not in ("sgd", "adam"),
        "baseline.patience": method not in ("sgd", "adam", "cg", "lbfgs"),
        "selection": config.selection.criterion == "none",
        **dict.fromkeys(("penalty.tolerance", "penalty.tolerance_decay"), by_counting),
        "penalty.factor": nested or method == "alternating" or sites == {"none"},
        **dict.fromkeys(("penalty.mu_every", "penalty.patience"), nested or method == "alternating"),
        "penalty.metric": nested or sites == {"none"},
        "penalty.ridge_until_mu": nested or by_gradient,
        "penalty.gradient_tolerance": nested or not by_gradient,
        "model.sites": nested,
        "model.centres": start != "staged" and unread["model.centres"],
        "model.image": not config.model.reads_images and config.model.readout == "dense",
        "loss.threshold": config.model.loss in LOSSES and config.model.loss != "huber",
        "model.fitters": nested,
        "model.joining": not config.model.skips,
        "parallel.rows": not config.parallel.by_rows,
        "method.acceleration": method != "mac",
        "z_step": nested or sites == {"none"} or method == "alternating" or config.method.acceleration == "joint",
        "run.finish": method != "mac",
        "start.range": start in ("stochastic", "staged", "model"),
        "start.gradient_step": start in ("stochastic", "staged", "model", "elastic_embedding", "file")
        or (method == "stochastic" and start in ("auto", "uniform")),
        "start.width": start != "elastic_embedding",
        "start.neighbours": start != "neighbours",
        "start.weights": start != "model",
    }
    return [key for key in given(asked) if unread.get(key, unread.get(key.partition(".")[0], False))]
