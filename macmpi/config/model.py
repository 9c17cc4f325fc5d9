"""The table [model] of a config: the layers of a net, their activations and sites, the output, loss and precision."""

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
"""Words of `activation` whose units are a code of 0 and 1, and the start that "auto" chooses where they come first."""
FILES = {
    **dict.fromkeys(("sigmoid", "tanh", "relu", "leaky_relu", "softmax", "linear"), "affine"),
    "rbf": "fitted",
    **dict.fromkeys(("quantise", *CODES), "codes"),
    **dict.fromkeys(FITTED, "fitted"),
}
"""For each word of `activation` the file of macmpi/nets/layers that makes the maps of such a layer."""

LAYERS = tuple(FILES)
NOT_OF_IMAGES = tuple(word for word in FILES if word not in get_args(Activation))
"""The words of `activation` that a convolution cannot have."""

OWNERS = {
    "width": ("rbf", "kernel_ridge"),
    "centres": ("rbf", "quantise"),
    "words": ("quantise", "argmax"),
    "trees": ("forest", "boosted"),
    "depth": ("forest", "boosted"),
    "examples": ("kernel_ridge", "nearest_neighbours"),
}
"""For some keys of [model] the kinds of layers that read them: the key has one value for all these, or one for each."""


class LayerTable(Table):
    """A layer of `hidden` that the config describes by a table.

    file: the file of macmpi/nets/layers that makes its maps.
    refused: words that its activation cannot be.
    instead: text for a message that says what the layer is and which activations it can have.
    """

    file: ClassVar[str]
    refused: ClassVar[tuple[str, ...]] = ("softmax", *NOT_OF_IMAGES)
    instead: ClassVar[str]

    @property
    def given(self) -> int:
        """The number of states that the layer gives to the next one; the last state comes first."""
        return 1

    @classmethod
    def has_activation(cls, kind: str) -> bool:
        """Tells whether such a layer can have an activation."""
        return kind not in cls.refused and (kind in FILES or kind not in extensions("macmpi.layers"))


@dataclass(frozen=True)
class Convolution(LayerTable):
    """A convolution: each of its `channels` moves a kernel over the images of the layer before.

    kernel: height and width of the kernel, in pixels.
    stride: the step of the kernel, in pixels.
    upsample: above 1 the layer is a transposed convolution, whose images are this many times as high and wide.
    padding: "same" gives ceil(height / stride) rows of pixels; "none" only pixels whose patches lie in the image.
    pool, pooling: patches of pool x pool pixels become one number each, before the next layer reads them.
    groups: the input channels and the output channels are cut into this number of groups, and an output channel reads
        only its own group; as many groups as input channels make a depthwise convolution.
    image: height, width and channels of the images that the layer reads, if the layer before it is dense.
    With a softmax the channels are the words of a codebook, and the sum over pixels is a histogram of words.
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
    """A recurrent layer: h_t = s(V [h_{t-1}, x_t] + c) for t = 1, ..., T, where s is its activation.

    recurrent: the number of units.
    steps: T; the inputs are cut into T equal parts x_1, ..., x_T.  All steps share the weights V and c.
    states: the next layer reads the "last" state h_T, or "all" states h_T, h_1, ..., h_{T-1}; a further recurrent layer
        reads those step by step.
    memory: the recurrent weights begin as this multiple of the identity ("relu", "leaky_relu", "linear") or of an
        orthogonal matrix (other activations); 0 draws them like all other weights.
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
"""A value of `connections` that begins with this is a mask itself, read from its file and written as text."""

RULES = {"random": ("share", "groups", "seed"), "banded": ("width", "groups"), "local": ("width", "groups", "image")}
"""The words that `connections` may be, and the keys that each of them reads; any other value names a file."""


@dataclass(frozen=True)
class Sparse(LayerTable):
    """A sparse layer: each of its `units` reads only the inputs that `connections` choose for it.

    connections: "random" chooses a `share` of all inputs; "banded" chooses `width` neighbouring inputs, in evenly
        spaced windows; "local" chooses all channels of a square of width x width pixels, in a square grid; any other
        value is a file, .npy or .csv, of a matrix (units, inputs) that is not 0 where a weight exists.
    groups: the number of different masks, each shared by neighbouring units.  0 stands for one mask for each unit; with
        "local", for the masks of the largest square grid that has no more masks than there are units.
    seed: the seed of the random masks.
    image: height, width and channels of the images that "local" reads, if the layer before it is dense.
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
        """The number of different masks of the layer."""
        return self.groups or (math.isqrt(self.units) ** 2 if self.connections == "local" else self.units)


TABLES: dict[str, type] = {"recurrent": Recurrent, "connections": Sparse, "channels": Convolution}
"""The tables that a layer of `hidden` may be, each under the key that only this table has."""


Layer = PositiveInt | Convolution | Sparse | Recurrent


def units_of(layer: Layer) -> int:
    """Returns the number of units of a layer; for a convolution, its number of channels."""
    match layer:
        case Convolution(channels=units) | Recurrent(recurrent=units) | Sparse(units=units):
            return units
        case _:
            return layer


def file_of(layer: Any, kind: str) -> str:
    """Returns the file of macmpi/nets/layers that makes the maps of a layer; "" for a layer of another package.

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
"""For instance { after = 10 }: the first ten units of a layer have coordinates, after (or before) the activation."""


@dataclass(frozen=True)
class Model(Table):
    """The table [model]: the net, its loss and its precision.

    hidden: for each hidden layer its number of units, or a table (Convolution, Sparse, Recurrent).
    activation, sites: one word for all hidden layers, or a list with one for each; an entry of `sites` may also be
        `SomeUnits`.
    output: the activation of the output layer; readout: "dense", or a convolution as output layer.
    the keys of `OWNERS`: one value for all hidden layers that read the key, or a list with one for each.
    fitters: the algorithm that fits each hidden layer and the output layer; "auto" for a W-solver.
    image: the shape of the inputs; [] takes it from the data.
    tied: whether the decoder is the transpose of the encoder.
    skips: pairs of layers, of which the second also reads the outputs of the first; 0 stands for the inputs.
    joining: whether these outputs are added to the inputs of the second layer or appended to them.
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
        """Raises ValueError if only `count` units of hidden layer i cannot have coordinates.

        kind: the activation of the first hidden layer.
        """
        if i or self.skips or self.tied or self.tables or not LayerTable.has_activation(kind):
            raise ValueError(
                f"sites.{i} names a number of units, which goes with the first of dense hidden layers, an elementwise "
                'activation and no skips or tied weights: give a word there, as "after"'
            )
        if count > (units := self.units[0]):
            raise ValueError(f"sites.{i} names {many(count, 'unit')}, and that layer has {units}: give at most {units}")

    def _check_list(self, name: str, count: int, rest: str) -> None:
        """Raises ValueError if a key holds a list of another length than `count`.  rest: the end of the message."""
        given = getattr(self, name)
        if isinstance(given, list) and len(given) != count:
            raise ValueError(f"{name} has {many(len(given), 'entry')} but {rest}")

    @property
    def units(self) -> list[int]:
        """The number of units of each hidden layer (of channels, for a convolution), where `hidden` is not "auto"."""
        assert isinstance(self.hidden, list)
        return [units_of(layer) for layer in self.hidden]

    @property
    def tables(self) -> dict[int, LayerTable]:
        """The hidden layers that are tables, by their numbers from 0."""
        return {i: layer for i, layer in enumerate(self.hidden) if isinstance(layer, LayerTable)}

    @property
    def reads_images(self) -> bool:
        """Tells whether a hidden layer reads its inputs as images."""
        tables = self.tables.values()
        return any(isinstance(t, Convolution) or (isinstance(t, Sparse) and t.connections == "local") for t in tables)

    @property
    def sequence(self) -> int:
        """The number of steps where the first hidden layer is recurrent; otherwise 0."""
        first = self.tables.get(0)
        return first.steps if isinstance(first, Recurrent) else 0

    def convolves(self, number: int) -> bool:
        """Tells whether layer `number` is a convolution; the hidden layers count from 0, then the output layer."""
        return isinstance([*self.hidden, self.readout][number], Convolution)

    def by_layer(self, key: str) -> dict[int, Any]:
        """Returns the value of a key of `OWNERS` for each hidden layer that reads it, by the layer's number from 0."""
        readers = [i for i, (_, kind, _) in enumerate(self.layers()) if kind in OWNERS[key]]
        return dict(zip(readers, self.each(key, len(readers)), strict=True))

    def layers(self) -> list[tuple[int, str, str]]:
        """Lists (units, activation, site) of each hidden layer; site "some" where only some units have coordinates."""
        K = len(self.units)
        kinds = self.each("activation", K)
        sites = sites_for(kinds) if self.sites == "auto" else self.each("sites", K)
        return list(zip(self.units, kinds, map(_in_a_word, sites, self.units), strict=True))

    @property
    def some_units(self) -> dict[str, int]:
        """The entry of `sites` for a first layer of which only some units have coordinates, such as { after = 10 }.

        {} if all units have them, or none.
        """
        first: Any = self.sites[0]
        return first if self.layers()[0][2] == "some" else {}


def _in_a_word(site: Any, units: int) -> str:
    if not isinstance(site, dict):
        return str(site)
    ((word, count),) = site.items()
    return {0: "none", units: word}.get(count, "some")


def sites_for(kinds: list[str]) -> list[Site]:
    """Returns the site of each hidden layer, by their kinds, where `sites` is "auto".

    It is after each layer except radial basis functions, which are fitted with the next layer.  If the
    first layer is a code of bits, that layer alone has coordinates, because the Z-step can search only one code.
    """
    if kinds[0] in CODES:
        return ["after", *["none"] * (len(kinds) - 1)]  # type: ignore[list-item]
    return ["none" if kind == "rbf" else "after" for kind in kinds]
