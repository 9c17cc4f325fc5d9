"""Chooses the value of each key that is "auto", once the sizes of the data are known; `--explain` prints the reasons.

The paper's own settings are files in run/, where every key that matters has its value.

The schedule and acceleration of full MAC for an autoencoder are the paper's, except for the first mu, which is 10
instead of 1: mu grows tenfold whenever the error has settled.  For a classifier or a regression such a mu is too large,
since it ties the coordinates to the outputs of the initial net.  There mu begins small and doubles every tenth
iteration, and the run ends when the validation error falls no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from macmpi.config.model import CODES, LAYERS, Activation
from macmpi.config.tables import HALF_STEPS, PAPER_DEFAULTS, extensions
from macmpi.config.whole import Config, given, toml, with_value

COORDINATES = (*HALF_STEPS, "selection", "model.sites", "model.fitters", "method.acceleration")
"""The tables and keys that only methods with coordinates read."""

UNITS = [100]
"""The units of the hidden layers of a regression or a classifier."""

CODE = 8
"""The number of units of an autoencoder's code, or half the number of its inputs where that is smaller."""

AUTO = "auto"
IN_THE_PAPER, AS_THE_DATA, AS_USUAL = "as in the paper", "as the data have it", "usual with full MAC"
ITS_OWN = "that of the method"


@dataclass(frozen=True)
class Sizes:
    """The sizes of a data set.

    n_in, n_out: the columns of X, and the outputs of a net for these data.
    n_train, n_val: the training and the validation points.
    autoencoder: whether there are no targets but the inputs.
    classes (C,): the labels of a classifier; None for other data.
    shape: height, width and channels of images; None for other data.
    weights: how many weights a training point has: 0, 1, or one for each output.
    drawn: whether the validation points were drawn from the same set as the training points.
    before: the number of points in earlier pieces of the stream.
    raw: the bytes of a point's X and Y as their file stores them; () if that is not known.
    """

    n_in: int
    n_out: int
    n_train: int
    n_val: int
    autoencoder: bool
    classes: Any = None
    shape: tuple[int, ...] | None = None
    weights: int = 0
    drawn: bool = False
    before: int = 0
    raw: tuple[int, ...] = ()

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.n_in, self.n_out, self.n_train, self.n_val


@dataclass(frozen=True)
class Decision:
    """A decision on a key that is "auto": the value that it gets, and why."""

    key: str
    value: Any
    why: str


def decide(
    config: Config, n_in: int, autoencoder: bool = False, shape: Sequence[int] | None = None
) -> tuple[Config, list[Decision]]:
    """Returns the config without "auto", and the decisions.  Collective: no.

    n_in: the number of columns of X; shape: height, width and channels of its images, None for other data.
    """
    config, of_net = decide_net(config, n_in, autoencoder)
    of_run = list(_of_run(config, n_in, autoencoder, shape))
    return _with(config, of_run), [*of_net, *of_run]


def decide_net(config: Config, n_in: int, autoencoder: bool = False) -> tuple[Config, list[Decision]]:
    """Decides the method and the net where they are "auto"; returns the config and the decisions.  Collective: no.

    n_in: the number of columns of X.
    """
    decisions = list(_of_net(config, n_in, autoencoder))
    return _with(config, decisions), decisions


def _with(config: Config, decisions: Sequence[Decision]) -> Config:
    for decision in decisions:
        config = with_value(config, decision.key, decision.value)
    return config


def _of_net(config: Config, n_in: int, autoencoder: bool) -> Iterator[Decision]:
    """Decides the method and the net."""
    if config.model.hidden == AUTO:
        code = max(1, min(CODE, n_in // 2))
        why = f"an autoencoder of {n_in} columns" if autoencoder else "a regression or a classifier"
        yield Decision("model.hidden", [32, code, 32] if autoencoder else UNITS, why)
    if config.method.name == AUTO:
        asked = _coordinates_asked_for(config)
        usual = "stochastic", "all layers have derivatives in their weights; it is the fastest"
        yield Decision("method.name", *(("mac", asked) if asked else usual))
    if config.model.activation == AUTO:
        for_codes, for_others = ("sigmoid", "it suits codes"), ("relu", "it suits tables and labels")
        yield Decision("model.activation", *(for_codes if autoencoder else for_others))
    if config.model.loss == AUTO:
        yield Decision("model.loss", "squared", "the targets are numbers")


def _of_run(config: Config, n_in: int, autoencoder: bool, shape: Sequence[int] | None) -> Iterator[Decision]:
    """Decides all other keys of a config that has a method and a net."""
    model = config.model
    if shape and not model.image and model.reads_images:
        yield Decision("model.image", [*shape], AS_THE_DATA)
    if config.start.method == AUTO:
        yield Decision("start.method", *_start(config))
    if config.stochastic.stream and "run.max_iterations" not in given(config):
        yield Decision("run.max_iterations", config.stochastic.records, "a pass over a piece of a stream")
    if config.method.name != "mac":
        return
    if model.sites == AUTO:
        sites = [site for _, _, site in model.layers()]
        usual = set(sites) == {"after"}
        yield Decision("model.sites", *(("after", IN_THE_PAPER) if usual else (sites, "what half steps can fit")))
    yield from _of_penalty(config, n_in, autoencoder)
    if config.method.acceleration == AUTO:
        yield Decision("method.acceleration", *_acceleration(config, autoencoder))


def _acceleration(config: Config, autoencoder: bool) -> tuple[str, str]:
    """Returns method.acceleration and the reason."""
    if config.penalty.stop == "gradient" and config.w_step.schedule != "ring":
        return "joint", "a path of stationary points"
    return ("momentum", "for numbers") if _kind(config, autoencoder) == "numbers" else ("none", IN_THE_PAPER)


def _start(config: Config) -> tuple[str, str]:
    """Returns start.method and the reason: random weights, unless the net or its method has a start of its own."""
    if any(kind == "rbf" for _, kind, _ in config.model.layers()):
        return "pca", "centres are found from codes of principal components"
    if config.method.name == "stochastic" and "start.range" not in given(config):
        return "stochastic", ITS_OWN
    if config.method.name == "mac" and (code := _code_of(config)):
        asked = any(key.startswith("start.") and key != "start.seed" for key in given(config))
        return ("uniform", "any net") if asked else (CODES[code], "codes that are found from the data")
    return "uniform", IN_THE_PAPER


def in_short(decisions: Sequence[Decision]) -> str:
    """Writes the decisions in one line, for the head of the table; "" if all of them are the usual ones."""
    unusual = [d for d in decisions if d.why not in (IN_THE_PAPER, AS_THE_DATA, AS_USUAL, ITS_OWN)]
    by_kind = [d for d in unusual if d.key.startswith("penalty.") and d.why.startswith("for ")]
    values = [_short(d) for d in unusual if d not in by_kind and d.key != "method.acceleration"]
    values += dict.fromkeys(f"penalty {d.why}" for d in by_kind)
    return f"chosen: {', '.join(values)} (--explain says why)" if values else ""


def _short(decision: Decision) -> str:
    """Writes the name of a key and its value, and where the method is full MAC also the reason."""
    text = f"{decision.key.removesuffix('.name').removesuffix('.method').split('.')[-1]} {toml(decision.value)}"
    return f"{text}, for {decision.why}" if decision.key == "method.name" and decision.value == "mac" else text


def explained(decisions: Sequence[Decision]) -> list[str]:
    """Writes the decisions as lines of a config that fix these values, each with its reason."""
    if not decisions:
        return ["every key has a value: nothing was chosen"]
    lines: list[str] = []
    for table in dict.fromkeys(d.key.split(".")[0] for d in decisions):
        lines.append(f"[{table}]")
        keys = [(d.key.split(".")[1], d) for d in decisions if d.key.startswith(f"{table}.")]
        lines += [f"{f'{key} = {toml(d.value)}':27s} # {d.why}" for key, d in keys]
    return lines


def of_half_steps(key: str) -> bool:
    """Tells whether only methods with coordinates read the key, "table.key"."""
    return key in COORDINATES or key.partition(".")[0] in COORDINATES


def _coordinates_asked_for(config: Config) -> str:
    """Says which setting of the config only methods with coordinates can take; "" if there is none."""
    activations = config.model.activation if isinstance(config.model.activation, list) else [config.model.activation]
    for word in activations:
        if word not in (AUTO, *get_args(Activation)) and word not in extensions("macmpi.activations"):
            return f'"{word}" is a layer {"that only half steps train" if word in LAYERS else "of another package"}'
    if key := next(filter(of_half_steps, given(config)), ""):
        return f"{key} is given"
    start = config.start.method
    return f'start.method = "{start}" begins with coordinates' if start in ("elastic_embedding", "file") else ""


# --- [penalty] and acceleration of full MAC, by the loss -------------------------------------------------------------


SLOWLY = {"factor": 2.0, "mu_every": 10, "patience": 25}
"""The schedule of full MAC for regressions and classifiers."""

PATH = {"mu0": 1.0, "factor": 2.0, "ridge_scale": "objective"}
"""The schedule that follows stationary points of E_Q + ridge.  Half steps take about mu iterations to reach one."""

BY_COLUMNS = {"labels": (1e-3, 5e-3, 0.15), "numbers": (0.03, 0.1, 1.0)}
"""For labels and for numbers: the first mu; the number that is multiplied by the columns of X to give the ridge of the
objective, because a unit that reads more columns has smaller weights; and the upper limit of that ridge."""

FEW = "fewer centres than points"

BITS = {"mu0": 0.01, "factor": 2.0, "ridge": 1.0}
"""The schedule of nets with a code of bits.  It begins with a small mu because with a large one no bit changes."""

BASIS = {"factor": 2.0}
"""The schedule of nets with few radial basis functions.  While mu is small, codes move to where few functions cannot
follow, and the error rises; while it is large, codes hardly move.  Small steps leave time for the values between."""


def _of_penalty(config: Config, n_in: int, autoencoder: bool) -> Iterator[Decision]:
    """Decides each key of [penalty] that is "auto".  n_in: columns of X."""
    penalty, kind = config.penalty, _kind(config, autoencoder)
    values: dict[str, Any] = PAPER_DEFAULTS | {"bits": BITS, FEW: BASIS}.get(kind, {})
    if kind in BY_COLUMNS:
        mu0, ridge, most = BY_COLUMNS[kind]
        values = {"mu0": mu0, **SLOWLY, "ridge": min(ridge * n_in, most), "ridge_scale": "objective"}
    why = f"for {kind}" if kind else AS_USUAL
    if penalty.stop == "gradient":
        joint = config.method.acceleration == "joint" or _acceleration(config, autoencoder)[0] == "joint"
        values, why = values | PATH | ({"factor": 10.0} if joint else {}), "for a path of stationary points"
    for key, value in values.items():
        if getattr(penalty, key) == AUTO:
            yield Decision(f"penalty.{key}", min(value, penalty.mu_max) if key == "mu0" else value, why)


def _kind(config: Config, autoencoder: bool) -> str:
    """Returns which schedule a config gets: "bits", `FEW`, "labels" or "numbers"; "" for the paper's values.

    The paper's values are for other penalties than the quadratic one with the usual stop, for a config that gives a
    tolerance or selects centres, and for a net without coordinates.  Autoencoders, and nets with layers that are no
    activations, get them too, unless they begin with bits or have few basis functions.
    """
    penalty, layers, asked = config.penalty, config.model.layers(), given(config)
    usual = (
        penalty.method == "quadratic"
        and penalty.stop == "validation"
        and penalty.metric == "identity"
        and "penalty.tolerance" not in asked
        and "penalty.tolerance_decay" not in asked
        and (config.selection.criterion == "none" or bool(config.selection.sizes))
        and any(site != "none" for _, _, site in layers)
    )
    if usual and _code_of(config):
        return "bits"
    centred = [kind for _, kind, _ in layers if kind in ("rbf", "quantise")]
    if usual and "rbf" in centred and config.model.each("centres", len(centred))[centred.index("rbf")] != "points":
        return FEW
    if autoencoder or not usual or any(kind not in get_args(Activation) for _, kind, _ in layers):
        return ""
    return "labels" if config.model.loss == "cross_entropy" else "numbers"


def _code_of(config: Config) -> str:
    """Returns the word of the first hidden layer where its units are bits, a key of `CODES`; otherwise ""."""
    kind = config.model.layers()[0][1]
    return kind if kind in CODES else ""
