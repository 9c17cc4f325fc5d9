"""A trained net is written to model.h5 and read back; every part of the file is checked when it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from macmpi import StorageError, UsageError, __version__, files, shown
from macmpi.data.frames import columns_of
from macmpi.data.scaling import SEEN, Scaling
from macmpi.files import DAMAGE, RUN, as_path, first_line, image, replace_file
from macmpi.nets.chain import Chain
from macmpi.nets.layers import GROUP, KINDS, Map, activation, build
from macmpi.nets.losses.by_output import LINKS
from macmpi.results.card import NAME
from macmpi.results.model import Model, codes_of
from macmpi.state import block_views
from macmpi.typing import Array

FORMAT = 1
MADE_FROM = "state"
"""The attribute that has the fingerprint of the state from which a model was made."""

ENDS = "ends"
"""The attribute that has the keys by which the model's run ended."""

PACKAGES = "packages"
"""The attribute that names the packages from which parts of the net come: [group of entry points, name, package]."""

UNREADABLE = "it is damaged, or no model.h5, which the command that trained it writes again with --resume auto"


def save(model: Model, path: str | Path) -> None:
    """Writes a trained net, with its card and all its weights, to a file that `load` and the commands read.

    It needs no MPI.  Raises UsageError, and StorageError if the file could not be written.  Collective: no.
    """
    if not isinstance(model, Model):
        raise UsageError(f"model = {shown(model)}: a Model is needed, as macmpi.fit gives (of an estimator: model_)")
    path = as_path(path, "path")
    try:
        write(path, model, {})
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}; save it in another place") from error


def write(path: Path, model: Model, attributes: dict[str, Any], Z: Array | None = None) -> None:
    """Writes model.h5: the net, all weights that it keeps, the scaling, the card, and codes.  Raises OSError.

    attributes: further attributes of the file.
    Z (N, sum H): the coordinates, whose columns that belong to the code are written.
    """
    chain = model.chain
    arrays = {f"weights/{name}": flat for name, flat in model.kept.items()}
    for side, scaling in (("x", model.scaling_x), ("y", model.scaling_y)):
        arrays |= {f"scaling/{side}_{name}": array for name, array in scaling.arrays.items()}
    arrays |= {f"stream/{name}": array for name, array in model.stream.items()}
    columns = None if model.columns is None else model.columns.as_array()
    some = {"classes": model.classes, "columns": columns, "codes": None if Z is None else codes_of(chain, Z)}
    arrays |= {name: array for name, array in some.items() if array is not None}
    entries = {entry for map_ in chain.maps for entry in from_packages(map_.spec())}
    packages = [[*entry, _package(*entry)] for entry in sorted(entries)]
    labels = {
        "format": FORMAT,
        "macmpi": __version__,
        "maps": json.dumps([m.spec() for m in chain.maps]),
        **({PACKAGES: json.dumps(packages)} if packages else {}),
        **{name: json.dumps(getattr(chain, name)) for name in ("sites", "numbers", "reads")},
        **{name: getattr(model, name) for name in ("autoencoder", "one_dimensional", "link")},
        **({NAME: model.attributes[NAME]} if NAME in model.attributes else {}),
        **attributes,
    }
    replace_file(path, image(arrays, labels), attributes.get(RUN, ""))


def load(path: str | Path, weights: str | None = None) -> Model:
    """Reads the trained net of a model.h5, ready to predict (`macmpi.results.model.Model`); that needs no MPI.

    weights: "refit" (trained again on all points), "best" (of the lowest validation error along the run) or "last"
        (after postprocessing); None: the first of these that the file has.
    Raises UsageError.  Collective: no.
    """
    path = as_path(path, "path")
    if os.path.isdir(path):
        inside = path / "model.h5"
        remedy = f"name {inside}" if os.path.isfile(inside) else "name the model.h5 of a run directory"
        raise UsageError(f"{path} is not a model: it is a folder; {remedy}")
    if not os.path.isfile(path):
        raise UsageError(f"{path} is not a model: there is no such file")
    try:
        with files.opened(path) as file:
            attributes = dict(file.attrs)
            specs = json.loads(attributes["maps"], parse_constant=_no_number)
            if int(attributes["format"]) > FORMAT:
                raise UsageError(f"it was written by macmpi {attributes['macmpi']}; use that version")
            _check_packages(specs, json.loads(attributes.get(PACKAGES, "[]")))
            shared = (json.loads(attributes.get(name, "[]")) for name in ("numbers", "reads"))  # older files have none
            chain = _chain(specs, json.loads(attributes["sites"]), *shared)
            scalings, kept = files.arrays(file, "scaling"), files.arrays(file, "weights")
            of_x, of_y = _scaling(scalings, "x", chain.n_in), _scaling(scalings, "y", chain.n_out)
            for flat in kept.values():
                _check_weights(flat, chain)
            classes = files.array(file, "classes") if "classes" in set(file) else None
            if classes is not None and classes.dtype.kind == "S":
                classes = np.array(files.texts(classes))
            columns = columns_of(files.array(file, "columns"), chain.n_in) if "columns" in set(file) else None
            stream = files.arrays(file, "stream") if "stream" in set(file) else {}
            _check_stream(stream, chain)
        autoencoder = bool(attributes["autoencoder"])
        one_dimensional = bool(attributes.get("one_dimensional", False))  # older files do not say
        link = attributes.get("link", "identity" if classes is None else "softmax")  # older files do not say
        _ensure(isinstance(attributes.get(NAME, ""), str), "its card is no text")
        _ensure(isinstance(link, str) and link in LINKS, "it does not say how outputs become predictions")
        _ensure(not autoencoder or chain.n_in == chain.n_out, "its outputs are not as many as its inputs")
        _ensure(not one_dimensional or chain.n_out == 1, "its outputs are more than one")
        if classes is not None:
            _ensure(classes.shape == (chain.n_out,), "its classes are not as many as its outputs")
            _ensure(classes.dtype.kind in "biufU", "its classes are neither numbers nor text")
        kind = of_x, of_y, autoencoder, classes, one_dimensional, columns
        model = Model(chain, kept, *kind, link=link, attributes=attributes, stream=stream)
        return model.with_weights(weights)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except (OSError, KeyError, RuntimeError) as error:  # errors of h5py, whose texts are HDF5's
        number = error.errno if isinstance(error, OSError) else None
        why = f"it cannot be read ({os.strerror(number)})" if number else UNREADABLE
        raise UsageError(f"{path} is not a model: {why}") from None
    except (*DAMAGE, ArithmeticError, LookupError) as error:
        raise UsageError(f"{path} is not a model: {first_line(error)}") from None


def from_packages(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields group and name of the entry points by which other packages give a map's kind or activation.

    Maps within the map count, too.  Collective: no.
    """
    if spec["kind"] not in KINDS:
        yield GROUP, spec["kind"]
    elif spec["kind"] == "activation" and spec["name"] not in activation.FUNCTIONS:
        yield activation.GROUP, spec["name"]
    for inside in spec.values():
        if isinstance(inside, dict) and "kind" in inside:
            yield from from_packages(inside)


def _package(group: str, name: str) -> str:
    """Names the package, with its version, that has an entry point; "" if none has."""
    for entry in metadata.entry_points(group=group, name=name):
        return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
    return ""


def _check_packages(specs: list[dict[str, Any]], listed: list[list[str]]) -> None:
    """Raises UsageError if a part of a net comes from a package that is not installed here.

    specs: the specs of the maps.
    listed: the attribute `PACKAGES`; older files have none.
    """
    known = {(group, name): f"{package}, " for group, name, package in listed}
    for group, name in (entry for spec in specs for entry in from_packages(spec)):
        if not _package(group, name):
            what = f"there is no {'kind of map' if group == GROUP else 'activation'} {name!r} here"
            whose = f"{known.get((group, name), '')}the package that gives it (an entry point of {group})"
            raise UsageError(f"{what}: install {whose}")


def _no_number(text: str) -> float:
    raise ValueError(f"its maps hold {text}")


def _ensure(condition: Any, otherwise: str) -> None:
    """Raises ValueError with these words if a condition does not hold, since the file is then not a model."""
    if not condition:
        raise ValueError(otherwise)


def _chain(specs: list[dict[str, Any]], sites: list[int], numbers: list[Any], reads: list[Any]) -> Chain:
    """Builds the chain of a file.  Raises ValueError, or what building a map raises, if maps do not fit each other."""
    maps = tuple(build(spec) for spec in specs)
    sizes = [n for m in maps for n in (m.n_in, m.n_out)]
    _ensure(sizes and all(isinstance(n, int) and n > 0 for n in sizes), "its maps have no usable sizes")
    columns = tuple(None if read is None else (int(read[0]), int(read[1])) for read in reads)
    _ensure(len(columns) in (0, len(maps)), "it does not say which data each map reads")
    _ensure(all(read is None or 0 <= read[0] < read[1] for read in columns), "its maps read data that there are not")
    widths = [0 if read is None else read[1] - read[0] for read in columns or (None,) * len(maps)]
    taken = [m.n_in - width for m, width in zip(maps, widths, strict=True)]
    _ensure(taken[1:] == [m.n_out for m in maps[:-1]], "its maps do not take what those before them give")
    _ensure(widths[0] in (0, maps[0].n_in), "its first map does not read the data alone")
    cuts = [0, *sites, len(maps)]
    _ensure(all(isinstance(n, int) for n in cuts) and cuts == sorted(set(cuts)), "its sites are not between its maps")
    _ensure(_numbered(maps, numbers), "its maps share weights that are not of their shape")
    return Chain(maps, tuple(sites), tuple(numbers), columns)


def _numbered(maps: tuple[Map, ...], numbers: list[Any]) -> bool:
    """Tells whether blocks are numbered correctly.

    Each map with weights must have a number, maps with the same number one shape, and no number may be left out.
    """
    pairs = [(b, m.parameter_shape) for m, b in zip(maps, numbers, strict=False)]
    blocks = {(b, shape) for b, shape in pairs if b is not None}
    paired = len(numbers) == len(maps) and all((b is None) == (shape is None) for b, shape in pairs)
    return not numbers or (paired and sorted(b for b, _ in blocks) == list(range(len(blocks))))


def _check_weights(flat: Array, chain: Chain) -> None:
    """Raises ValueError or UsageError if the chain cannot be computed with these weights."""
    _ensure(flat.shape == (sum(h * d for h, d in chain.block_shapes),), "its weights are not as many as its maps have")
    _ensure(flat.dtype.kind == "f", "its weights are no floating-point numbers")
    if not np.isfinite(flat).all():
        raise UsageError("it holds weights that are not finite")
    with np.errstate(all="ignore"):
        chain.forward(block_views(flat.astype(np.float64), chain.block_shapes), np.zeros((1, chain.n_in)))


def _check_stream(held: dict[str, Array], chain: Chain) -> None:
    """Raises ValueError if the arrays of a stream in a file are incomplete or not finite; there may be none at all."""
    weights, grams = (
        sum(a * b for a, b in pairs) for pairs in (chain.block_shapes, [(d, d) for _, d in chain.block_shapes])
    )
    sizes = {"weights": weights, "average": weights, "step": weights, "grams": grams, "numbers": 5, "points": 1}
    found = {name: A.size for name, A in held.items() if A.ndim == 1 and A.dtype.kind in "fi"}
    complete = found == sizes | {name: found.get(name) for name in ("inverses", "spectra")}  # by the layers' forms
    _ensure(not held or (complete and all(np.isfinite(A).all() for A in held.values())), "its stream cannot go on")


def _scaling(held: dict[str, Array], side: str, size: int) -> Scaling:
    """Makes the scaling of the `size` columns of a side, "x" or "y", of the arrays of a file.  Raises ValueError."""
    arrays = {name[2:]: array for name, array in held.items() if name.startswith(f"{side}_")}
    every, positive = [*arrays.values()], [arrays["scale"], arrays.get("limit", np.ones(size))]
    _ensure(all(array.shape == (size,) for array in every), "its scaling is of other columns than its maps")
    numbers = all(array.dtype.kind == "f" for array in every) and np.isfinite(every).all()
    _ensure(numbers and all((array > 0.0).all() for array in positive), "its scaling holds no usable numbers")
    _ensure(len({*arrays} & {*SEEN}) in (0, len(SEEN)), "its running scaling is not whole")
    return Scaling.of(arrays)
