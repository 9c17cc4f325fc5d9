"""[model]: the layers of a net, their activations and sites, the output layer, the loss, the precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from macmpi import many
from macmpi.config.bounds import Ge, Le, Len, Predicate
from macmpi.config.layer_tables import Convolution, Layer, Recurrent, Sparse, units_of
from macmpi.config.tables import PositiveInt, Table, Width, extensions

Activation = Literal["sigmoid", "tanh", "relu", "leaky_relu", "softmax", "linear"]
FITTED = ("forest", "boosted", "nearest_neighbours", "kernel_ridge")
LAYERS = (*get_args(Activation), "rbf", "quantise", "binary", *FITTED)
NOT_OF_IMAGES = ("rbf", "quantise", "binary", *FITTED)
"""A convolution cannot have these in place of an activation."""

NOT_ELEMENTWISE = ("softmax", *NOT_OF_IMAGES)
"""A sparse or a recurrent layer cannot have these in place of an activation."""

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
class Model(Table):
    """Hidden layers, their activations, where their coordinates sit; the output layer; the loss; the precision.

    `hidden` has a number of units, or a table (Convolution, Sparse, Recurrent), for each hidden layer; `readout` says
    whether the output layer is dense or a convolution; `tied` that the decoder is the transpose of the encoder;
    `image` is the shape of the inputs, [] as the data have it. `activation` and `sites` hold one word for all hidden
    layers or a list with one for each; `width` and `centres` one for all layers of radial basis functions (and
    quantisers) or one for each of them. `fitters` name the algorithm of each hidden layer and of the output layer,
    where it is no W-solver. `skips` have pairs of layers: what the first of a pair gives also joins what the second
    reads, by `joining`; 0 are the inputs.
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
    skips: list[Annotated[list[Annotated[int, Ge(0)]], Len(2, 2)]] = field(default_factory=list)
    joining: Literal["add", "append"] = "add"

    def __post_init__(self) -> None:
        if self.hidden == "auto":
            for name in ("activation", "sites", "width", "centres", "fitters", "skips"):
                if isinstance(getattr(self, name), list) and (getattr(self, name) or name != "skips"):
                    what = "names layers" if name == "skips" else "is a list, one for each layer"
                    raise ValueError(f"{name} {what}: give hidden too, as in hidden = [100]")
            return
        for name in ("activation", "sites"):
            given = getattr(self, name)
            if isinstance(given, list) and len(given) != len(self.hidden):
                raise ValueError(
                    f"{name} has {many(len(given), 'entry')} but there {many(len(self.hidden), 'hidden layer', 'is')}: "
                    "give one word for all of them, or one for each"
                )
        layers = len(self.hidden) + 1
        if isinstance(self.fitters, list) and len(self.fitters) != layers:
            raise ValueError(
                f"fitters has {many(len(self.fitters), 'entry')} but there are {layers} layers with the output layer: "
                'give one word for each, "auto" where a W-solver fits it'
            )
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
        if self.skips and (self.tied or any(self.recurrences)):
            raise ValueError(
                "skips join layers with weights of their own: leave skips out, or tied and recurrent layers"
            )
        kinds = [kind for _, kind, _ in self.layers()]
        for kind, cell in zip(kinds, self.recurrences, strict=True):
            if kind in NOT_ELEMENTWISE and cell:
                raise ValueError(f'activation = "{kind}" where a layer is recurrent: use an elementwise one, as "tanh"')
        for kind, layer in zip([*kinds, self.output], [*self.convolutions, self.readout], strict=True):
            if layer not in (None, "dense") and (kind in NOT_OF_IMAGES or kind in extensions("macmpi.layers")):
                raise ValueError(
                    f'activation = "{kind}" where a layer is a convolution, which has an elementwise activation or a '
                    'softmax: use "sigmoid", "tanh", "relu", "leaky_relu", "linear" or "softmax" there'
                )
        for kind, sparse in zip(kinds, self.sparse, strict=True):
            if kind in NOT_ELEMENTWISE and sparse is not None:
                raise ValueError(f'activation = "{kind}" where a layer is sparse: use an elementwise one, as "relu"')
        if self.readout != "dense" and self.readout.pool > 1:
            raise ValueError("readout: no layer reads its pool; use stride")
        for name, owners in (("width", ("rbf", "kernel_ridge")), ("centres", ("rbf", "quantise"))):
            given, count = getattr(self, name), sum(kind in owners for kind in kinds)
            if isinstance(given, list) and len(given) != count:
                raise ValueError(
                    f"{name} has {many(len(given), 'entry')} but {count} of the hidden layers have {name}: "
                    f"give one for all of them, or one for each ({', '.join(owners)})"
                )

    @property
    def units(self) -> list[int]:
        """Units of each hidden layer, of a convolution its channels, once they are decided."""
        assert isinstance(self.hidden, list)
        return [units_of(layer) for layer in self.hidden]

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

    @property
    def sparse(self) -> list[Sparse | None]:
        """The sparse layer that each hidden layer is, or None."""
        assert isinstance(self.hidden, list)
        return [layer if isinstance(layer, Sparse) else None for layer in self.hidden]

    @property
    def reads_images(self) -> bool:
        """Some layer sees what it reads as images."""
        return any(self.convolutions) or any(layer and layer.connections == "local" for layer in self.sparse)

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
