"""[model]: the layers of a net, their activations and sites, the output layer, the loss, the precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge, Le, Len, Predicate

from macmpi.config.sparse import Sparse
from macmpi.config.tables import STRICT, PositiveInt, Width, extensions

Activation = Literal["sigmoid", "tanh", "relu", "leaky_relu", "softmax", "linear"]
FITTED = ("forest", "boosted", "kernel_ridge")
LAYERS = (*get_args(Activation), "rbf", "quantise", "binary", *FITTED)
NOT_OF_IMAGES = ("softmax", "rbf", "quantise", "binary", *FITTED)
"""A convolution or a sparse layer cannot have these in place of an activation."""

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
    pool x pool pixels become one number each, by their `pooling`, before the next layer reads them.  image: height,
    width and channels of what the layer reads, where a dense layer is before it.
    """

    channels: PositiveInt
    kernel: PositiveInt = 3
    stride: PositiveInt = 1
    upsample: PositiveInt = 1
    padding: Literal["same", "none"] = "same"
    pool: PositiveInt = 1
    pooling: Literal["max", "average"] = "max"
    image: list[PositiveInt] = field(default_factory=list)
    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if self.upsample > 1 and (self.stride > 1 or self.padding != "same"):
            raise ValueError('upsample goes with stride = 1 and padding = "same"')
        if len(self.image) not in (0, 3):
            raise ValueError("image is a height, a width and channels, as in image = [4, 4, 16]")


@dataclass(frozen=True)
class Model:
    """Hidden layers, their activations, where their coordinates sit; the output layer; the loss; the precision.

    `hidden` has a number of units, or a table (Convolution, Sparse), for each hidden layer; `readout` says whether the
    output layer is dense or a convolution; `image` is the shape of the inputs, [] as the data have it.
    `activation` and `sites` hold one word for all hidden layers or a list with one for each; `width` and `centres` one
    for all layers of radial basis functions (and quantisers) or one for each of them.  `fitters` name the algorithm of
    each hidden layer and of the output layer, where it is no W-solver.  `skips` have pairs of layers: what the first of
    a pair gives also joins what the second reads, by `joining`; 0 are the inputs.
    """

    hidden: Annotated[list[PositiveInt | Convolution | Sparse], Len(1)] | Literal["auto"] = "auto"
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
    skips: list[Annotated[list[Annotated[int, Ge(0)]], Len(2, 2)]] = field(default_factory=list)
    joining: Literal["add", "append"] = "add"
    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if self.hidden == "auto":
            for name in ("activation", "sites", "width", "centres", "fitters", "skips"):
                if isinstance(getattr(self, name), list) and getattr(self, name):
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
        for first, last in self.skips:
            if not first + 1 < last <= layers:
                raise ValueError(
                    f"skips has [{first}, {last}]: a layer, 0 for the inputs, and one at least two later, at most "
                    f"{layers}, the output layer"
                )
        kinds = [kind for _, kind, _ in self.layers()]
        for kind, layer in zip([*kinds, self.output], [*self.convolutions, self.readout], strict=True):
            if kind in NOT_OF_IMAGES and layer not in (None, "dense"):
                raise ValueError(f'a convolution has an elementwise activation, not "{kind}"')
        for kind, sparse in zip(kinds, self.sparse, strict=True):
            if kind in NOT_OF_IMAGES and sparse is not None:
                raise ValueError(f'a sparse layer has an elementwise activation, not "{kind}"')
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
        sizes = {Convolution: "channels", Sparse: "units"}
        return [layer if isinstance(layer, int) else getattr(layer, sizes[type(layer)]) for layer in self.hidden]

    @property
    def convolutions(self) -> list[Convolution | None]:
        """The convolution that each hidden layer is, or None."""
        assert isinstance(self.hidden, list)
        return [layer if isinstance(layer, Convolution) else None for layer in self.hidden]

    @property
    def sparse(self) -> list[Sparse | None]:
        """The sparse layer that each hidden layer is, or None."""
        assert isinstance(self.hidden, list)
        return [layer if isinstance(layer, Sparse) else None for layer in self.hidden]

    @property
    def reads_images(self) -> bool:
        """Some layer sees what it reads as images."""
        return any(self.convolutions) or any(layer and layer.connections == "local" for layer in self.sparse)

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


def sites_for(kinds: list[str]) -> list[Site]:
    """Sites of layers of these kinds: after each, but for those of radial basis functions, which the next one trains.

    Of a net whose first layer gives bits these alone are coordinates: its Z-step searches one code.
    """
    if kinds[0] == "binary":
        return ["after", *["none"] * (len(kinds) - 1)]  # type: ignore[list-item]
    return ["none" if kind == "rbf" else "after" for kind in kinds]
