"""[model]: the layers of a net, which may be tables, their activations and sites, the output, loss and precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge, Gt, Le, Len, Lt, Predicate

from macmpi import many
from macmpi.config.tables import NotNegative, PositiveInt, Table, Width, extensions

Activation = Literal["sigmoid", "tanh", "relu", "leaky_relu", "softmax", "linear"]
FITTED = ("forest", "boosted", "nearest_neighbours", "kernel_ridge")
CODES = {"binary": "itq", "argmax": "staged"}
"""Words of `activation` of first layers whose units are 0 or 1, a code that a Z-step searches: the start by "auto"."""
FILES = {
    **dict.fromkeys(("sigmoid", "tanh", "relu", "leaky_relu", "softmax", "linear"), "affine"),
    "rbf": "fitted",
    **dict.fromkeys(("quantise", *CODES), "codes"),
    **dict.fromkeys(FITTED, "fitted"),
}
"""The words of `activation` -> the file of macmpi/nets/layers that makes the maps of a layer of units."""

LAYERS = tuple(FILES)
NOT_OF_IMAGES = tuple(word for word in FILES if word not in get_args(Activation))
"""A convolution cannot have these in place of an activation."""

OWNERS = {
    "width": ("rbf", "kernel_ridge"),
    "centres": ("rbf", "quantise"),
    "words": ("quantise", "argmax"),
    "trees": ("forest", "boosted"),
    "depth": ("forest", "boosted"),
    "examples": ("kernel_ridge", "nearest_neighbours"),
}
"""Keys that hidden layers of these words read.  A key may hold one value for all of them, or a list of one for each."""


class LayerTable(Table):
    """A layer of `hidden` that is a table: macmpi/nets/layers/`file`.py makes its maps.

    refused: words that it cannot have for an activation; instead: what it is, and which activation it has.
    """

    file: ClassVar[str]
    refused: ClassVar[tuple[str, ...]] = ("softmax", *NOT_OF_IMAGES)
    instead: ClassVar[str]

    @property
    def given(self) -> int:
        """The number of states that it gives, the last one first."""
        return 1

    @classmethod
    def has_activation(cls, kind: str) -> bool:
        """Tells whether such a layer can have an activation."""
        return kind not in cls.refused and (kind in FILES or kind not in extensions("macmpi.layers"))


@dataclass(frozen=True)
class Convolution(LayerTable):
    """A layer of `channels` images, each a kernel that moves over the images before, `stride` pixels at a time.

    upsample: above 1 a transposed convolution, whose images are this many times as high and wide.  padding: "same"
    gives ceil(height / stride) rows of pixels, "none" only pixels whose patches lie within the image.  pool: patches of
    pool x pool pixels become one number each, by their `pooling`, before the next layer reads them.  Under a softmax
    the channels are words of a codebook, and a sum of their shares is a histogram.  groups: channels that are read and
    channels that are given fall into this many runs, and one given reads those of its own run alone; as many as there
    are channels to read: a depthwise convolution.  image: height, width and channels of what the layer reads, where a
    dense layer is before it.
    """

    channels: PositiveInt
    kernel: PositiveInt = 3
    stride: PositiveInt = 1
    upsample: PositiveInt = 1
    padding: Literal["same", "none"] = "same"
    pool: PositiveInt = 1
    pooling: Literal["max", "average", "sum"] = "max"
    groups: PositiveInt = 1
    image: list[PositiveInt] = field(default_factory=list)

    file: ClassVar[str] = "convolution"
    refused: ClassVar[tuple[str, ...]] = NOT_OF_IMAGES
    instead: ClassVar[str] = (
        'a convolution, which has an elementwise activation or a softmax: use "sigmoid", "tanh", "relu", "leaky_relu", '
        '"linear" or "softmax" there'
    )

    def __post_init__(self) -> None:
        if self.upsample > 1 and (self.stride > 1 or self.padding != "same" or self.groups > 1):
            raise ValueError('upsample goes with stride = 1, padding = "same" and groups = 1')
        if self.channels % self.groups:
            raise ValueError(f"groups = {self.groups} does not divide channels = {self.channels}")
        if len(self.image) not in (0, 3):
            raise ValueError("image is a height, a width and channels, as in image = [4, 4, 16]")


@dataclass(frozen=True)
class Recurrent(LayerTable):
    """A layer of `recurrent` units whose state h_t = s(V [h_{t-1}, x_t] + c) reads a share of the inputs at each step.

    The inputs are `steps` equal parts x_1, ..., x_T, one after the other; one block of weights is that of all steps,
    and what the next layer reads is the last state, or h_T, h_1, ..., h_{T-1} where it gives all `states`; a recurrent
    layer reads these step by step.  memory: the recurrent weights begin as this share of the identity
    (of "relu", "leaky_relu", "linear") or of an orthogonal matrix; 0 draws them as all others.
    """

    recurrent: PositiveInt
    steps: Annotated[int, Ge(2), Lt(2**63)]
    memory: Annotated[float, Ge(0.0)] = 1.0
    states: Literal["last", "all"] = "last"

    file: ClassVar[str] = "recurrent"
    instead: ClassVar[str] = 'recurrent: use an elementwise one, as "tanh"'

    @property
    def given(self) -> int:
        return self.steps if self.states == "all" else 1


GIVEN = "given "
"""A mask that has been read from its file begins with this: its text follows."""

RULES = {"random": ("share", "groups", "seed"), "banded": ("width", "groups"), "local": ("width", "groups", "image")}
"""The words of `connections`, and the keys that each of them reads; all else is a file."""


@dataclass(frozen=True)
class Sparse(LayerTable):
    """A dense layer of `units`, each of which reads the inputs that `connections` name.

    connections: "random", a share of all inputs; "banded", `width` neighbouring inputs, windows evenly spaced; "local",
    squares of width x width pixels in a square grid, all channels of them; or a file of a matrix (units, inputs) that
    is not 0 where a weight exists, .npy or .csv.  groups: the number of different masks, each of neighbouring units; 0
    is one for each unit, or for "local" as many as a square grid can have.  seed: of "random".  image: height, width
    and channels of what "local" reads behind a dense layer.
    """

    units: PositiveInt
    connections: str
    share: Annotated[float, Gt(0.0), Le(1.0)] = 0.1
    width: PositiveInt = 5
    groups: NotNegative = 0
    seed: NotNegative = 0
    image: list[PositiveInt] = field(default_factory=list)

    file: ClassVar[str] = "masked"
    instead: ClassVar[str] = 'sparse: use an elementwise one, as "relu"'

    def __post_init__(self) -> None:
        if not self.connections:
            raise ValueError(f"connections is empty: {', '.join(map(repr, RULES))}, or a file")
        if self.groups > self.units:
            raise ValueError(f"groups = {self.groups} is more than the layer's {self.units} units")
        if self.connections == "local" and math.isqrt(self.groups) ** 2 != self.groups:
            raise ValueError(f"windows lie in a square grid: groups is 1, 4, 9, 16 or so on, not {self.groups}")
        if len(self.image) not in (0, 3):
            raise ValueError("image is a height, a width and channels, as in image = [4, 4, 16]")
        read = RULES.get(self.connections, ())
        for key in (key.name for key in fields(self) if key.name not in ("units", "connections", *read)):
            if getattr(self, key) not in (getattr(type(self), key, None), []):
                what = f'connections = "{self.connections}" reads {", ".join(read)}' if read else "a file says it all"
                raise ValueError(f"{what}: leave {key} out")

    @property
    def masks(self) -> int:
        """The number of different masks."""
        return self.groups or (math.isqrt(self.units) ** 2 if self.connections == "local" else self.units)


TABLES: dict[str, type] = {"recurrent": Recurrent, "connections": Sparse, "channels": Convolution}
"""The tables that a layer of `hidden` may be, each by the key that none of the others has."""


Layer = PositiveInt | Convolution | Sparse | Recurrent


def units_of(layer: Layer) -> int:
    """The number of units of a layer; of a convolution that of its channels."""
    match layer:
        case Convolution(channels=units) | Recurrent(recurrent=units) | Sparse(units=units):
            return units
        case _:
            return layer


def file_of(layer: Any, kind: str) -> str:
    """The file of macmpi/nets/layers that makes the maps of a layer; "" of a word that another package gives.

    layer: an entry of `hidden`, or `readout`; kind: the word of its activation.
    """
    return layer.file if isinstance(layer, LayerTable) else FILES.get(kind, "")


TRAINERS = ("kmeans", "subset", "points")
LOSSES = ("squared", "cross_entropy", "logistic", "poisson", "huber", "absolute")
FITTERS = (*FITTED, "linear_svm", "logistic")


def words(key: str) -> list[str]:
    """Lists the words that a key of [model] may say: activation, centres, fitters or loss."""
    if key == "loss":
        return [*LOSSES, *extensions("macmpi.losses")]
    if key == "activation":
        return [*LAYERS, *extensions("macmpi.layers"), *extensions("macmpi.activations")]
    if key == "fitters":
        return ["auto", *FITTERS, *extensions("macmpi.fitters")]
    return [*TRAINERS, *extensions("macmpi.trainers")]


LayerName = Annotated[str, Predicate(lambda word: word in LAYERS or word in words("activation"))]
HiddenName = Annotated[str, Predicate(lambda word: word == "auto" or word in LAYERS or word in words("activation"))]
Trainer = Annotated[str, Predicate(lambda word: word in TRAINERS or word in words("centres"))]
LossName = Annotated[str, Predicate(lambda word: word in ("auto", *LOSSES) or word in words("loss"))]
Fitter = Annotated[str, Predicate(lambda word: word in ("auto", *FITTERS) or word in words("fitters"))]
Site = Literal["after", "before", "both", "none"]
SomeUnits = Annotated[dict[Literal["after", "before"], NotNegative], Len(1, 1)]
"""{ after = 10 }: the first ten units of a layer have coordinates, after or before the activation."""


@dataclass(frozen=True)
class Model(Table):
    """Hidden layers, their activations, where their coordinates sit; the output layer; the loss; the precision.

    `hidden` has a number of units, or a table (Convolution, Sparse, Recurrent), for each hidden layer; `readout` says
    whether the output layer is dense or a convolution; `tied` that the decoder is the transpose of the encoder;
    `image` is the shape of the inputs, [] as the data have it. `activation` and `sites` hold one word for all hidden
    layers or a list with one for each, of `sites` also `SomeUnits`; `width` and `centres` one for all layers of radial
    basis functions (and quantisers) or one for each of them. `fitters` name the algorithm of each hidden layer and of
    the output layer, where it is no W-solver. `skips` have pairs of layers: what the first of a pair gives also joins
    what the second reads, by `joining`; 0 are the inputs.
    """

    hidden: Annotated[list[Layer], Len(1)] | Literal["auto"] = "auto"
    activation: HiddenName | list[LayerName] = "auto"
    output: Activation = "linear"
    sites: Literal["auto", "after", "before", "both", "none"] | list[Site | SomeUnits] = "auto"
    width: Width | list[Width] = 1.0
    centres: Trainer | list[Trainer] = "kmeans"
    words: PositiveInt = 64
    fitters: Fitter | list[Fitter] = "auto"
    trees: PositiveInt = 50
    depth: Annotated[int, Ge(1), Le(14)] = 6
    examples: PositiveInt = 500
    loss: LossName = "auto"
    precision: Literal["float64", "float32"] = "float64"
    image: list[PositiveInt] = field(default_factory=list)
    readout: Convolution | Literal["dense"] = "dense"
    tied: bool = False
    skips: list[Annotated[list[Annotated[int, Ge(0)]], Len(2, 2)]] = field(default_factory=list)
    joining: Literal["add", "append"] = "add"

    def __post_init__(self) -> None:
        if self.hidden == "auto":
            for name in ("activation", "sites", "width", "centres", "fitters", "skips"):
                if isinstance(getattr(self, name), list) and (getattr(self, name) or name != "skips"):
                    what = "names layers" if name == "skips" else "is a list, one for each layer"
                    raise ValueError(f"{name} {what}: give hidden too, as in hidden = [100]")
            return
        layers = len(self.hidden) + 1
        for name in ("activation", "sites"):
            hidden = many(len(self.hidden), "hidden layer", "is")
            self._check_list(name, layers - 1, f"there {hidden}: give one word for all of them, or one for each")
        remedy = 'give one word for each, "auto" where a W-solver fits it'
        self._check_list("fitters", layers, f"there are {layers} layers with the output layer: {remedy}")
        if len(self.image) not in (0, 2, 3):
            raise ValueError("image is a height and a width, and channels where there are several: [28, 28, 3]")
        for i, (first, last) in enumerate(self.skips):
            if [first, last] in self.skips[:i]:
                raise ValueError(f"skips has [{first}, {last}] twice: give each pair once")
            if not first + 1 < last <= layers:
                raise ValueError(
                    f"skips has [{first}, {last}]: a layer, 0 for the inputs, and one at least two later, at most "
                    f"{layers}, the output layer"
                )
        if self.skips and (self.tied or any(isinstance(table, Recurrent) for table in self.tables.values())):
            raise ValueError(
                "skips join layers with weights of their own: leave skips out, or tied and recurrent layers"
            )
        kinds = [kind for _, kind, _ in self.layers()]
        for kind, layer in zip([*kinds, self.output], [*self.hidden, self.readout], strict=True):
            if isinstance(layer, LayerTable) and not layer.has_activation(kind):
                raise ValueError(f'activation = "{kind}" where a layer is {layer.instead}')
        if self.readout != "dense" and self.readout.pool > 1:
            raise ValueError("readout: no layer reads its pool; use stride")
        for i, site in enumerate(self.sites if isinstance(self.sites, list) else []):
            if isinstance(site, dict):
                self._check_some_units(i, max(site.values()), kinds[0])
        for name, owners in OWNERS.items():
            count = sum(kind in owners for kind in kinds)
            remedy = f"give one for all of them, or one for each ({', '.join(owners)})"
            self._check_list(name, count, f"{count} of the hidden layers have {name}: {remedy}")

    def _check_some_units(self, i: int, count: int, kind: str) -> None:
        """Raises ValueError where hidden layer i cannot have `count` coordinates; kind: activation of the first one."""
        if i or self.skips or self.tied or self.tables or not LayerTable.has_activation(kind):
            raise ValueError(
                f"sites.{i} names a number of units, which goes with the first of dense hidden layers, an elementwise "
                'activation and no skips or tied weights: give a word there, as "after"'
            )
        if count > (units := self.units[0]):
            raise ValueError(f"sites.{i} names {many(count, 'unit')}, and that layer has {units}: give at most {units}")

    def _check_list(self, name: str, count: int, rest: str) -> None:
        """Raises ValueError, with the rest of its message, for a list that has not `count` entries."""
        given = getattr(self, name)
        if isinstance(given, list) and len(given) != count:
            raise ValueError(f"{name} has {many(len(given), 'entry')} but {rest}")

    @property
    def units(self) -> list[int]:
        """The number of units of each hidden layer, of a convolution that of its channels, once they are decided."""
        assert isinstance(self.hidden, list)
        return [units_of(layer) for layer in self.hidden]

    @property
    def tables(self) -> dict[int, LayerTable]:
        """The hidden layers that are tables, by their numbers."""
        return {i: layer for i, layer in enumerate(self.hidden) if isinstance(layer, LayerTable)}

    @property
    def reads_images(self) -> bool:
        """Tells whether some hidden layer sees what it reads as images."""
        tables = self.tables.values()
        return any(isinstance(t, Convolution) or (isinstance(t, Sparse) and t.connections == "local") for t in tables)

    @property
    def sequence(self) -> int:
        """The number of parts of the data that the first layer reads one after the other; 0: none."""
        first = self.tables.get(0)
        return first.steps if isinstance(first, Recurrent) else 0

    def convolves(self, number: int) -> bool:
        """Tells whether a layer is a convolution: hidden layer `number`, or behind them the output layer."""
        return isinstance([*self.hidden, self.readout][number], Convolution)

    def by_layer(self, key: str) -> dict[int, Any]:
        """The value of a key of `OWNERS` for each hidden layer that reads it, by the layer's number."""
        readers = [i for i, (_, kind, _) in enumerate(self.layers()) if kind in OWNERS[key]]
        return dict(zip(readers, self.each(key, len(readers)), strict=True))

    def layers(self) -> list[tuple[int, str, str]]:
        """Lists (units, activation, site) of each hidden layer; "some" where not all units have coordinates."""
        K = len(self.units)
        kinds = self.each("activation", K)
        sites = sites_for(kinds) if self.sites == "auto" else self.each("sites", K)
        return list(zip(self.units, kinds, map(_in_a_word, sites, self.units), strict=True))

    @property
    def some_units(self) -> dict[str, int]:
        """The number of units of the first layer that have coordinates, by the place of these; {} where all or none."""
        first: Any = self.sites[0]
        return first if self.layers()[0][2] == "some" else {}


def _in_a_word(site: Any, units: int) -> str:
    if not isinstance(site, dict):
        return str(site)
    ((word, count),) = site.items()
    return {0: "none", units: word}.get(count, "some")


def sites_for(kinds: list[str]) -> list[Site]:
    """Sites of layers of these kinds: after each, but for those of radial basis functions, which the next one trains.

    Of a net whose first layer gives a code this alone has coordinates: its Z-step searches one code.
    """
    if kinds[0] in CODES:
        return ["after", *["none"] * (len(kinds) - 1)]  # type: ignore[list-item]
    return ["none" if kind == "rbf" else "after" for kind in kinds]
