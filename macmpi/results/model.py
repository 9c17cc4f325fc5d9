"""A trained net predicts, encodes, decodes and reconstructs; that needs no MPI."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from macmpi import UsageError, many, shown
from macmpi.data.checks import as_inputs, as_rows
from macmpi.data.dataset import Dataset
from macmpi.data.frames import OF_ARRAYS, Columns
from macmpi.data.scaling import Scaling
from macmpi.data.series import is_frame
from macmpi.data.wide import OfColumns, SparseRows
from macmpi.nets.chain import Chain
from macmpi.nets.layers import Map, is_basis
from macmpi.nets.losses.by_output import LINKS
from macmpi.results.card import NAME, Card
from macmpi.state import block_views
from macmpi.typing import Array

BATCH = 4096

MOST_DENSE = 1 << 22
"""At most this many numbers of sparse rows are made dense at a time."""

PREFERRED = ("refit", "best", "last")
"""A model predicts with the first of these weights that its file has."""

KEEP = "keep to the scaling of their own data; use those, or the same data.scale"
"""Words for weights that cannot be converted to another scaling."""


@dataclass(frozen=True, eq=False)
class Model:
    """Is a trained net f with the scaling of its data: arrays go in and come out in the data's own units.

    Models are equal if they predict the same: one net, the same weights, scaling, classes and columns.
    kept, in_use: its weights (P,) by name, "last", "best" on validation, "refit" on all points; and the name in use.
    classes: the label of each output; a classifier predicts these labels.
    one_dimensional: the targets were (N,), and so are the outputs.
    columns: the columns of the table that it was trained on, by whose names a table X is read; None for arrays.
    history: a record of each iteration, as in curve.jsonl; loaded models have none, but their card has it.
    link: the link of its loss, a key of LINKS, which turns outputs into means: probabilities ("sigmoid"), counts
        ("exp").
    attributes: the attributes of its file, with the model card as text.
    stream: arrays from which the next piece of a stream continues (methods/stochastic/method.py); {} for other models.
    """

    chain: Chain
    kept: Mapping[str, Array]
    scaling_x: Scaling
    scaling_y: Scaling
    autoencoder: bool
    classes: Array | None = None
    one_dimensional: bool = False
    columns: Columns | None = None
    history: list[dict[str, Any]] = field(default_factory=list, compare=False)
    link: str = "identity"
    in_use: str = "last"
    attributes: dict[str, Any] = field(default_factory=dict)
    stream: dict[str, Array] = field(default_factory=dict)

    @staticmethod
    def of(
        chain: Chain, kept: dict[str, Array], data: Dataset, link: str = "", card: str = "", history: Sequence[Any] = ()
    ) -> Model:
        """Makes a model of a net and its weights (P,) by name, trained on `data`; the first of PREFERRED are in use.

        link: "" is that of squared errors or, with classes, of cross-entropy; card: the card as text.
        """
        held: Mapping[str, Array] = kept
        if data.span is not None:
            held = OfColumns(data.span, kept, chain.block_shapes[0][0])
            held = held if isinstance(data.span.points, SparseRows) else dict(held)
            chain = chain.reading(len(data.scaling_x.shift))
        kind = data.scaling_x, data.scaling_y, data.autoencoder, data.classes, data.one_dimensional, data.columns
        link = link or ("identity" if data.classes is None else "softmax")
        attributes = {NAME: card} if card else {}
        return Model(chain, held, *kind, list(history), link, attributes=attributes).with_weights(None)

    @cached_property
    def weights(self) -> tuple[Array, ...]:
        """The weights in use, as a matrix for each block."""
        return block_views(self.kept[self.in_use].astype(np.float64, copy=False), self.chain.block_shapes)

    @property
    def read_as(self) -> Columns:
        """The columns of tables that continue this model's data; OF_ARRAYS if these are arrays."""
        return self.columns or OF_ARRAYS

    def __eq__(self, other: object) -> bool:
        return self._facts == other._facts if isinstance(other, Model) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._facts)

    @cached_property
    def _facts(self) -> tuple[Any, ...]:
        """The facts on which its predictions depend, as values that can be compared."""
        chain = self.chain
        net = json.dumps([[m.spec() for m in chain.maps], chain.sites, chain.numbers, chain.reads], sort_keys=True)
        arrays = (*self.weights, *(A for s in (self.scaling_x, self.scaling_y) for A in s.arrays.values()))
        classes = None if self.classes is None else tuple(self.classes.tolist())
        numbers = hashlib.sha256(b"".join(np.ascontiguousarray(A).tobytes() for A in arrays)).hexdigest()
        return net, numbers, self.autoencoder, classes, self.one_dimensional, self.columns, self.link

    def with_weights(self, name: str | None) -> Model:
        """Returns this net with its weights of this name in use; None: the first of PREFERRED.  Raises UsageError."""
        if name is None:
            name = next((known for known in PREFERRED if known in self.kept), "last")
        if not isinstance(name, str) or name not in self.kept:
            raise UsageError(f"it has the weights {', '.join(self.kept)}, not {shown(name)}")
        return self if name == self.in_use else replace(self, in_use=name)

    @property
    def task(self) -> str:
        """The net's task in a word: "classifier", "autoencoder" or "regression"."""
        return "classifier" if self.classes is not None else "autoencoder" if self.autoencoder else "regression"

    @property
    def sizes(self) -> str:
        """The sizes of its layers, for instance "64-32-8-32-64"."""
        return "-".join(map(str, self.chain.layer_sizes))

    def __repr__(self) -> str:
        return f"Model({self.sizes}, {sum(W.size for W in self.weights):,} weights)"

    @cached_property
    def card(self) -> Card | None:
        """The model card: data, config, curve, scores, machine.  Older files and start.h5 have none.

        Raises UsageError if it is damaged.  Collective: no.
        """
        text = self.attributes.get(NAME)
        try:
            return Card.of_json(text) if text else None
        except (ValueError, RecursionError) as error:
            why = " ".join((str(error) or "nested too deeply").split())
            raise UsageError(f"the model card is damaged: {why:.200}") from None

    @property
    def ended(self) -> str:
        """Why training ended, as its card says, which is not checked here; "" without a card."""
        text = self.attributes.get(NAME)
        return str(json.loads(text)["training"]["ended"]) if text else ""

    @property
    def code(self) -> int:
        """The number of maps up to the code: the hidden layer with the fewest units or, of words, the fewest bits."""
        return code_end(self.chain)

    def predict(self, X: Any) -> Array:
        """Computes f(X) through the link: (N, D) -> (N, L), or (N,) if the targets were, or a classifier's labels (N,).

        X: an array, or a table (pandas, polars, pyarrow).  If D = 1, X may be (N,); else X (D,) is one point.
        Raises UsageError if X has other columns.  Collective: no.
        """
        F = self._run(X, 0, len(self.chain.maps), "X")
        return self._shaped(F) if self.classes is None else self.classes[F.argmax(axis=1)]

    def probabilities(self, X: Any) -> Array:
        """Computes the probability of each class, (N, D) -> (N, classes); with several outputs of yes or no, (N, L)."""
        self.check_action("probabilities")
        F = self._run(X, 0, len(self.chain.maps), "X")
        return F if self.classes is None else LINKS["softmax"](F)

    def reconstruct(self, X: Any) -> Array:
        """Computes an autoencoder's outputs for X: (N, D) -> (N, D), or (N,) if it was trained on (N,)."""
        self.check_action("reconstruct")
        return self.predict(X)

    def check_action(self, name: str) -> None:
        """Raises UsageError if this method makes no sense for the net, whatever the data.  Collective: no."""
        if name == "probabilities" and self.classes is None and self.link != "sigmoid":
            raise UsageError("this model is no classifier: use predict")
        if name == "bits" and not self.chain.codes:
            raise UsageError('this model has no layer of bits or words: use encode, or train one with a "binary" layer')
        if name == "reconstruct" and not self.autoencoder:
            raise UsageError("this model is not an autoencoder: use predict")

    def encode(self, X: Any) -> Array:
        """Computes the codes of X: (N, D) -> (N, H_code)."""
        return self._run(X, 0, self.code, "X")

    def bits(self, X: Any) -> Array:
        """Computes the codes of a layer of bits, eight to a byte (np.packbits): (N, D) -> (N, ceil(H / 8)), uint8.

        Words become their numbers in binary, the highest bit first.  Raises UsageError if it has no such layer.
        """
        self.check_action("bits")
        code = self.chain.codes[0]
        return np.packbits(code.bits(self._run(X, 0, self.chain.maps.index(code) + 1, "X")), axis=1)

    def decode(self, codes: Array) -> Array:
        """Computes the outputs for codes: (N, H_code) -> (N, L), or (N,) if the targets were."""
        return self._shaped(self._run(codes, self.code, len(self.chain.maps), "codes"))

    def weights_for(self, chain: Chain, data: Dataset) -> Array:
        """Returns the weights (P,) for another run of this net, converted from its own scaling to that of `data`.

        Outputs of an activation or a link stay the same in scaled units.  Raises UsageError if the net or the
        classes differ, or if weights cannot be converted, such as those of radial basis functions.
        """
        chain = chain if data.span is None else chain.reading(len(data.scaling_x.shift))
        for what, own, new in (("input", self.chain.n_in, chain.n_in), ("output", self.chain.n_out, chain.n_out)):
            if own != new:
                raise UsageError(f"it is a net of {many(own, what)}, and these data have {new:,}: the data must agree")
        theirs, ours = ([m.spec() for m in c.maps] for c in (self.chain, chain))
        if ours != theirs or (self.chain.numbers, self.chain.reads) != (chain.numbers, chain.reads):
            raise UsageError(_another(self.chain.n_in, theirs, chain.n_in, ours))
        classes = [None if c is None else c.tolist() for c in (self.classes, data.classes)]
        if classes[0] != classes[1]:
            raise UsageError(f"it was trained for {_listed('classes', *classes)}")
        if self.columns and data.columns and self.columns.names != data.columns.names:
            raise UsageError(f"it was trained on {_listed('columns', self.columns.names, data.columns.names)}")
        if not (self.scaling_x.compresses_as(data.scaling_x) and self.scaling_y.compresses_as(data.scaling_y)):
            raise UsageError("it compresses long tails of its own data in another way; use those data again")
        of_x, of_y = (self.scaling_x, data.scaling_x), (self.scaling_y, data.scaling_y)
        weights = [np.array(W, dtype=np.float64) for W in self.weights]
        if chain.numbers and not (_same(*of_x) and _same(*of_y)):
            raise UsageError(f"its shared weights {KEEP}")
        if not _same(*of_x):
            _first_rescaled(chain.blocks[0], weights[0], *of_x)
        if not _same(*of_y) and chain.maps[-1].parameter_shape is not None and self.link == "identity":
            _last_rescaled(chain.blocks[-1], weights[-1], *of_y)
        if data.span is not None:
            weights[0] = data.span.within(weights[0])
        return np.concatenate([W.ravel() for W in weights])

    @property
    def points(self) -> int:
        """The number of points of the stream so far; 0 for models of other data."""
        return int(self.stream["points"][0]) if self.stream else 0

    @property
    def running(self) -> tuple[Scaling, Scaling]:
        """The scaling that the next piece of a stream updates; it stays as it is if weights cannot be converted."""
        chain, both = self.chain, (self.scaling_x, self.scaling_y)
        of_numbers = self.classes is None and self.link == "identity"
        ends = [(chain.maps[i], chain.blocks[i]) for i in ((0, -1) if of_numbers else (0,))]
        plain = all(m.parameter_shape is not None and {"linear", "bias"} <= b.capabilities for m, b in ends)
        both_move = self.link == "identity" or not self.autoencoder
        moves = plain and both_move and not chain.numbers and not any(chain.reads)
        return both if moves else tuple(replace(scaling, seen=None) for scaling in both)  # type: ignore[return-value]

    def last_for(self, chain: Chain, data: Dataset) -> dict[str, Array]:
        """Returns the numbers from which the next piece of the stream continues, converted to the scaling of its data.

        The Gram of [x, 1] becomes that of [r x + s, 1]; inverses become 0 if scalings differ much.  Raises as
        `weights_for`.
        """
        at = {name: self._at(self.stream[name], chain, data) for name in ("weights", "average")}
        moved = self._at(self.stream["weights"] + self.stream["step"].astype(float), chain, data)
        grams, d = self.stream["grams"].astype(float), chain.block_shapes[0][1]
        old, new = self.scaling_x, data.scaling_x
        near = old.is_near(new) and self.scaling_y.is_near(data.scaling_y)
        curvature = {name: near * self.stream[name] for name in ("inverses", "spectra")}
        if not _same(old, new):
            r, s = np.append(old.scale / new.scale, 1.0), np.append((old.shift - new.shift) / new.scale, 0.0)
            G = grams[: d * d].reshape(d, d)
            G *= r[:, None] * r
            G += np.outer(s, G[-1]) + np.outer(G[:, -1], s) + G[-1, -1] * np.outer(s, s)
        numbers = self.stream["numbers"].copy()
        if self.link == "identity" and self.classes is None:  # losses scale with the squares of the targets
            numbers[2:4] *= np.mean(np.square(self.scaling_y.scale / data.scaling_y.scale))
        return {**at, "step": moved - at["weights"], "grams": grams, **curvature, "numbers": numbers}

    def _at(self, flat: Array, chain: Chain, data: Dataset) -> Array:
        """Converts other weights (P,) of this net for another run, as `weights_for` does."""
        return replace(self, kept={self.in_use: flat}).weights_for(chain, data)

    def _shaped(self, F: Array) -> Array:
        return F[:, 0] if self.one_dimensional else F

    def _run(self, A: Any, start: int, stop: int, name: str) -> Array:
        if is_frame(A):
            own = self.columns if start == 0 else None
            A = (Columns.plain(A, name) if own is None else own).encode(A, name)
        part, whole, A = self.chain.part(start, stop), len(self.chain.maps), as_inputs(A, name)
        n_in = part.n_in if start else self.chain.n_in
        sparse, batch = isinstance(A, SparseRows), BATCH
        if not sparse:
            A = as_rows(A if A.ndim == 1 and n_in == 1 else np.atleast_2d(A), name, rows=0)
        else:
            batch = max(MOST_DENSE // max(A.shape[1], 1), 1)
        if A.shape[1] != n_in:
            raise UsageError(f"{name} has {many(A.shape[1], 'column')}; the model takes {n_in}")
        out = np.empty((len(A), part.n_out))
        for first in range(0, len(A), batch):
            B = as_rows(A[first : first + batch], name, rows=0) if sparse else A[first : first + batch]
            B = self.scaling_x.apply(B) if start == 0 else B
            B = part.forward(self.weights, B)
            if stop == whole:
                B = self.scaling_y.undo(B if self.classes is not None else LINKS[self.link](B))
            out[first : first + batch] = B
        return out


def code_end(chain: Chain) -> int:
    """Returns the number of maps up to the code: the hidden layer with the fewest units, at its site if it has one.

    The bits of words count as units.  Radial basis functions are no code if there is another layer.
    """
    ends = [(chain.maps[end - 1], end) for end in chain.layer_ends]
    return min(ends, key=lambda m: (is_basis(m[0]), m[0].code.n_bits if m[0].code else m[0].n_out))[1]


def codes_of(chain: Chain, Z: Array) -> Array | None:
    """Returns the columns of the coordinates Z (N, sum H) that belong to the code; None if it has no site."""
    sizes = chain.site_sizes  # before them Z may have columns of some units of a layer
    end, widths = code_end(chain), np.cumsum([Z.shape[1] - sum(sizes), *sizes])
    if end not in chain.sites:
        return None
    site = chain.sites.index(end)
    return Z[:, widths[site] : widths[site + 1]]


def _listed(what: str, own: list[Any] | None, new: list[Any] | None) -> str:
    """Says which classes or columns (what) a model has (own) and the data lack (new), and the other way round."""
    lacks, more = ([one for one in a or [] if one not in (b or [])] for a, b in ((own, new), (new, own)))
    told = [f"{word} {', '.join(map(str, few[:8]))}" for word, few in (("lack", lacks), ("have", more)) if few]
    return f"other {what} than those of these data, which {' and '.join(told) or 'have them in another order'}"


def _another(n_in: int, maps: list[dict[str, Any]], other_in: int, others: list[dict[str, Any]]) -> str:
    """Says how the net of a model (n_in, maps) differs from that of a config: by its layers, or within a layer."""
    nets = [
        " ".join([str(n), *(str(m.get("name", m.get("n_out", m["kind"]))) for m in specs)])
        for n, specs in ((n_in, maps), (other_in, others))
    ]
    told = nets
    if maps == others:
        return "its weights are shared, or read the data, in another way than this config's: [model] must agree"
    if nets[0] == nets[1]:
        one, two = next((a, b) for a, b in zip(maps, others, strict=True) if a != b)
        if "mask" in one:
            return "it is a net of other connections than this config's: [model] must agree"
        told = [
            f"{one['kind']} with {', '.join(f'{key} {m[key]!s:.40}' for key in m if one.get(key) != two.get(key))}"
            for m in (one, two)
        ]
    return f"it is another net ({told[0]}) than this config's ({told[1]}): [model] must agree"


def _first_rescaled(map_: Map, W: Array, old: Scaling, new: Scaling) -> None:
    """Converts the weights W of the first layer, in place, from the old scaling of its inputs to the new one.

    Raises UsageError if they cannot be converted.  Collective: no.
    """
    if {"linear", "bias"} <= map_.capabilities:  # [V, c], a column for each input and one for the biases
        W[:, -1] += W[:, :-1] @ ((new.shift - old.shift) / old.scale)
        W[:, :-1] *= new.scale / old.scale
    elif "centres" in map_.capabilities and np.array_equal(new.scale, old.scale):
        W += (old.shift - new.shift) / old.scale
    elif "bias" in map_.capabilities and _uniform(old, new) and not (new.shift - old.shift).any():
        W[:, :-1] *= new.scale[0] / old.scale[0]
    else:
        raise _kept(map_)


def _last_rescaled(map_: Map, W: Array, old: Scaling, new: Scaling) -> None:
    """Converts the weights W of the last layer, in place, from the old scaling of the targets to the new one.

    Raises UsageError if they cannot be converted.  Collective: no.
    """
    biased = "bias" in map_.capabilities
    if "linear" in map_.capabilities and (biased or np.array_equal(new.shift, old.shift)):
        W *= (old.scale / new.scale)[:, None]
        if biased:
            W[:, -1] += (old.shift - new.shift) / new.scale
    elif biased and _uniform(old, new):
        W *= old.scale[0] / new.scale[0]
        W[:, -1] += (old.shift[0] - new.shift[0]) / new.scale[0]
    else:
        raise _kept(map_)


def _same(old: Scaling, new: Scaling) -> bool:
    return np.array_equal(new.scale, old.scale) and np.array_equal(new.shift, old.shift)


def _uniform(old: Scaling, new: Scaling) -> bool:
    """Tells whether each of two scalings has one shift and one scale for all columns.

    Weights that pixels share can only be converted between such scalings.
    """
    return all(not np.ptp(array) for scaling in (old, new) for array in (scaling.shift, scaling.scale))


def _kept(map_: Map) -> UsageError:
    kind = map_.fitter or ("radial basis functions" if "centres" in map_.capabilities else map_.spec()["kind"])
    return UsageError(f"its weights ({kind}) {KEEP}")
