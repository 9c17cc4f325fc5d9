"""[model]: the layers of a net, their activations and sites, the output layer, the loss, the precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge, Le, Len, Predicate

from macmpi.config.tables import STRICT, PositiveInt, Width, extensions

Activation = Literal["sigmoid", "tanh", "relu", "leaky_relu", "softmax", "linear"]
FITTED = ("forest", "boosted", "kernel_ridge")
LAYERS = (*get_args(Activation), "rbf", "quantise", "binary", *FITTED)
NOT_OF_IMAGES = ("rbf", "quantise", "binary", *FITTED)
"""A convolution cannot have these in place of an activation."""

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
Site = Literal["after", "before", "none"]


@dataclass(frozen=True)
class Convolution:
    """A layer of `channels` images, each a kernel that moves over the images before, `stride` pixels at a time.

    upsample: above 1 a transposed convolution, whose images are this many times as high and wide.  padding: "same"
    gives ceil(height / stride) rows of pixels, "none" only pixels whose patches lie within the image.  pool: patches of
    pool x pool pixels become one number each, by their `pooling`, before the next layer reads them.  Under a softmax
    the channels are words of a codebook, and a sum of their shares is a histogram.  image: height, width and channels
    of what the layer reads, where a dense layer is before it.
    """

    channels: PositiveInt
    kernel: PositiveInt = 3
    stride: PositiveInt = 1
    upsample: PositiveInt = 1
    padding: Literal["same", "none"] = "same"
    pool: PositiveInt = 1
    pooling: Literal["max", "average", "sum"] = "max"
    image: list[PositiveInt] = field(default_factory=list)
    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if self.upsample > 1 and (self.stride > 1 or self.padding != "same"):
            raise ValueError('upsample goes with stride = 1 and padding = "same"')
        if len(self.image) not in (0, 3):
            raise ValueError("image is a height, a width and channels, as in image = [4, 4, 16]")


@dataclass(frozen=True)
class Recurrent:
    """A layer of `recurrent` units whose state h_t = s(V [h_{t-1}, x_t] + c) reads a share of the inputs at each step.

    The inputs are `steps` equal parts x_1, ..., x_T, one after the other; one block of weights is that of all steps,
    and what the next layer reads is the last state.  memory: the recurrent weights begin as this share of the identity
    (of "relu", "leaky_relu", "linear") or of an orthogonal matrix; 0 draws them as all others.
    """

    recurrent: PositiveInt
    steps: Annotated[int, Ge(2)]
    memory: Annotated[float, Ge(0.0)] = 1.0
    __pydantic_config__: ClassVar[Any] = STRICT


TABLES: dict[str, type] = {"recurrent": Recurrent, "channels": Convolution}
"""The tables that a layer of `hidden` may be, each by the key that none of the others has."""


def table_meant(value: dict[str, Any]) -> type:
    """The table that a layer is meant to be, by its keys; a Convolution where none of them tells."""
    return next((kind for key, kind in TABLES.items() if key in value), Convolution)


Layer = PositiveInt | Convolution | Recurrent


@dataclass(frozen=True)
class Model:
    """Hidden layers, their activations, where their coordinates sit; the output layer; the loss; the precision.

    `hidden` has a number of units, or a table (a Convolution), for each hidden layer; `readout` says whether the output
    layer is dense or a convolution; `image` is the shape of the inputs, [] as the data have it.
    `activation` and `sites` hold one word for all hidden layers or a list with one for each; `width` and `centres` one
    for all layers of radial basis functions (and quantisers) or one for each of them.  `fitters` name the algorithm of
    each hidden layer and of the output layer, where it is no W-solver.
    """

    hidden: Annotated[list[Layer], Len(1)] | Literal["auto"] = "auto"
    activation: HiddenName | list[LayerName] = "auto"
    output: Activation = "linear"
    sites: Literal["auto", "after", "before", "none"] | list[Site] = "auto"
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
    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if self.hidden == "auto":
            for name in ("activation", "sites", "width", "centres", "fitters"):
                if isinstance(getattr(self, name), list):
                    raise ValueError(f"{name} is a list, one for each layer: give hidden too, as in hidden = [100]")
            return
        for name in ("activation", "sites"):
            given = getattr(self, name)
            if isinstance(given, list) and len(given) != len(self.hidden):
                raise ValueError(
                    f"{name} has {len(given)} entries but there are {len(self.hidden)} hidden layers: "
                    "give one word for all of them, or one for each"
                )
        layers = len(self.hidden) + 1
        if isinstance(self.fitters, list) and len(self.fitters) != layers:
            raise ValueError(
                f"fitters has {len(self.fitters)} entries but there are {layers} layers, the output layer among them: "
                'give one word for each, "auto" where a W-solver fits it'
            )
        if len(self.image) not in (0, 2, 3):
            raise ValueError("image is a height and a width, and channels where there are several: [28, 28, 3]")
        kinds = [kind for _, kind, _ in self.layers()]
        for kind, cell in zip(kinds, self.recurrences, strict=True):
            if kind in NOT_OF_IMAGES and cell:
                raise ValueError(f'a recurrent layer has an elementwise activation, not "{kind}"')
        for kind, layer in zip([*kinds, self.output], [*self.convolutions, self.readout], strict=True):
            if layer not in (None, "dense") and (kind in NOT_OF_IMAGES or kind in extensions("macmpi.layers")):
                raise ValueError(
                    f'activation = "{kind}" where a layer is a convolution, which has an elementwise activation or a '
                    'softmax: use "sigmoid", "tanh", "relu", "leaky_relu", "linear" or "softmax" there'
                )
        if self.readout != "dense" and self.readout.pool > 1:
            raise ValueError("readout: no layer reads its pool; use stride")
        for name, owners in (("width", ("rbf", "kernel_ridge")), ("centres", ("rbf", "quantise"))):
            given, count = getattr(self, name), sum(kind in owners for kind in kinds)
            if isinstance(given, list) and len(given) != count:
                raise ValueError(
                    f"{name} has {len(given)} entries but {count} hidden layers have {name}: "
                    f"give one for all of them, or one for each ({', '.join(owners)})"
                )

    @property
    def units(self) -> list[int]:
        """Units of each hidden layer, of a convolution its channels, once they are decided."""
        assert isinstance(self.hidden, list)
        return [_units(layer) for layer in self.hidden]

    @property
    def convolutions(self) -> list[Convolution | None]:
        """The convolution that each hidden layer is, or None."""
        assert isinstance(self.hidden, list)
        return [layer if isinstance(layer, Convolution) else None for layer in self.hidden]

    @property
    def recurrences(self) -> list[Recurrent | None]:
        """The recurrent layer that each hidden layer is, or None."""
        assert isinstance(self.hidden, list)
        return [layer if isinstance(layer, Recurrent) else None for layer in self.hidden]

    def each(self, name: str, count: int) -> list[Any]:
        """A key's entries, or its one word `count` times."""
        given = getattr(self, name)
        return list(given) if isinstance(given, list) else [given] * count

    def layers(self) -> list[tuple[int, str, str]]:
        """(units, activation, site) of each hidden layer."""
        K = len(self.units)
        kinds = self.each("activation", K)
        sites = sites_for(kinds) if self.sites == "auto" else self.each("sites", K)
        return list(zip(self.units, kinds, sites, strict=True))


def _units(layer: int | Convolution | Recurrent) -> int:
    match layer:
        case Convolution():
            return layer.channels
        case Recurrent():
            return layer.recurrent
        case _:
            return layer


def sites_for(kinds: list[str]) -> list[Site]:
    """Sites of layers of these kinds: after each, but for those of radial basis functions, which the next one trains.

    Of a net whose first layer gives bits these alone are coordinates: its Z-step searches one code.
    """
    if kinds[0] == "binary":
        return ["after", *["none"] * (len(kinds) - 1)]  # type: ignore[list-item]
    return ["none" if kind == "rbf" else "after" for kind in kinds]
