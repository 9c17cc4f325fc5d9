"""A trained net, usable without MPI: predict, encode, decode, reconstruct."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import UsageError, __version__, files
from macmpi.data.checks import as_rows
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling, Tails
from macmpi.files import DAMAGE, first_line, image, replace_file
from macmpi.nets.chain import Chain
from macmpi.nets.layers import build
from macmpi.nets.layers.softmax import softmax
from macmpi.state import State, block_views
from macmpi.typing import Array

FORMAT = 1
MADE_FROM = "state"
"""The attribute that says from which state of a run a model was made."""

UNREADABLE = "it is damaged, or no model.h5, which the command that trained it writes again with --resume auto"

PREFERRED = ("refit", "best", "last")
"""The weights that a model predicts with are the first of these that its file has."""

BATCH = 4096


@dataclass(frozen=True)
class Model:
    """A trained net f, with the scaling of its data: arrays go in and come out in the data's own units.

    A classifier (`classes` given: the label of each output) predicts labels.  one_dimensional: the targets were (N,),
    and so are the outputs.
    """

    chain: Chain
    weights: tuple[Array, ...]
    scaling_x: Scaling
    scaling_y: Scaling
    autoencoder: bool
    classes: Array | None = None
    one_dimensional: bool = False

    def __repr__(self) -> str:
        sizes = "-".join(str(n) for n in self.chain.layer_sizes)
        return f"Model({sizes}, {sum(W.size for W in self.weights):,} weights)"

    @property
    def code(self) -> int:
        """The number of maps up to the code: the hidden layer with the fewest units, at its site if it has one."""
        return code_end(self.chain)

    def predict(self, X: Array) -> Array:
        """f(X): (N, D) -> (N, L), or (N,) where the targets were, or a classifier's labels (N,).

        Where D = 1, X may be (N,); else X (D,) is one point.  Raises UsageError when X has other columns.

        Collective: no.
        """
        F = self._run(X, 0, len(self.chain.maps), "X")
        return self._shaped(F) if self.classes is None else self.classes[F.argmax(axis=1)]

    def probabilities(self, X: Array) -> Array:
        """A classifier's probability of each class: (N, D) -> (N, classes)."""
        self.check_action("probabilities")
        return softmax(self._run(X, 0, len(self.chain.maps), "X"))

    def reconstruct(self, X: Array) -> Array:
        """An autoencoder's output for X: (N, D) -> (N, D), or (N,) where it was trained on that."""
        self.check_action("reconstruct")
        return self.predict(X)

    def check_action(self, name: str) -> None:
        """Raises UsageError where the net does not have this method, whatever the data.  Collective: no."""
        if name == "probabilities" and self.classes is None:
            raise UsageError("this model is no classifier: use predict")
        if name == "reconstruct" and not self.autoencoder:
            raise UsageError("this model is not an autoencoder: use predict")

    def encode(self, X: Array) -> Array:
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
            nets = [" ".join(str(m.get("name", m.get("n_out", m["kind"]))) for m in maps) for maps in (theirs, ours)]
            raise UsageError(f"it is another net ({nets[0]}) than this config's ({nets[1]}): [model] must agree")
        classes = [None if c is None else c.tolist() for c in (self.classes, data.classes)]
        if classes[0] != classes[1]:
            raise UsageError("it was trained for other classes than those of these data")
        weights = [np.array(W, dtype=np.float64) for W in self.weights]
        first, last = weights[0], weights[-1]
        old, new = self.scaling_x, data.scaling_x
        kept = "its radial basis functions keep to the scaling of their own data; use those, or the same data.scale"
        if not (old.compresses_as(new) and self.scaling_y.compresses_as(data.scaling_y)):
            raise UsageError("it compresses long tails of its own data in another way; use those data again")
        if "bias" in chain.blocks[0].capabilities:
            first[:, -1] += first[:, :-1] @ ((new.shift - old.shift) / old.scale)
            first[:, :-1] *= new.scale / old.scale
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

    def _run(self, A: Array, start: int, stop: int, name: str) -> Array:
        part, whole, A = self.chain.part(start, stop), len(self.chain.maps), np.asarray(A)
        A = as_rows(A if A.ndim == 1 and part.n_in == 1 else np.atleast_2d(A), name, rows=1)
        if A.shape[1] != part.n_in:
            raise UsageError(f"{name} has {A.shape[1]} columns; the model takes {part.n_in}")
        out = np.empty((len(A), part.n_out))
        for first in range(0, len(A), BATCH):
            B = A[first : first + BATCH]
            B = self.scaling_x.apply(B) if start == 0 else B
            B = part.forward(self.weights, B)
            out[first : first + BATCH] = self.scaling_y.undo(B) if stop == whole else B
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


def save(
    path: Path,
    chain: Chain,
    weights: dict[str, Array],
    data: Dataset,
    attributes: dict[str, Any],
    Z: Array | None = None,
) -> None:
    """Write model.h5: the chain, the weights by name ("last", "best"), the scaling, of Z the code.  Raises OSError."""
    arrays = {f"weights/{name}": flat for name, flat in weights.items()}
    for side, scaling in (("x", data.scaling_x), ("y", data.scaling_y)):
        arrays |= {f"scaling/{side}_{name}": array for name, array in scaling.arrays.items()}
    if data.classes is not None:
        arrays["classes"] = data.classes
    codes = None if Z is None else codes_of(chain, Z)
    if codes is not None:
        arrays["codes"] = codes
    labels = {
        "format": FORMAT,
        "macmpi": __version__,
        "maps": json.dumps([m.spec() for m in chain.maps]),
        "sites": json.dumps(chain.sites),
        "autoencoder": data.autoencoder,
        "one_dimensional": data.one_dimensional,
        **attributes,
    }
    replace_file(path, image(arrays, labels))


def is_made_from(path: Path, state: State) -> bool:
    """Tells whether a file holds the model of this state of a run, whole.  Collective: no."""
    try:
        load(path)
        with files.opened(path) as file:
            return bool(file.attrs[MADE_FROM] == state.fingerprint)
    except (UsageError, *DAMAGE):
        return False


def load(path: str | Path, weights: str | None = None) -> Model:
    """The model of a model.h5.

    weights: "refit" (on all points), "best" (on validation) or "last"; None: the first of them that there are.
    Raises UsageError.  Collective: no.
    """
    if os.path.isdir(path):
        inside = Path(path) / "model.h5"
        remedy = f"name {inside}" if inside.is_file() else "name the model.h5 of a run directory"
        raise UsageError(f"{path} is not a model: it is a folder; {remedy}")
    if not os.path.isfile(path):
        raise UsageError(f"{path} is not a model: there is no such file")
    try:
        with files.opened(path) as file:
            specs = json.loads(file.attrs["maps"], parse_constant=_no_number)
            if int(file.attrs["format"]) > FORMAT:
                raise UsageError(f"it was written by macmpi {file.attrs['macmpi']}; use that version")
            chain = _chain(specs, json.loads(file.attrs["sites"]))
            names = files.names(file, "weights")
            weights = weights or next((name for name in PREFERRED if name in names), "last")
            if weights not in names:
                raise UsageError(f"it has the weights {', '.join(names)}, not {weights}")
            of_x, of_y = _scaling(file, "x", chain.n_in), _scaling(file, "y", chain.n_out)
            blocks = _blocks(files.array(file, f"weights/{weights}"), chain)
            autoencoder = bool(file.attrs["autoencoder"])
            one_dimensional = bool(file.attrs.get("one_dimensional", False))  # older files do not say
            classes = files.array(file, "classes") if "classes" in set(file) else None
            if classes is not None and classes.dtype.kind == "S":
                classes = np.array(files.texts(classes))
        _ensure(not autoencoder or chain.n_in == chain.n_out, "its outputs are not as many as its inputs")
        _ensure(not one_dimensional or chain.n_out == 1, "its outputs are more than one")
        if classes is not None:
            _ensure(classes.shape == (chain.n_out,), "its classes are not as many as its outputs")
            _ensure(classes.dtype.kind in "biufU", "its classes are neither numbers nor text")
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except (OSError, KeyError, RuntimeError) as error:  # h5py's, in words of HDF5
        number = error.errno if isinstance(error, OSError) else None
        why = f"it cannot be read ({os.strerror(number)})" if number else UNREADABLE
        raise UsageError(f"{path} is not a model: {why}") from None
    except (*DAMAGE, ArithmeticError, LookupError) as error:
        raise UsageError(f"{path} is not a model: {first_line(error)}") from None
    return Model(chain, blocks, of_x, of_y, autoencoder, classes, one_dimensional)


def _no_number(text: str) -> float:
    raise ValueError(f"its maps hold {text}")


def _ensure(fits: Any, otherwise: str) -> None:
    """Raises ValueError, which says that a file is no model."""
    if not fits:
        raise ValueError(otherwise)


def _chain(specs: list[dict[str, Any]], sites: list[int]) -> Chain:
    """The chain of a file.  Raises ValueError, or what building maps raises, where they do not fit each other."""
    maps = tuple(build(spec) for spec in specs)
    sizes = [n for m in maps for n in (m.n_in, m.n_out)]
    _ensure(sizes and all(isinstance(n, int) and n > 0 for n in sizes), "its maps have no usable sizes")
    _ensure(sizes[1:-1:2] == sizes[2::2], "its maps do not take what those before them give")
    cuts = [0, *sites, len(maps)]
    _ensure(all(isinstance(n, int) for n in cuts) and cuts == sorted(set(cuts)), "its sites are not between its maps")
    return Chain(maps, tuple(sites))


def _blocks(flat: Array, chain: Chain) -> tuple[Array, ...]:
    """The weights of each block, with which the chain can be computed.  Raises as `_chain`."""
    _ensure(flat.shape == (sum(h * d for h, d in chain.block_shapes),), "its weights are not as many as its maps have")
    _ensure(flat.dtype.kind == "f", "its weights are no floating-point numbers")
    if not np.isfinite(flat).all():
        raise UsageError("it holds weights that are not finite")
    blocks = block_views(flat.astype(np.float64), chain.block_shapes)
    try:
        with np.errstate(all="ignore"):
            chain.forward(blocks, np.zeros((1, chain.n_in)))
    except KeyError as error:
        raise ValueError(f"there is no activation {error}") from None
    return blocks


def _scaling(file: Any, side: str, size: int) -> Scaling:
    """The scaling of the `size` columns of a side, "x" or "y".  Raises ValueError."""
    named = [name for name in files.names(file, "scaling") if name.startswith(f"{side}_")]
    arrays = {name[2:]: files.array(file, f"scaling/{name}") for name in named}
    shift, scale = arrays.pop("shift"), arrays.pop("scale")
    every = [shift, scale, *arrays.values()]
    _ensure(all(array.shape == (size,) for array in every), "its scaling is of other columns than its maps")
    numbers = all(array.dtype.kind == "f" for array in every) and np.isfinite(every).all()
    _ensure(numbers and (scale > 0.0).all(), "its scaling holds no usable numbers")
    return Scaling(shift, scale, Tails(**arrays) if arrays else None)
