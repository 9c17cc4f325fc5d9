"""Codes of bits for retrieval: binary autoencoders against other hash functions, at equal bits a point.

    python run/bench/hashing.py DATA [--points N] [--bits 16 32 64 128] [--methods ...] [--json FILE]

DATA: "usps", "coil", or "descriptors", made here (`descriptors`).  Neighbours
are the 100 nearest by Euclidean distance.  Precision at k: of the k nearest by code, the share that are neighbours;
recall at R: of the neighbours, the share that are among the R nearest by code.  Of equal distances the first row comes
first.  Hash functions are searched by Hamming distance, and their codes once more by the distance between the query
and what their best linear decoder makes of each ("decoded"); product quantisation (faiss-cpu) and RaBitQ (rabitqlib) by
estimates of the distance to the query itself, and where these packages or PyTorch lack their rows are left out.
Seconds are of processors, over all ranks.  --json: each row is kept as it is made, and the neighbours next to the file,
so that a run that was stopped goes on: what is there already, of the same data, is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from programs import ROOT, environment, mpiexec

import macmpi
from macmpi.config import Data
from macmpi.data.named_sets import read_coil, read_usps
from macmpi.files import first_line, replace_file

Array = np.ndarray
Encoder = Callable[[Array], Array]

NEIGHBOURS, QUERIES, SHARD, BLOCK = 100, 1000, 100_000, 50
AT = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
CLUSTERS, INTRINSIC, SIZE = 1000, 12, 128


def descriptors(begin: int, end: int, seed: int = 0) -> Array:
    """Rows begin to end of an endless set of descriptors of 128 numbers: (end - begin, 128), float32.

    A point lies in one of 1,000 clusters, of unequal probability: x = m_c + B_c u + noise.  The centres m_c lie in a
    space of 24 dimensions whose variances fall as 1 / j; B_c has 12 columns, of variances that fall likewise, half of
    which all clusters have in common; u and the noise are normal.  Row i is the same whatever the number of rows.
    """
    shared = np.random.default_rng([seed, 0])
    falling = 1.0 / np.sqrt(np.arange(1, 25))
    centres = shared.standard_normal((CLUSTERS, 24)) * falling @ shared.standard_normal((24, SIZE)) / np.sqrt(24)
    common = shared.standard_normal((INTRINSIC // 2, SIZE))
    own = shared.standard_normal((CLUSTERS, INTRINSIC - INTRINSIC // 2, SIZE))
    probabilities = shared.gamma(2.0, size=CLUSTERS)
    rows = []
    for block in range(begin // 1000, -(-end // 1000)):
        random = np.random.default_rng([seed, 1, block])
        c = random.choice(CLUSTERS, 1000, p=probabilities / probabilities.sum())
        u = random.standard_normal((1000, INTRINSIC)) * falling[:INTRINSIC] / np.sqrt(SIZE) * 2.0
        X = centres[c] + u[:, ::2] @ common + np.einsum("nj,njd->nd", u[:, 1::2], own[c])
        rows.append(X + 0.02 * random.standard_normal(X.shape))
    first = begin // 1000 * 1000
    return np.concatenate(rows)[begin - first : end - first].astype(np.float32)


def written(path: Path, X: Array) -> None:
    """An HDF5 file of the points, which ranks read by rows."""
    import h5py

    with h5py.File(path, "w") as file:
        rows = file.create_dataset("X", X.shape, X.dtype)
        for begin in range(0, len(X), SHARD):
            rows[begin : begin + SHARD] = X[begin : begin + SHARD]


def points(name: str, count: int) -> tuple[Array, Array]:
    """The points that are searched, and queries."""
    if name == "descriptors":
        return descriptors(0, count), descriptors(count, count + QUERIES)
    found = {"usps": read_usps, "coil": read_coil}[name](Data(name), False)
    X, queries = (
        np.asarray(rows, np.float32).reshape(len(rows), -1) for rows in (found.arrays["X"], found.arrays["X_val"])
    )
    return X[: count or None], queries[:QUERIES]


# --- hash functions ---------------------------------------------------------------------------------------------------


def components(X: Array, count: int) -> tuple[Array, Array]:
    """The mean and the leading principal directions, (D, count)."""
    mean = X.mean(axis=0, dtype=np.float64)
    C = np.zeros((X.shape[1], X.shape[1]))
    for begin in range(0, len(X), SHARD):
        A = X[begin : begin + SHARD] - mean
        C += A.T @ A
    return mean, np.linalg.eigh(C)[1][:, ::-1][:, :count]


def signs(P: Array, mean: Array) -> Encoder:
    return lambda X: (X - mean) @ P > 0.0


def lsh(X: Array, bits: int) -> Encoder:
    """Random hyperplanes through the mean."""
    return signs(np.random.default_rng(0).standard_normal((X.shape[1], bits)), X.mean(axis=0, dtype=np.float64))


def pca(X: Array, bits: int) -> Encoder:
    mean, P = components(X, bits)
    return signs(P, mean)


def itq(X: Array, bits: int) -> Encoder:
    """Iterative quantisation (Gong and Lazebnik, 2011), 50 rounds over all points."""
    mean, P = components(X, bits)
    V = ((X - mean) @ P).astype(np.float32)
    R = np.linalg.qr(np.random.default_rng(0).standard_normal((bits, bits)))[0].astype(np.float32)
    for _ in range(50):
        left, _, right = np.linalg.svd(V.T @ np.where(V @ R > 0.0, np.float32(1.0), np.float32(-1.0)))
        R = left @ right
    return signs(P @ R, mean)


def spectral(X: Array, bits: int) -> Encoder:
    """Spectral hashing (Weiss, Torralba and Fergus, 2008): sines along principal components, the slowest first."""
    mean, P = components(X, bits)
    V = (X - mean) @ P
    low, width = V.min(axis=0), np.ptp(V, axis=0)
    most = np.ceil((bits + 1) * width / width.max()).astype(int)
    modes = [(k / width[j], j, k) for j in range(bits) for k in range(1, most[j] + 1)]
    _, columns, counts = (np.array(values) for values in zip(*sorted(modes)[:bits], strict=True))
    return lambda A: np.cos(np.pi * counts * (((A - mean) @ P - low) / width)[:, columns]) > 0.0


def straight_through(X: Array, bits: int) -> Encoder:
    """Adam through a sign with the derivative of a clipped identity, from the codes of ITQ, to the least error of 5 %.

    A linear encoder and a linear decoder, batches of 256, at a rate of 1e-3; ends after 5 epochs without a fall.
    """
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    mean, P = components(X, bits)
    V = ((X - mean) @ P).astype(np.float32)
    R = np.linalg.qr(np.random.default_rng(0).standard_normal((bits, bits)))[0].astype(np.float32)
    for _ in range(50):
        left, _, right = np.linalg.svd(V[:SHARD].T @ np.sign(V[:SHARD] @ R))
        R = left @ right
    P = P @ R / (V @ R).std()
    W = torch.tensor(P.T, dtype=torch.float32, requires_grad=True)
    c = torch.tensor(-mean @ P, dtype=torch.float32, requires_grad=True)
    S = np.sign(V @ R)
    G = np.linalg.solve(S.T @ S + np.eye(bits), S.T @ (X - mean))
    U = torch.tensor(G, dtype=torch.float32, requires_grad=True)
    d = torch.tensor(mean, dtype=torch.float32, requires_grad=True)
    T, held = torch.from_numpy(X), max(1, len(X) // 20)
    optimiser = torch.optim.Adam([W, c, U, d], lr=1e-3)

    def error(batch: Any) -> Any:
        a = batch @ W.T + c
        soft = a.clamp(-1.0, 1.0)
        b = soft + (torch.where(a > 0.0, 1.0, -1.0) - soft).detach()
        return 0.5 * (batch - b @ U - d).square().sum(1).mean()

    best, since, kept = np.inf, 0, (W.detach().clone(), c.detach().clone())
    for _ in range(200):
        for rows in (held + torch.randperm(len(T) - held)).split(256):
            optimiser.zero_grad()
            error(T[rows]).backward()
            optimiser.step()
        with torch.no_grad():
            now = float(error(T[:held]))
        if now < 0.9999 * best:
            best, since, kept = now, 0, (W.detach().clone(), c.detach().clone())
        elif (since := since + 1) >= 5:
            break
    V, c = (tensor.numpy() for tensor in kept)
    return lambda A: A @ V.T + c > 0.0


def binary_autoencoder(ranks: int, *settings: str) -> Callable[[Array, int], Encoder]:
    """Full MAC of a linear encoder, bits and a linear decoder, on sharded points, as `macmpi run` trains it."""

    def fit(X: Array, bits: int) -> Encoder:
        with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
            folder = Path(name)
            written(folder / "points.h5", X)
            config = f'data.source = "points.h5"\ndata.validation = 0.05\ndata.scale = "none"\nmodel.hidden = [{bits}]'
            config += '\nmodel.activation = "binary"\nparallel.data = "sharded"\n'
            (folder / "run.toml").write_text(config + "\n".join(settings))
            command = mpiexec(ranks, "-m", "macmpi.run", "run.toml", "--output", "out")
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=environment(ROOT))
            model = macmpi.load(folder / "out" / "model.h5")
        return lambda A: np.unpackbits(model.bits(A), axis=1, count=bits)

    return fit


HASHES: dict[str, Callable[[Array, int], Encoder]] = {
    "LSH": lsh,
    "PCA hashing": pca,
    "spectral hashing": spectral,
    "ITQ": itq,
    "start by neighbours": binary_autoencoder(2, 'start.method = "neighbours"', "run.max_iterations = 0"),
    "binary autoencoder": binary_autoencoder(2),
    **({"straight-through Adam": straight_through} if find_spec("torch") else {}),
}


# --- searches by estimated distances ----------------------------------------------------------------------------------


def product_quantisation(X: Array, queries: Array, bits: int, found: int) -> Array:
    """A byte for each of bits / 8 runs of columns."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexPQ(X.shape[1], bits // 8, 8)
    index.train(X[:SHARD])
    index.add(X)
    return index.search(queries, found)[1]


def rabitq(X: Array, queries: Array, bits: int, found: int) -> Array:
    """A bit for each of the first `bits` principal components, rotated, and the numbers that RaBitQ keeps a point."""
    import rabitqlib

    mean, P = components(X, bits)
    A, Q = (np.ascontiguousarray((rows - mean) @ P, np.float32) for rows in (X, queries))
    index = rabitqlib.IvfIndex(bits, len(A), 1, 1)
    index.build(A, A.mean(axis=0, keepdims=True), np.zeros(len(A), np.uint32))
    return next(np.asarray(part) for part in index.search(Q, found, 1) if np.asarray(part).dtype.kind in "ui")


ESTIMATES: dict[str, Callable[[Array, Array, int, int], Array]] = {
    **({"product quantisation": product_quantisation} if find_spec("faiss") else {}),
    **({"RaBitQ": rabitq} if find_spec("rabitqlib") else {}),
}


# --- precision and recall ---------------------------------------------------------------------------------------------


def blocks(count: int, what: str) -> Iterator[slice]:
    """Rows of queries, with progress on standard error."""
    for begin in range(0, count, BLOCK):
        print(f"\r{what}: {begin:,} of {count:,} queries", end="", file=sys.stderr)
        yield slice(begin, begin + BLOCK)
    print("\r\033[K", end="", file=sys.stderr)


def first(distances: Array, count: int) -> Array:
    """The columns of the least distances, whole numbers, of equal ones the first: (n, count)."""
    key = distances.astype(np.int64) * distances.shape[1] + np.arange(distances.shape[1])
    return np.sort(np.partition(key, count - 1, axis=1)[:, :count], axis=1) % distances.shape[1]


def neighbours(X: Array, queries: Array, count: int = NEIGHBOURS) -> Array:
    """The nearest points of each query, the nearest first: (queries, count)."""
    squares, found = np.einsum("nd,nd->n", X, X), []
    for rows in blocks(len(queries), "Euclidean distances"):
        distances = squares - 2.0 * queries[rows] @ X.T
        nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
        order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(nearest, order, axis=1))
    return np.concatenate(found)


def words(codes: Array) -> Array:
    """Codes of packed bits (n, bytes), uint8, as whole numbers of 64 bits."""
    padded = np.zeros((len(codes), -(-codes.shape[1] // 8) * 8), np.uint8)
    padded[:, : codes.shape[1]] = codes
    return padded.view(np.uint64)


def by_hamming(codes: Array, asked: Array, count: int) -> Array:
    """The points of the least Hamming distance to each query, both packed: (queries, count)."""
    own, theirs, found = words(codes), words(asked), []
    for rows in blocks(len(asked), "Hamming distances"):
        distances = np.bitwise_count(own ^ theirs[rows, None]).sum(axis=2, dtype=np.int32)
        found.append(first(distances, count))
    return np.concatenate(found)


def scores(found: Array, true: Array) -> dict[str, dict[str, float]]:
    """Precision and recall at each of AT, means over the queries."""
    hit = np.stack([np.isin(row, own) for row, own in zip(found, true, strict=True)]).cumsum(axis=1).mean(axis=0)
    at = [k for k in AT if k <= len(hit)]
    precision = {str(k): float(hit[k - 1] / k) for k in at}
    return {"precision": precision, "recall": {str(k): float(hit[k - 1] / true.shape[1]) for k in at}}


def spent() -> float:
    """Seconds of processors of this process and of those that it has waited for."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def decoded(X: Array, codes: Array) -> Array:
    """What the linear decoder of least squares makes of the codes (n, H) of points X (n, D)."""
    A = np.hstack([codes, np.ones((len(codes), 1))]).astype(np.float32)
    return A @ np.linalg.lstsq(A[:SHARD].astype(float), X[:SHARD].astype(float), rcond=None)[0].astype(np.float32)


def true_neighbours(X: Array, queries: Array, args: argparse.Namespace) -> Array:
    """The neighbours of the queries, kept next to --json: (queries, NEIGHBOURS)."""
    if not args.json:
        return neighbours(X, queries)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    kept: Path = args.json.parent / f"neighbours-{args.data}-{len(X)}.npy"
    if not kept.exists():
        content = BytesIO()
        np.save(content, neighbours(X, queries))
        replace_file(kept, content.getvalue())
    return np.load(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("data", choices=("usps", "coil", "descriptors"))
    parser.add_argument("--points", type=int, default=0)
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--methods", nargs="+", default=[*HASHES, *ESTIMATES])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.data == "descriptors" and not args.points:
        args.points = 1_000_000
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    X, queries = points(args.data, args.points)
    there = {(row["data"], row["points"], row["bits"], row["method"]) for row in kept}
    true, most = true_neighbours(X, queries, args), min(AT[-1], len(X) // 2)
    for bits in args.bits:
        for name in args.methods:
            if (args.data, len(X), bits, name) in there or (name == "RaBitQ" and (bits % 64 or bits > X.shape[1])):
                continue  # RaBitQ rotates by blocks of 64 numbers
            began, row = spent(), {"data": args.data, "points": len(X), "bits": bits, "method": name}
            if name in ESTIMATES:
                found = ESTIMATES[name](X, queries, bits, most)
                row["seconds"] = spent() - began
            else:
                encode = HASHES[name](X, bits)
                row["seconds"] = spent() - began
                codes, asked = encode(X), encode(queries)
                again = decoded(X, codes)
                row["E1"] = float(0.5 * np.square(X - again).sum(axis=1).mean())
                row["decoded"] = scores(neighbours(again, queries, most), true)
                found = by_hamming(np.packbits(codes, axis=1), np.packbits(asked, axis=1), most)
            kept.append(row | scores(found, true))
            print(
                f"{args.data} {len(X):,}  {bits:3d} bits  {name:22s} {row['seconds']:9.1f} s  "
                f"E1 {row.get('E1', np.nan):8.4f}"
                f"  precision at 100 {kept[-1]['precision']['100']:.4f}, decoded "
                f"{row.get('decoded', kept[-1])['precision']['100']:.4f}",
                flush=True,
            )
            if args.json:
                replace_file(args.json, json.dumps(kept, indent=1).encode())


if __name__ == "__main__":
    main()
