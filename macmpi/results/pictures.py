"""The pictures of some runs are made here, each with a caption that describes it by its numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from macmpi.data.dataset import Dataset
from macmpi.nets.nearest import hamming, neighbours, within
from macmpi.results import figures
from macmpi.results.figures import Codes
from macmpi.results.reading import Net, Result, points, scores_at
from macmpi.results.scores import Labels
from macmpi.typing import Array

DPI = 150

MOST_POINTS, MOST_HELD = 5000, 200
"""The most codes in one picture, of training and of held-out points; of more points, evenly spaced ones are drawn."""

MOST_NAMED = 30
"""The most classes whose names a caption lists."""

MOST_OUTPUTS = 9
"""The most outputs whose predictions are drawn."""

COLUMNS, HELD_COLUMNS = 8, 3
"""The number of sample points of the reconstructions, and how many of them are held out."""

SEARCHED, ASKED, NEIGHBOURS = 50_000, 200, 100
"""The most training points, queries, and points that count as near a query, for retrieval by bits."""

SHOWN = 5
"""The number of nearest images that are drawn for a query."""


@dataclass(frozen=True)
class Picture:
    """Is a picture with its title.

    name: the name of its file.
    caption: sentences that say what it shows.
    """

    name: str
    title: str
    caption: str
    figure: Figure

    @property
    def png(self) -> bytes:
        """The picture as a PNG file, which names macmpi as its software."""
        buffer = io.BytesIO()
        look: dict[str, Any] = {"facecolor": "white", "bbox_inches": "tight", "pad_inches": 0.08}
        self.figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": "macmpi"}, **look)
        return buffer.getvalue()


def draw(results: Sequence[Result]) -> Iterator[Picture]:
    """Yields every picture that the results allow."""
    numbered = [(r, f"-{i}" if len(results) > 1 else "") for i, r in enumerate(results, start=1)]
    yield curves(results)
    for result, number in numbered:
        if result.nets:
            yield codes(result, f"codes{number}")
            yield from by_bits(result, number)
    kinds = {r.data.sha256: r.data for r in results if r.data is not None and image_shape(r.data) is not None}
    for i, data in enumerate(kinds.values(), start=1):
        own = [r for r in results if r.nets and r.data is not None and r.data.sha256 == data.sha256]
        if data.autoencoder and own:
            yield reconstructions(own, data, f"reconstructions-{i}" if len(kinds) > 1 else "reconstructions")
    for result, number in numbered:
        if result.end is not None and not result.end.data.autoencoder:
            yield outcome(result.end, result.name, f"outcome{number}")
        if any("cost" in record for record in result.records):
            yield selection(result, f"selection{number}")
    if any(record["iteration"] for result in results for record in result.records):
        yield seconds(results)


def colours_of(results: Sequence[Result]) -> list[str]:
    """Returns the colours of the runs in the pictures that compare them; none for a single run."""
    return [figures.run_colour(i) for i in range(len(results))] if len(results) > 1 else []


def label(result: Result) -> str:
    """Writes a run's name for matplotlib, in which dollars begin no formula."""
    return result.name.replace("$", r"\$")


def curves(results: Sequence[Result]) -> Picture:
    """Makes the picture of the learning curves of all runs."""
    alike = len({r.data.sha256 for r in results if r.data is not None}) < 2
    compared = [(level, label(r)) for r in results for level in r.levels if not level.share]
    levels = {level.name if alike else f"{level.name}, {run}": level.value for level, run in compared}
    text = (
        "The nested error E1 per point against seconds of training (the start at the left edge) and against "
        "iterations: training points solid with a marker an iteration, validation points dashed. A diamond is the "
        "postprocessing step."
    )
    if any(figures.mu_changes(r.records) for r in results):
        text += " Red: the iteration after which mu was changed."
    if any("centres" in r.records[0] for r in results):
        text += " The training error of a net of radial basis functions holds its ridge, as in eq. (6)."
    if not alike:
        text += " The runs have different data: their errors do not compare."
    return Picture("curves", "Learning curves", text, figures.curves({label(r): r.records for r in results}, levels))


def codes(result: Result, name: str) -> Picture:
    """Makes the picture of the codes before and after training."""
    whole = {title: thinned(net) for title, net in result.nets.items()}
    first = next(iter(result.nets.values()))
    data, width = first.data, first.codes.shape[1]
    text = (
        f"The {width} coordinates of the code" if width < 3 else f"First two principal components of the {width} codes"
    )
    text += ": the training points, and the held-out points (black edge) as the net encodes them."
    if groups_of(data) is not None:
        text += f" Colours and numbers are the {'groups of the data' if data.classes is None else 'classes'}."
    if data.groups is None and data.classes is not None and data.classes.dtype.kind == "U":
        text += f" They are {', '.join(f'{i} {name}' for i, name in enumerate(data.classes[:MOST_NAMED]))}."
    if data.order is not None:
        text += " Lines join each group's training points in their order, the last with the first."
    for title, net in result.nets.items():
        said = list(said_of(net, whole[title]))
        text += f" At the {title}: {'; '.join(said)}." if said else ""
    panels = {title: in_plane(of) for title, of in whole.items()}
    return Picture(name, f"Codes of {result.name}", text, figures.plane(panels))


def thinned(net: Net) -> Codes:
    """Chooses the codes of at most `MOST_POINTS` training points and `MOST_HELD` held-out ones of a net."""
    kept, held = (spread(None, len(A), most) for A, most in ((net.codes, MOST_POINTS), (net.held, MOST_HELD)))
    known, order = groups_of(net.data) or (None, None), net.data.order
    groups, held_groups = (A if A is None else A[rows] for A, rows in zip(known, (kept, held), strict=True))
    return Codes(net.codes[kept], net.held[held], groups, held_groups, None if order is None else order[0][kept])


def groups_of(data: Dataset) -> tuple[Array, Array] | None:
    """Returns the group of each training and validation point, a whole number: the group in the data, or the class."""
    if data.groups is not None or data.classes is None:
        return data.groups
    names = data.classes if data.classes.dtype.kind in "iu" else np.arange(len(data.classes))
    return names[data.Y.argmax(axis=1)], names[data.Y_val.argmax(axis=1)]


def in_plane(codes: Codes) -> Codes:
    """Reduces codes to two dimensions, by principal components; one dimension gets the group as the second one."""
    n, dimensions = codes.points.shape
    both = np.vstack([codes.points, codes.held])
    if dimensions > 2:
        directions = np.linalg.eigh(np.cov(codes.points, rowvar=False))[1][:, :-3:-1]
        signs = np.sign(directions[np.abs(directions).argmax(axis=0), [0, 1]])
        both = (both - codes.points.mean(axis=0)) @ (directions * signs)
    elif dimensions == 1:
        parts = (codes.groups, codes.held_groups)
        both = np.column_stack([both, np.concatenate([g for g in parts if g is not None] or [np.zeros(len(both))])])
    return replace(codes, points=both[:n], held=both[n:])


def said_of(net: Net, codes: Codes) -> Iterator[str]:
    """Says how far the net puts training points from their coordinates, and where it puts held-out points.

    For these it says whether the nearest training point is of their group, and how far their group's loop is.
    """
    gap = float(np.median(np.linalg.norm(net.codes - net.encoded, axis=1)))
    if gap > 1e-6 * net.codes.std():
        yield f"the net encodes the training points at a median distance of {gap:.2g} from their coordinates"
    if codes.groups is None or codes.held_groups is None or not len(codes.held):
        return
    nearest = [int(np.square(codes.points - z).sum(axis=1).argmin()) for z in codes.held]
    own = int((codes.groups[nearest] == codes.held_groups).sum())
    yield f"{own} of {len(codes.held)} held-out points have a training point of their own group as nearest"
    closed = figures.loops(codes)
    off = [distance(z, closed[g]) for z, g in zip(codes.held, codes.held_groups.tolist(), strict=True) if g in closed]
    if off:
        used = np.intersect1d(codes.held_groups, list(closed)).tolist()
        steps = np.concatenate([np.linalg.norm(np.diff(closed[g], axis=0), axis=1) for g in used])
        yield (
            f"their median distance from their group's loop is {np.median(off):.2g} (that of two neighbours on it "
            f"{np.median(steps):.2g})"
        )


def distance(z: Array, loop: Array) -> float:
    """Computes the distance from a point (H,) to the nearest place on the line through points (n, H)."""
    a, d = loop[:-1], np.diff(loop, axis=0)
    along = np.einsum("nd,nd->n", z - a, d) / np.maximum(np.einsum("nd,nd->n", d, d), 1e-300)
    return float(np.sqrt(np.square(a + np.clip(along, 0.0, 1.0)[:, None] * d - z).sum(axis=1)).min())


def spread(groups: Array | None, n: int, count: int) -> Array:
    """Chooses `count` of n points, evenly within each group, and from each group in proportion to its size."""
    order = np.arange(n) if groups is None else np.argsort(groups, kind="stable")
    count = min(count, n)
    return order[((np.arange(count) + 0.5) * n / max(count, 1)).astype(int)]


def reconstructions(results: Sequence[Result], data: Dataset, name: str) -> Picture:
    """Makes the picture of sample points and of their reconstructions by each run's first and last net.

    First nets that reconstruct alike are drawn once.
    """
    groups, held_groups = data.groups or (None, None)
    held = spread(held_groups, len(data.X_val), HELD_COLUMNS)
    train = spread(groups, len(data.X), COLUMNS - len(held))
    X = points(data, np.vstack([data.X[train], data.X_val[held]]))
    starts: dict[bytes, tuple[Array, list[str]]] = {}
    for result in results:
        if result.start is not None:
            F = result.start.model.reconstruct(X)
            starts.setdefault(F.tobytes(), (F, []))[1].append(label(result))
    rows = {"ground truth": X}
    rows |= {f"initial, {', '.join(names)}" if len(starts) > 1 else "initial": F for F, names in starts.values()}
    rows |= {label(r): r.end.model.reconstruct(X) for r in results if r.end is not None}
    shape = image_shape(data)
    assert shape is not None
    labels = [
        word if of is None else f"{word}, {of[row]}"
        for word, of, chosen in (("training", groups, train), ("held out", held_groups, held))
        for row in chosen
    ]
    text = (
        f"Sample points and what the nets make of them; {len(held)} held-out points in red frames. "
        "Initial: the net at the start of the run. Every row is scaled as the points themselves."
    )
    images = {row: A.reshape(len(A), *shape) for row, A in rows.items()}
    marks = [False] * len(train) + [True] * len(held)
    return Picture(name, "Reconstructions", text, figures.reconstructions(images, labels, marks))


def by_bits(result: Result, number: str) -> Iterator[Picture]:
    """Yields the pictures of a search by the bits of a net; none without bits or without validation points."""
    net = list(result.nets.values())[-1]
    X, X_val = net.data.X, net.data.X_val
    if any(code.run_length == 1 for code in net.model.chain.codes) and len(X_val):
        kept = spread(None, len(X), SEARCHED)
        yield retrieval(result, kept, spread(None, len(X_val), ASKED), f"retrieval{number}")
        if image_shape(net.data) is not None:
            groups = groups_of(net.data) or (None, None)
            yield nearest(result, net, kept, spread(groups[1], len(X_val), COLUMNS), f"nearest{number}")


def bits(net: Net, kept: Array, asked: Array) -> tuple[Array, Array]:
    """Computes the bits, 0 or 1, of some training points (n, H) and validation points (m, H).

    kept, asked: the numbers of these points.
    """
    data = net.data
    packed = net.model.bits(points(data, np.vstack([data.X[kept], data.X_val[asked]])))
    both = np.unpackbits(packed, axis=1, count=net.model.chain.codes[0].n_bits)
    return both[: len(kept)], both[len(kept) :]


def retrieval(result: Result, kept: Array, asked: Array, name: str) -> Picture:
    """Makes the picture of precision and recall of a search by the bits at the start and at the end.

    kept, asked: the numbers of the training points that are searched, and of the validation points that are queries.
    """
    data = next(iter(result.nets.values())).data
    k = min(NEIGHBOURS, max(1, len(kept) // 10))
    near = neighbours(data.X[kept], data.X_val[asked], k)
    curves = {f"at the {when}": within(*bits(net, kept, asked), near) for when, net in result.nets.items()}
    text = (
        f"{len(asked)} of {len(data.X_val):,} validation points ask for the {k} nearest, by Euclidean distance in the "
        f"units of the net, of {len(kept):,} of {len(data.X):,} training points: those count that differ in at most "
        "0, 1, 2, ... bits (numbers at the curve). Precision is the share of the points found that are near, recall "
        f"that of the near points that are found, over all queries; chance has a precision of {k / len(kept):.2g}."
    )
    for when, (found, hits) in curves.items():
        r = int(np.flatnonzero(found >= k)[0])
        said = f"precision {hits[r] / found[r]:.2f} and recall {hits[r] / k:.2f}"
        text += f" {when.capitalize()} {found[r]:.0f} points differ in at most {r} bit{'' if r == 1 else 's'}: {said}."
    return Picture(name, f"Retrieval by the bits of {result.name}", text, figures.retrieval(curves, k, len(kept)))


def nearest(result: Result, net: Net, kept: Array, asked: Array, name: str) -> Picture:
    """Makes the picture of validation points and of the training points whose bits differ least."""
    data, groups = net.data, groups_of(net.data)
    rows = kept[np.argsort(hamming(*bits(net, kept, asked)), axis=1, kind="stable")[:, :SHOWN]].T
    shape = image_shape(data)
    assert shape is not None
    images = {"query": data.X_val[asked]} | {f"nearest {i}": data.X[row] for i, row in enumerate(rows, start=1)}
    text = f"Validation points, and below each the {len(rows)} training points whose bits differ least from its own."
    titles, others = [""] * len(asked), np.zeros((len(images), len(asked)), bool)
    if groups is not None:
        titles, others[1:] = [f"{g}" for g in groups[1][asked]], groups[0][rows] != groups[1][asked]
        text += f" {1.0 - others[1:].mean():.0%} are of the query's group; the others have red frames."
    shown = {row: points(data, X).reshape(len(X), *shape) for row, X in images.items()}
    return Picture(
        name, f"The nearest by the bits of {result.name}", text, figures.reconstructions(shown, titles, others)
    )


def image_shape(data: Dataset) -> tuple[int, ...] | None:
    """Returns (height, width) of grey images, (height, width, 3) of images in colour; None if rows are no images."""
    shape = data.shape or ()
    if shape[2:] == (1,):
        return shape[:2]
    return shape if len(shape) == 2 or shape[2:] == (3,) else None


def outcome(net: Net, run: str, name: str) -> Picture:
    """Makes the picture of predicted against true numbers of the held-out points, or of their confusion matrix."""
    data, scores = net.data, scores_at(net)
    said = ". ".join(scores.lines()[:1])
    if isinstance(scores, Labels) and scores.confusion is not None:
        text = f"Held-out points by their true class (rows) and the one that the net names (columns). {said}."
        names = [str(c) for c in scores.classes.tolist()]
        return Picture(name, f"Confusion of {run}", text, figures.confusion(scores.confusion, names))
    text = f"Held-out points: what the net predicts against what is true, in the data's units. {said}."
    kept = spread(None, len(data.X_val), MOST_POINTS)
    true = data.scaling_y.undo(data.Y_val[kept, : data.sizes.n_out])
    predicted = net.model.predict(points(data, data.X_val[kept]))
    predicted = predicted.reshape(true.shape)
    shown = range(min(true.shape[1], MOST_OUTPUTS))
    panels = {f"output {i + 1}" if true.shape[1] > 1 else "": (true[:, i], predicted[:, i]) for i in shown}
    return Picture(name, f"Predictions of {run}", text, figures.against(panels))


def selection(result: Result, name: str) -> Picture:
    """Makes the picture of E1 + C of a run that selected its architecture."""
    records = [r for r in result.records if "cost" in r]
    rises = int((np.diff(figures.total(records)) > 0.0).sum())
    chosen = [r for r in records if r["phase"] == "selection"]
    text = (
        f"E1 + C per point, C the cost of the architecture, against iterations. {len(chosen)} iterations selected "
        f"(green), {sum(bool(r.get('changed')) for r in chosen)} of them changed the sizes of layers (solid, with the "
        f"sizes). E1 + C rose {rises} time{'' if rises == 1 else 's'} in {max(len(records) - 1, 0)} steps."
    )
    if figures.mu_changes(records):
        text += " Red: the iteration after which mu was changed."
    return Picture(name, f"Selection of the architecture, {result.name}", text, figures.selection(records))


def seconds(results: Sequence[Result]) -> Picture:
    """Makes the picture of the seconds of each phase."""
    text = (
        "Seconds of the half steps, of exchange and of waiting in each iteration, each of the rank that took longest: "
        "together they may be more than the iteration took."
    )
    shown = {label(r): r.records for r in results if any(record["iteration"] for record in r.records)}
    return Picture("seconds", "Where the time goes", text, figures.seconds(shown))
