"""The tables of a config: every key with what it may be and its default.  Pydantic holds files to it (`config`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt, Predicate


class Table:
    """A table of a config: pydantic takes no other keys in it, no other types and no NaN."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    def value(self, key: str) -> Any:
        """A key's value."""
        return getattr(self, key)

    def each(self, key: str, count: int) -> list[Any]:
        """A key's values, one for each of `count`; those of a list as they are."""
        given = self.value(key)
        return list(given) if isinstance(given, list) else [given] * count


END, NOTHING = {"changes": "end"}, {"changes": "nothing"}
"""Metadata of keys that change when a run ends, or nothing in what it computes; the others change its result.

"alike": values with the same result as another one, which they stand next to.  A run that goes on is held to the keys
of its result; where its data and its files lie is told by what they hold.
"""

PositiveInt = Annotated[int, Ge(1), Lt(2**63)]
NotNegative = Annotated[int, Ge(0), Lt(2**63)]
Positive = Annotated[float, Gt(0.0)]
Width = Annotated[float, Ge(1e-9), Le(1e9)]
Seed = NotNegative
W_SOLVERS = ("gauss_newton", "hessian_free", "newton", "lbfgs", "ncg", "gradient", "sgd", "proximal")
Z_SOLVERS = ("gauss_newton", "alternating", "binary", "newton", "lbfgs", "ncg", "gradient")


def extensions(group: str) -> list[str]:
    """The names that other packages give by entry points of a group."""
    from importlib import metadata

    return sorted(entry.name for entry in metadata.entry_points(group=group))


def solvers(table: str) -> list[str]:
    """Lists the words that the solver of "w_step" or "z_step" may be."""
    own = {"w_step": W_SOLVERS, "z_step": Z_SOLVERS}[table]
    return ["auto", *own, *extensions(f"macmpi.{table[0]}_solvers")]


WSolver = Annotated[str, Predicate(lambda word: word in W_SOLVERS or word in solvers("w_step"))]
ZSolver = Annotated[str, Predicate(lambda word: word in Z_SOLVERS or word in solvers("z_step"))]


@dataclass(frozen=True)
class Data(Table):
    """The source, and how it is read.  source: a named set, a file, a folder of images (docs/data.md has them all).

    target: of a table, the column or columns to predict, of an .npy file the number of a column; "": the source's own,
    [] none.  weights: of a table the column that holds the weights of points.  ignore: columns of a table that are no
    inputs.  categories: columns of a table whose values are categories, whatever they are.  empty: texts of a table
    that stand for a missing value.  missing: what becomes of missing values.  image_size: height and width of the
    images of a folder, [] as they are.  classes: all labels that a stream may hold, [] those of its first piece.
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
        """The names of the targets; None where the source is to say."""
        if isinstance(self.target, str):
            return [self.target] if self.target else None
        return self.target


@dataclass(frozen=True)
class Loss(Table):
    """missing: NaN among the targets stands for an output that is not known.

    threshold: of "huber" and of losses of other packages, in units of the scaled targets; 0 stands for their own.
    """

    missing: bool = False
    threshold: Annotated[float, Ge(0.0), Le(1e9)] = 0.0


WeightStart = Literal["auto", "uniform", "stochastic", "pca", "itq", "neighbours", "greedy", "staged", "model"]
"""Starts that give weights; the others give coordinates."""


@dataclass(frozen=True)
class Start(Table):
    """Initial weights, then one gradient step; or initial coordinates, then a W-step.

    "uniform": in +-range / sqrt(fan-in); "stochastic": that of stochastic MAC, principal components or random features
    in each layer, and an output layer that fits, and no gradient step; "pca": principal components layer by layer;
    "itq": the same, those of a layer of bits rotated towards their signs; "neighbours": from there by a loss on
    neighbours; "greedy": each layer trained as an autoencoder of its inputs; "staged": filters and codebooks by
    model.centres, then the output layer, and no gradient step; "model": the weights of another run's model.h5.
    Coordinates of a code: "pca" and "itq" (where the net begins with radial basis functions), "elastic_embedding", or
    "file": of `coordinates`. "auto": "pca" with radial basis functions, "stochastic" for stochastic MAC without a
    range, "itq" and "staged" for bits and words of full MAC, else "uniform".
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
"""Values of [penalty] of autoencoders: mu grows tenfold once the error has settled, as in the paper, whose mu0 is 1."""


Size = Annotated[float, Ge(0.0), Le(1e12)]
FAR = 1e12
"""A bound as far from 0 is none."""

Bound = Annotated[float, Ge(-FAR), Le(FAR)]

SHAPING = ("l1", "group_lasso", "weights_min", "weights_max")
"""Keys of [penalty] that ask for more of the weights than to be small."""


@dataclass(frozen=True)
class Penalty(Table):
    """Quadratic penalty or augmented Lagrangian, the schedule of mu, and what is asked of the weights.

    ridge and the keys of `SHAPING` hold one value for the net, or a list with one for each layer with weights.
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
        """A key's value; where it is "auto", and nothing was decided, the paper's (mu0 at most mu_max)."""
        given = getattr(self, key)
        if given != "auto":
            return given
        return min(PAPER_DEFAULTS[key], self.mu_max) if key == "mu0" else PAPER_DEFAULTS[key]

    @property
    def shaping(self) -> list[str]:
        """The keys of `SHAPING` that ask for something."""
        usual = {key: getattr(Penalty, key) for key in SHAPING}
        return [key for key in SHAPING if any(value != usual[key] for value in self.each(key, 1))]


@dataclass(frozen=True)
class ZStep(Table):
    """The Z-solver finds the coordinates of each point.  A solver takes the keys that it knows.

    iterations: 0 for its own number.  minibatches: in an iteration each has its Z-step, and after it comes a W-step.
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
    """The W-solver finds the weights of each unit or segment.  A solver takes the keys that it knows.

    iterations, cg_iterations: 0 for its own number.  sums: "running": of minibatches (ZStep) each W-step sums over the
    points of its own again, and keeps the sums of the others.
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
    """The net is trained by auxiliary coordinates, or by a baseline; acceleration: of "mac".

    "feasible", "momentum": coordinates become feasible after each iteration; "joint": weights and coordinates move
    together.
    """

    name: Literal["auto", "mac", "stochastic", "alternating", "sgd", "adam", "cg", "lbfgs"] = "auto"
    acceleration: Literal["auto", "none", "feasible", "momentum", "joint"] = "auto"

    @property
    def nested(self) -> bool:
        """Tells whether it keeps no coordinates: it minimises the nested error, E1."""
        return self.name in NESTED


@dataclass(frozen=True)
class Stochastic(Table):
    """Stochastic MAC: minibatches that grow in `grow_every` epochs, averages, damping, iterations of an epoch.

    batch: "all": each step is of all points; then cg_iterations: of the direction of a step.  stream: the points are a
    piece of a stream, from which a start from the model goes on.
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
    """Backpropagation, for comparison: minibatches of "sgd" and "adam", line searches of "cg" and "lbfgs"."""

    batch: PositiveInt = 20
    rate: Positive = 0.01
    momentum: Annotated[float, Ge(0.0), Lt(1.0)] = 0.0
    patience: PositiveInt = 20


NESTED = ("stochastic", "sgd", "adam", "cg", "lbfgs")
HALF_STEPS = ("penalty", "z_step", "w_step")
"""Methods that keep no coordinates, and the tables that mean nothing to them."""


@dataclass(frozen=True)
class Selection(Table):
    """Layers are selected in every `every`-th iteration: numbers of centres, widths, ridges, or units of dense layers.

    sizes: candidates of each hidden layer, [] where it stays; without any, of centres 150, 175, ... and the number at
    the start.  epsilon2: for all layers or for each.
    """

    criterion: Literal["none", "aic", "bic", "mdl"] = "none"
    epsilon2: Positive | list[Positive] = field(default_factory=list)
    every: PositiveInt = 11
    sizes: list[list[PositiveInt]] = field(default_factory=list)
    widths: list[Width | list[Width]] = field(default_factory=list)
    ridges: list[Size | list[Size]] = field(default_factory=list)

    def epsilons(self, count: int) -> list[float]:
        """One for each of `count` nets; as they are if there are several."""
        given = self.epsilon2 if isinstance(self.epsilon2, list) else [self.epsilon2]
        return given * count if len(given) == 1 else given


@dataclass(frozen=True)
class Parallel(Table):
    """A rank holds all points ("replicated"; "node": in one copy that a node's ranks share), or its own ("sharded").

    rows: of sharded points are held in the file's own type where that is smaller, or are read whenever they are used.
    """

    data: Literal["replicated", "node", "sharded"] = field(
        default="replicated", metadata={"alike": {"node": "replicated"}}
    )
    rows: Literal["memory", "file"] = field(default="memory", metadata=NOTHING)

    @property
    def by_rows(self) -> bool:
        """Tells whether each rank reads rows of its own.  Collective: no."""
        return self.data == "sharded"


@dataclass(frozen=True)
class Run(Table):
    """Length of the run and what it leaves behind."""

    max_iterations: NotNegative = field(default=400, metadata=END)
    finish: bool | Literal["auto"] = "auto"
    refit: bool | Literal["auto"] = field(default="auto", metadata=END)
    threads: Annotated[int, Ge(1), Le(1024)] = 1
    checkpoint_minutes: Positive = field(default=10.0, metadata=NOTHING)
    keep_checkpoints: PositiveInt = field(default=3, metadata=NOTHING)
    deadline: Positive = field(default=1800.0, metadata=NOTHING)
