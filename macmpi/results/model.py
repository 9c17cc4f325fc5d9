"""A trained net, usable without MPI: predict, encode, decode, reconstruct."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from macmpi import UsageError
from macmpi.data.checks import as_array, as_rows
from macmpi.data.dataset import Dataset
from macmpi.data.frames import Columns, is_frame
from macmpi.data.scaling import Scaling
from macmpi.nets.chain import Chain
from macmpi.nets.losses.links import LINKS
from macmpi.results.card import Card
from macmpi.typing import Array

BATCH = 4096


@dataclass(frozen=True)
class Model:
    """A trained net f, with the scaling of its data: arrays go in and come out in the data's own units.

    A classifier (`classes` given: the label of each output) predicts labels.  one_dimensional: the targets were (N,),
    and so are the outputs.  columns: those of the table that it was trained on, so that X may be a table, whose
    columns are found by their names; None of arrays.  card_text: the model card as model.h5 has it, "" where it has
    none.  history: a record of each iteration, as in curve.jsonl; none of a model that was loaded, whose card has it.
    link: of its loss, a key of LINKS; what it makes of the outputs of the net is the mean that is predicted, such as
    probabilities ("sigmoid") or counts ("exp").
    """

    chain: Chain
    weights: tuple[Array, ...]
    scaling_x: Scaling
    scaling_y: Scaling
    autoencoder: bool
    classes: Array | None = None
    one_dimensional: bool = False
    columns: Columns | None = None
    card_text: str = ""
    history: list[dict[str, Any]] = field(default_factory=list, compare=False)
    link: str = "identity"

    def __repr__(self) -> str:
        sizes = "-".join(str(n) for n in self.chain.layer_sizes)
        return f"Model({sizes}, {sum(W.size for W in self.weights):,} weights)"

    @cached_property
    def card(self) -> Card | None:
        """The model card: data, config, curve, scores, machine.  None of files of older versions and of start.h5.

        Raises UsageError where it is damaged.  Collective: no.
        """
        try:
            return Card.of_json(self.card_text) if self.card_text else None
        except (ValueError, RecursionError) as error:
            why = " ".join((str(error) or "nested too deeply").split())
            raise UsageError(f"the model card is damaged: {why:.200}") from None

    @property
    def code(self) -> int:
        """The number of maps up to the code: the hidden layer with the fewest units, at its site if it has one."""
        return code_end(self.chain)

    def predict(self, X: Any) -> Array:
        """f(X) through the link: (N, D) -> (N, L), or (N,) where the targets were, or a classifier's labels (N,).

        X: an array, or a table (pandas, polars, pyarrow).  Where D = 1, X may be (N,); else X (D,) is one point.
        Raises UsageError when X has other columns.

        Collective: no.
        """
        F = self._run(X, 0, len(self.chain.maps), "X")
        return self._shaped(F) if self.classes is None else self.classes[F.argmax(axis=1)]

    def probabilities(self, X: Any) -> Array:
        """A classifier's probability of each class: (N, D) -> (N, classes); of several labels what `predict` gives."""
        self.check_action("probabilities")
        F = self._run(X, 0, len(self.chain.maps), "X")
        return F if self.classes is None else LINKS["softmax"](F)

    def reconstruct(self, X: Any) -> Array:
        """An autoencoder's output for X: (N, D) -> (N, D), or (N,) where it was trained on that."""
        self.check_action("reconstruct")
        return self.predict(X)

    def check_action(self, name: str) -> None:
        """Raises UsageError where the net does not have this method, whatever the data.  Collective: no."""
        if name == "probabilities" and self.classes is None and self.link != "sigmoid":
            raise UsageError("this model is no classifier: use predict")
        if name == "reconstruct" and not self.autoencoder:
            raise UsageError("this model is not an autoencoder: use predict")

    def encode(self, X: Any) -> Array:
        """Codes of X: (N, D) -> (N, H_code)."""
        return self._run(X, 0, self.code, "X")

    def decode(self, codes: Array) -> Array:
        """Outputs for codes: (N, H_code) -> (N, L), or (N,) where the targets were."""
        return self._shaped(self._run(codes, self.code, len(self.chain.maps), "codes"))

    def weights_for(self, chain: Chain, data: Dataset) -> Array:
        """The weights (flat) for another run of this net: the model's scaling of the data exchanged for that of `data`.

        Raises UsageError when the net or the classes differ, or where radial basis functions keep to their scaling.
        """
        theirs, ours = ([m.spec() for m in c.maps] for c in (self.chain, chain))
        if ours != theirs:
            nets = [
                " ".join([str(c.n_in), *(str(m.get("name", m.get("n_out", m["kind"]))) for m in maps)])
                for c, maps in ((self.chain, theirs), (chain, ours))
            ]
            if nets[0] == nets[1]:
                raise UsageError("it is a net of other connections than this config's: [model] must agree")
            raise UsageError(f"it is another net ({nets[0]}) than this config's ({nets[1]}): [model] must agree")
        classes = [None if c is None else c.tolist() for c in (self.classes, data.classes)]
        if classes[0] != classes[1]:
            raise UsageError("it was trained for other classes than those of these data")
        if self.columns and data.columns and self.columns.names != data.columns.names:
            raise UsageError("it was trained on other columns than those of these data")
        weights = [np.array(W, dtype=np.float64) for W in self.weights]
        first, last = weights[0], weights[-1]
        old, new = self.scaling_x, data.scaling_x
        kept = "its radial basis functions keep to the scaling of their own data; use those, or the same data.scale"
        if not (old.compresses_as(new) and self.scaling_y.compresses_as(data.scaling_y)):
            raise UsageError("it compresses long tails of its own data in another way; use those data again")
        if "bias" in chain.blocks[0].capabilities:
            first[:, -1] += first[:, :-1] @ ((new.shift - old.shift) / old.scale)
            first[:, :-1] *= new.scale / old.scale
        elif chain.blocks[0].fitter:
            if not (np.array_equal(new.scale, old.scale) and np.array_equal(new.shift, old.shift)):
                raise UsageError(f"its {chain.blocks[0].fitter} keeps to the scaling of its own data; use those")
        elif np.array_equal(new.scale, old.scale):
            first += (old.shift - new.shift) / old.scale
        else:
            raise UsageError(kept)
        if chain.maps[-1].parameter_shape is not None:
            old, new = self.scaling_y, data.scaling_y
            last *= (old.scale / new.scale)[:, None]
            if "bias" in chain.blocks[-1].capabilities:
                last[:, -1] += (old.shift - new.shift) / new.scale
            elif not np.array_equal(new.shift, old.shift):
                raise UsageError(kept)
        return np.concatenate([W.ravel() for W in weights])

    def _shaped(self, F: Array) -> Array:
        return F[:, 0] if self.one_dimensional else F

    def _run(self, A: Any, start: int, stop: int, name: str) -> Array:
        if is_frame(A):
            own = self.columns if start == 0 else None
            A = (Columns.plain(A, name) if own is None else own).encode(A, name)
        part, whole, A = self.chain.part(start, stop), len(self.chain.maps), as_array(A, name)
        A = as_rows(A if A.ndim == 1 and part.n_in == 1 else np.atleast_2d(A), name, rows=1)
        if A.shape[1] != part.n_in:
            raise UsageError(f"{name} has {A.shape[1]} columns; the model takes {part.n_in}")
        out = np.empty((len(A), part.n_out))
        for first in range(0, len(A), BATCH):
            B = A[first : first + BATCH]
            B = self.scaling_x.apply(B) if start == 0 else B
            B = part.forward(self.weights, B)
            if stop == whole:
                B = self.scaling_y.undo(B if self.classes is not None else LINKS[self.link](B))
            out[first : first + BATCH] = B
        return out


def code_end(chain: Chain) -> int:
    """The number of maps up to the code: the hidden layer with the fewest units, at its site if it has one.

    Radial basis functions are none, if there is another layer.
    """
    ends = [(chain.maps[end - 1], end) for end in chain.layer_ends]
    return min(ends, key=lambda m: ({"centres", "jacobian"} <= m[0].capabilities, m[0].n_out))[1]


def codes_of(chain: Chain, Z: Array) -> Array | None:
    """The columns of the coordinates Z (N, sum H) that belong to the code, or None where it has no site."""
    end, widths = code_end(chain), np.cumsum([0, *chain.site_sizes])
    if end not in chain.sites:
        return None
    site = chain.sites.index(end)
    return Z[:, widths[site] : widths[site + 1]]
