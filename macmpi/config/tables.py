"""The tables of a config: each key with its type and its default, by which pydantic checks files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt, Predicate


class Table:
    """The base of all tables of a config: pydantic refuses other keys, other types, NaN and infinity in them."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    def value(self, key: str) -> Any:
        """Returns the value of a key."""
        return getattr(self, key)

    def each(self, key: str, count: int) -> list[Any]:
        """Returns the values of a key: a list as it is, a single value `count` times."""
        given = self.value(key)
        return list(given) if isinstance(given, list) else [given] * count


END, NOTHING = {"changes": "end"}, {"changes": "nothing"}
"""Metadata of keys that change when a run ends, and of keys that do not change what it computes.

All other keys change the result, and a run that goes on must have the same values of them, or values that the metadata
of the key call "alike".  Paths of data and models may change, because a run compares the contents of these files.
"""

PositiveInt = Annotated[int, Ge(1), Lt(2**63)]
NotNegative = Annotated[int, Ge(0), Lt(2**63)]
Positive = Annotated[float, Gt(0.0)]
Width = Annotated[float, Ge(1e-9), Le(1e9)]
Seed = NotNegative
W_SOLVERS = ("gauss_newton", "hessian_free", "newton", "lbfgs", "ncg", "gradient", "sgd", "proximal")
Z_SOLVERS = ("gauss_newton", "alternating", "binary", "newton", "lbfgs", "ncg", "gradient")


def extensions(group: str) -> list[str]:
    """Lists the names that other packages add by entry points of a group, ascending."""
    from importlib import metadata

    return sorted(entry.name for entry in metadata.entry_points(group=group))


def solvers(table: str) -> list[str]:
    """Lists the words that the key `solver` of the table "w_step" or "z_step" may be."""
    own = {"w_step": W_SOLVERS, "z_step": Z_SOLVERS}[table]
    return ["auto", *own, *extensions(f"macmpi.{table[0]}_solvers")]


WSolver = Annotated[str, Predicate(lambda word: word in W_SOLVERS or word in solvers("w_step"))]
ZSolver = Annotated[str, Predicate(lambda word: word in Z_SOLVERS or word in solvers("z_step"))]


@dataclass(frozen=True)
class Data(Table):
    """The table [data]: the points, and how they are read.

    source: a named set, a file, or a folder of images (docs/data.md lists all kinds).
    target: the column or columns of a table to predict, or the number of a column of an .npy file; "" for the targets
        that the source has, [] for none.
    weights: the column of a table that holds the weights of the points.
    ignore: the columns of a table that are no inputs.
    categories: the columns of a table whose values are categories, even if they are numbers.
    empty: texts in a table that stand for a missing value.
    missing: whether missing values are imputed or refused.
    image_size: the height and width to which images of a folder are resized; [] leaves them as they are.
    classes: all labels that a stream may hold; [] for the labels of its first piece.
    validation: the share of the points that become validation points, where the source has none of its own.
    points: the number of training points that are kept; 0 for all.
    seed: the seed of the choice of points and of validation points; scale: how columns are scaled.
    """

    source: str = field(default="", metadata=NOTHING)
    target: str | list[str] = ""
    weights: str = ""
    ignore: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    missing: Literal["impute", "refuse"] = "impute"
    image_size: list[PositiveInt] = field(default_factory=list)
    classes: list[Any] = field(default_factory=list)
    validation: Annotated[float, Gt(0.0), Lt(1.0)] = 0.2
    points: NotNegative = 0
    seed: Seed = 0
    scale: Literal["auto", "none", "range", "standard", "robust"] = "auto"

    def __post_init__(self) -> None:
        if len(self.image_size) not in (0, 2):
            raise ValueError("image_size is a height and a width, as in image_size = [28, 28]")
        alike = any({type(one) for one in self.classes} <= kinds for kinds in ({str}, {bool}, {int, float}))
        finite = alike and all(isinstance(one, str) or abs(one) < float("inf") for one in self.classes)
        if self.classes and not (finite and len({*self.classes}) > 1):
            raise ValueError('classes are two labels or more, of one kind, as in classes = ["no", "yes"] or [0, 1]')

    @property
    def targets(self) -> list[str] | None:
        """The names of the target columns; None if the source has targets of its own."""
        if isinstance(self.target, str):
            return [self.target] if self.target else None
        return self.target


@dataclass(frozen=True)
class Loss(Table):
    """The table [loss].

    missing: whether NaN among the targets stands for an output that is not known.
    threshold: the threshold of "huber" and of losses of other packages, in units of the scaled targets; 0 for their
        default.
    """

    missing: bool = False
    threshold: Annotated[float, Ge(0.0), Le(1e9)] = 0.0


WeightStart = Literal["auto", "uniform", "stochastic", "pca", "itq", "neighbours", "greedy", "staged", "model"]
"""The starts that compute initial weights; the other starts compute initial coordinates."""


@dataclass(frozen=True)
class Start(Table):
    """The table [start]: initial weights, then one gradient step; or initial coordinates, then a W-step.

    Starts that compute weights:
    "uniform": random weights in +-range / sqrt(fan-in).
    "stochastic": the start of stochastic MAC, with principal components or random features in each layer and a fitted
        output layer; no gradient step follows.
    "pca": principal components, layer by layer.
    "itq": the same, but components before a layer of bits are rotated towards their signs.
    "neighbours": "itq", then descent of a loss on neighbouring points.
    "greedy": each layer is trained as an autoencoder of its inputs.
    "staged": filters and codebooks by model.centres, then the output layer; no gradient step follows.
    "model": the weights of another run's model.h5.
    Starts that compute coordinates of a code: "elastic_embedding"; "file", which reads `coordinates`; and "pca" and
    "itq" where the net begins with radial basis functions.
    "auto": "pca" with radial basis functions, "stochastic" for stochastic MAC without a range, "itq" and "staged" for
        bits and words of full MAC, otherwise "uniform".
    """

    method: Literal[WeightStart, "elastic_embedding", "file"] = "auto"
    range: Annotated[float, Ge(0.0), Le(1e6)] = 0.0
    gradient_step: bool = True
    width: Width = 10.0
    neighbours: Annotated[int, Ge(1), Lt(2**31)] = 100
    coordinates: str = ""
    model: str = ""
    weights: Literal["last", "best"] = "last"
    seed: Seed = 0

    def __post_init__(self) -> None:
        if (self.method == "model") != bool(self.model):
            raise ValueError('method = "model" and the path of a model.h5 in `model` go together')
        if (self.method == "file") != bool(self.coordinates):
            raise ValueError('method = "file" and the path of an .h5 or .npz file in `coordinates` go together')


PAPER_DEFAULTS: dict[str, Any] = {
    "mu0": 10.0,
    "factor": 10.0,
    "mu_every": 0,
    "patience": 0,
    "ridge": 0.01,
    "ridge_scale": "unit",
}
"""The values of [penalty] for autoencoders: mu grows as in the paper, but begins with 10 instead of 1."""


Size = Annotated[float, Ge(0.0), Le(1e12)]
FAR = 1e12
"""A bound of the weights as far from 0 as this is no bound."""

Bound = Annotated[float, Ge(-FAR), Le(FAR)]

SHAPING = ("l1", "group_lasso", "weights_min", "weights_max")
"""The keys of [penalty] that demand zeros among the weights or bounds on them."""


@dataclass(frozen=True)
class Penalty(Table):
    """The table [penalty]: quadratic penalty or augmented Lagrangian, the schedule of mu, and penalties of the weights.

    ridge and the keys of `SHAPING` have one value for the whole net, or a list with one for each layer whose weights a
    regression fits.
    """

    method: Literal["quadratic", "augmented_lagrangian"] = "quadratic"
    mu0: Annotated[float, Ge(1e-12), Le(1e16)] | Literal["auto"] = "auto"
    factor: Annotated[float, Gt(1.0)] | Literal["auto"] = "auto"
    mu_max: Annotated[float, Ge(1e-12), Le(1e16)] = 1e8
    mu_every: NotNegative | Literal["auto"] = "auto"
    patience: NotNegative | Literal["auto"] = "auto"
    stop: Literal["validation", "gradient"] = "validation"
    tolerance: Annotated[float, Ge(0.0), Lt(1.0)] = 0.01
    tolerance_decay: Annotated[float, Gt(0.0), Le(1.0)] = 1.0
    gradient_tolerance: Annotated[float, Gt(0.0)] = 0.1
    gradients: bool = False
    metric: Literal["identity", "variance", "curvature"] = "identity"
    ridge: Size | list[Size] | Literal["auto"] = "auto"
    ridge_scale: Literal["auto", "unit", "objective"] = "auto"
    ridge_until_mu: Annotated[float, Ge(0.0)] = 1e4
    l1: Size | list[Size] = 0.0
    group_lasso: Size | list[Size] = 0.0
    weights_min: Bound | list[Bound] = -FAR
    weights_max: Bound | list[Bound] = FAR

    def __post_init__(self) -> None:
        if self.mu0 != "auto" and self.mu_max < self.mu0:
            raise ValueError(f"mu_max = {self.mu_max:g} is below mu0 = {self.mu0:g}")

    def value(self, key: str) -> Any:
        """Returns the value of a key; for "auto" the value in `PAPER_DEFAULTS`, in which mu0 is at most mu_max."""
        given = getattr(self, key)
        if given != "auto":
            return given
        return min(PAPER_DEFAULTS[key], self.mu_max) if key == "mu0" else PAPER_DEFAULTS[key]

    @property
    def shaping(self) -> list[str]:
        """The keys of `SHAPING` that have another value than their default."""
        usual = {key: getattr(Penalty, key) for key in SHAPING}
        return [key for key in SHAPING if any(value != usual[key] for value in self.each(key, 1))]


@dataclass(frozen=True)
class ZStep(Table):
    """The table [z_step]: the solver that computes the coordinates of each point.  A solver reads the keys it knows.

    iterations: the number of iterations; 0 for the solver's own number.
    minibatches: the number of parts of the points; in an iteration each has its Z-step, followed by a W-step.
    """

    solver: ZSolver = "auto"
    iterations: NotNegative = 0
    minibatches: PositiveInt = 1
    relaxation: Annotated[float, Gt(0.0), Lt(2.0)] = 1.5
    enumerated: Annotated[int, Ge(0), Le(20)] = 10
    cg_iterations: PositiveInt = 4
    cg_tolerance: Annotated[float, Ge(0.0), Lt(1.0)] = 0.01
    cg_precision: Literal["double", "single"] = "double"


@dataclass(frozen=True)
class WStep(Table):
    """The table [w_step]: the solver that computes the weights of units or segments.  A solver reads the keys it knows.

    iterations, cg_iterations: the numbers of iterations; 0 for the solver's own numbers.
    sums: with "running" and several minibatches, a W-step computes the sums over its own minibatch again, and keeps
        those over the others.
    """

    solver: WSolver = "auto"
    linear_solver: Literal["closed_form", "same"] = "closed_form"
    schedule: Literal["units", "ring"] = "units"
    sums: Literal["whole", "running"] = "whole"
    iterations: NotNegative = 0
    relaxation: Annotated[float, Gt(0.0), Lt(2.0)] = 1.0
    cg_iterations: NotNegative = 0
    cg_tolerance: Annotated[float, Ge(0.0), Lt(1.0)] = 0.1
    cg_precision: Literal["double", "single"] = "double"
    tolerance: Annotated[float, Ge(0.0), Lt(1.0)] = 0.01
    batch: PositiveInt = 100
    rate: Positive = 0.1
    momentum: Annotated[float, Ge(0.0), Lt(1.0)] = 0.9


@dataclass(frozen=True)
class Method(Table):
    """The table [method]: how the net is trained, by auxiliary coordinates or by a baseline.

    acceleration: a key of the method "mac".  With "feasible" and "momentum" coordinates become feasible after each
        iteration; with "joint" weights and coordinates move together.
    """

    name: Literal["auto", "mac", "stochastic", "alternating", "sgd", "adam", "cg", "lbfgs"] = "auto"
    acceleration: Literal["auto", "none", "feasible", "momentum", "joint"] = "auto"

    @property
    def nested(self) -> bool:
        """Tells whether the method keeps no coordinates, and minimises the nested error E1."""
        return self.name in NESTED


@dataclass(frozen=True)
class Stochastic(Table):
    """The table [stochastic]: minibatches, averaging, damping and ridge of stochastic MAC.

    batch: the number of points of a minibatch, which in most nets is increased by the same number every `grow_every`
        epochs, up to batch_max.  With "all", each step takes all points, and cg_iterations says how accurately its
        direction is computed.
    records: the number of iterations into which an epoch is cut, each with a line of the table.
    stream: whether the points are a piece of a stream, on which the training of a model continues.
    """

    batch: PositiveInt | Literal["all"] = 250
    batch_max: PositiveInt = 1000
    grow_every: PositiveInt = 4
    averaging: Annotated[float, Ge(0.0), Lt(1.0)] | Literal["auto"] = "auto"
    damping: Annotated[float, Ge(0.0)] = 0.0
    ridge: Annotated[float, Ge(0.0), Le(1e12)] | Literal["auto"] = "auto"
    patience: PositiveInt = 20
    records: PositiveInt = 1
    parts: PositiveInt | Literal["auto"] = "auto"
    cg_iterations: NotNegative = 0
    stream: bool = False

    def __post_init__(self) -> None:
        if self.batch == "all" and self.stream:
            raise ValueError('stream = true trains on minibatches, and batch = "all" has none: leave one of them out')
        if self.batch != "all" and self.batch_max < self.batch:
            raise ValueError(f"batch_max = {self.batch_max} is below batch = {self.batch}: raise batch_max too")


@dataclass(frozen=True)
class Baseline(Table):
    """The table [baseline]: backpropagation, for comparison.

    batch, rate, momentum: keys of "sgd" and "adam".
    patience: a key of these, and of "cg" and "lbfgs".
    """

    batch: PositiveInt = 20
    rate: Positive = 0.01
    momentum: Annotated[float, Ge(0.0), Lt(1.0)] = 0.0
    patience: PositiveInt = 20


NESTED = ("stochastic", "sgd", "adam", "cg", "lbfgs")
HALF_STEPS = ("penalty", "z_step", "w_step")
"""The methods that keep no coordinates, and the tables that they do not read; they refuse l1, bounds and a ring."""


@dataclass(frozen=True)
class Selection(Table):
    """The table [selection]: sizes of the net, widths or ridges are selected in every `every`-th iteration.

    sizes: for each hidden layer the candidates for its number of units or centres, [] for a layer that keeps its
        number.  Without candidates, the numbers of centres 150, 175, ... and the number at the start are tried.
    widths, ridges: the candidates for these.
    epsilon2: the mean squared error of a model of low bias; one value, or one for each layer that is selected.
    """

    criterion: Literal["none", "aic", "bic", "mdl"] = "none"
    epsilon2: Positive | list[Positive] = field(default_factory=list)
    every: PositiveInt = 11
    sizes: list[list[PositiveInt]] = field(default_factory=list)
    widths: list[Width | list[Width]] = field(default_factory=list)
    ridges: list[Size | list[Size]] = field(default_factory=list)

    def epsilons(self, count: int) -> list[float]:
        """Returns epsilon2 for each of `count` nets: a single value `count` times, several as they are."""
        given = self.epsilon2 if isinstance(self.epsilon2, list) else [self.epsilon2]
        return given * count if len(given) == 1 else given


@dataclass(frozen=True)
class Parallel(Table):
    """The table [parallel]: where ranks hold the points.

    data: "replicated": each rank holds all points; "node": the ranks of a node share one copy of all points;
        "sharded": each rank holds only its own points.
    rows: where the rows of sharded points are: "memory" holds them, in the file's own type where that is smaller;
        "file" reads them each time they are used.
    """

    data: Literal["replicated", "node", "sharded"] = field(
        default="replicated", metadata={"alike": {"node": "replicated"}}
    )
    rows: Literal["memory", "file"] = field(default="memory", metadata=NOTHING)

    @property
    def by_rows(self) -> bool:
        """Tells whether each rank reads only its own rows of the data.  Collective: no."""
        return self.data == "sharded"


@dataclass(frozen=True)
class Run(Table):
    """The table [run]: when a run ends, how it ends, and which checkpoints it keeps."""

    max_iterations: NotNegative = field(default=400, metadata=END)
    finish: bool | Literal["auto"] = "auto"
    refit: bool | Literal["auto"] = field(default="auto", metadata=END)
    threads: Annotated[int, Ge(1), Le(1024)] = 1
    checkpoint_minutes: Positive = field(default=10.0, metadata=NOTHING)
    keep_checkpoints: PositiveInt = field(default=3, metadata=NOTHING)
    deadline: Positive = field(default=1800.0, metadata=NOTHING)
