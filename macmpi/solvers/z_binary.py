"""The Z-step for codes of bits or words: it tries every code, or changes one run of the code after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.design import row_dots
from macmpi.nets.layers import Code
from macmpi.nets.losses import dense, times
from macmpi.reductions import AT_ONCE, Average
from macmpi.solvers import DISCRETE, ZSolution
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

AT_A_TIME = 2**21
"""The most values of the objective, for points and codes, that are in memory at a time."""


class Form(NamedTuple):
    """Eq. (4) as 1/2 z^T A z - l_n^T z + constant, under squared errors of an affine decoder V^T z + c.

    A = V V^T + M (H, H), and l_n = V (y_n - c) + M (f_1(x_n) + u_1), with M and u_1 as in `ZProblem`.
    """

    A: Array
    V: Array
    c: Array

    @staticmethod
    def of(problem: ZProblem) -> Form | None:
        """Makes the form of a problem; None unless its decoder is affine in the code alone, and its loss squared.

        Cost: H + 1 decoded codes.
        """
        maps, (H,) = problem.segments[-1].maps, problem.sizes
        if not _squares(problem) or len(maps) != 1 or "linear" not in maps[0].capabilities or any(problem.sides):
            return None
        c, *V = problem.segments[-1].forward(problem.weights, np.eye(H + 1, H, -1, problem.Z.dtype))
        V = np.array(V) - c
        return Form(V @ V.T + dense(problem.metrics[0].M, H).astype(V.dtype), V, c)

    def linear(self, problem: ZProblem) -> Array:
        """Computes l_n of the problem's points: (n, H).  Cost: 2 n L H flops."""
        return (problem.Y - self.c) @ self.V.T + times(problem.first, problem.metrics[0].M)


class Codes(NamedTuple):
    """All codes of H units, and the numbers by which they are compared for any point.

    codes (C, H): the codes.
    own (C,), rows (C, r): the objective of a code is own - rows . a, for r numbers a of a point.
    outputs (C, L): the outputs for each code, where the loss must be added to that objective; otherwise None.
    """

    codes: Array
    own: Array
    rows: Array
    outputs: Array | None = None


class Prepared(NamedTuple):
    """The preparation of `BinaryZ` for all points: the form of their objectives, and all codes where these are few."""

    form: Form | None
    every: Codes | None


@dataclass(frozen=True)
class BinaryZ:
    """min over codes z of eq. (4), for a net with one site and any decoder; for bits z in {0, 1}^H.

    Up to 2^enumerated codes are all tried, which is exact; they are decoded once for all points.  Otherwise it makes up
    to `iterations` sweeps over the runs of the code, and sets each to the best value of its alphabet, until no run
    changes.  If there is a `Form`, sweeps begin both at the present code and at the code of the relaxed minimum A^-1
    l_n, and the better result is taken.
    Cost: 2 n 2^H min(H, L + H) flops to try all; 4 n H^2 a sweep of a form; otherwise 2 passes through the decoder for
    each bit of a sweep.
    """

    iterations: int = 3
    enumerated: int = 10

    handles: ClassVar[Demands] = DISCRETE

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Prepared:
        form, code = Form.of(sample), _code_of(sample)
        one, runs = code.alphabet.astype(sample.Z.dtype), len(code.runs)
        if len(one) ** runs > 2**self.enumerated:
            return Prepared(form, None)
        numbers = np.arange(len(one) ** runs)[:, None] // len(one) ** np.arange(runs) % len(one)
        codes = one[numbers].reshape(-1, code.size)
        if form:
            return Prepared(form, Codes(codes, 0.5 * row_dots(codes @ form.A, codes), codes))
        own, outputs = 0.5 * sample.metrics[0].square(codes), sample.segments[-1].forward(sample.weights, codes)
        if _squares(sample):
            return Prepared(None, Codes(codes, own + 0.5 * row_dots(outputs, outputs), np.hstack([outputs, codes])))
        return Prepared(None, Codes(codes, own, codes, outputs))

    def solve(self, problem: ZProblem, shared: Prepared) -> ZSolution:
        if shared.every:
            ends: Sequence[Array] = [self._enumerated(problem, shared.form, shared.every)]
        elif shared.form:
            ends = self._swept(problem, shared.form)
        else:
            ends = [self._alternating(problem)]
        Z, least = problem.Z, problem.values(problem.Z)
        for found in ends:
            values = problem.values(found)
            Z = np.where((values <= least)[:, None], found, Z)
            least = np.minimum(values, least)
        return ZSolution(Z, least)

    def _enumerated(self, problem: ZProblem, form: Form | None, every: Codes) -> Array:
        """Finds the code with the least objective for each point, the first of equals: (n, H)."""
        asks = form.linear(problem) if form else times(problem.first, problem.metrics[0].M)
        if not form and every.outputs is None:
            asks = np.hstack([problem.Y, asks])
        best, least = np.zeros(len(asks), np.intp), np.full(len(asks), np.inf)
        step = max(1, AT_A_TIME // max(1, len(asks)))
        for begin in range(0, len(every.codes), step):
            part = slice(begin, begin + step)
            values = every.own[part] - asks @ every.rows[part].T
            if every.outputs is not None:
                Y = problem.Y
                losses = [problem.loss.value(Y, np.broadcast_to(g, (len(Y), len(g)))) for g in every.outputs[part]]
                values += np.stack(losses, axis=1)
            nearest = values.argmin(axis=1)
            found = np.take_along_axis(values, nearest[:, None], axis=1)[:, 0]
            best, least = np.where(found < least, begin + nearest, best), np.minimum(found, least)
        return every.codes[best]

    def _swept(self, problem: ZProblem, form: Form) -> tuple[Array, Array]:
        """Sweeps from both starts, and returns both ends, (n, H) each.

        It keeps g = A z - l, and updates it by columns of A.
        """
        linear, A, n, code = form.linear(problem), form.A, len(problem.Z), _code_of(problem)
        relaxed = code.forward(None, np.linalg.solve(A, linear.T).T - 0.5)
        z = np.hstack([problem.Z.T, relaxed.T]).astype(linear.dtype)
        g = A @ z - np.tile(linear.T, 2)
        for _ in range(self.iterations):
            moved = False
            for own in code.runs:
                change = _change(z[own], g[own], A[own, own], code)
                if change.any():
                    moved = True
                    z[own] += change
                    g += A[:, own] * change if len(change) == 1 else A[:, own] @ change
            if not moved:
                break
        ends = z.T.astype(problem.Z.dtype)
        return ends[:n], ends[n:]

    def _alternating(self, problem: ZProblem) -> Array:
        Z, least, code = problem.Z.copy(), problem.values(problem.Z), _code_of(problem)
        for _ in range(self.iterations):
            before = Z.copy()
            for own in code.runs:
                values = []
                for choice in code.alphabet:
                    Z[:, own] = choice
                    values.append(problem.values(Z))
                found = np.min(values, axis=0)
                best = code.alphabet[np.argmin(values, axis=0)]
                Z[:, own] = np.where((found < least)[:, None], best, before[:, own])
                least = np.minimum(found, least)
            if np.array_equal(Z, before):
                break
        return Z


def _code_of(problem: ZProblem) -> Code:
    code = problem.segments[0].maps[-1].code
    assert code is not None
    return code


def _change(z: Array, slopes: Array, A: Array, code: Code) -> Array:
    """Computes the change of a run z (w, n) that minimises a form, for slopes (w, n) at z and its block A (w, w).

    It is 0 where no other value of the alphabet is lower.
    """
    if len(z) == 1:
        rises = slopes + A * (0.5 - z)
        return np.where(rises == 0.0, 0.0, (rises < 0.0) - z)
    rises = slopes + (0.5 * np.diag(A)[:, None] - A @ z)
    change = code.forward(None, -rises.T).T - z
    return change * ((change * rises).sum(axis=0) < 0.0)


def _squares(problem: ZProblem) -> bool:
    return problem.loss.by_output and problem.loss.unit_hessian
