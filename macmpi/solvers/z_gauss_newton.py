"""The Z-step by Gauss-Newton for each point of a tile: for all sites together, or for one site at a time.

Let c_k = f_k(z_{k-1}) + u_k - z_k, let 1/2 ||q - B dF||^2 + constant be the model of the loss, and
Phi_k = B J_{K+1} ... J_{k+1}.  The direction of a point minimises
1/2 ||q - B J_{K+1} dz_K||^2 + 1/2 sum_k ||dz_k - J_k dz_{k-1} - c_k||_{M_k}^2,
by preconditioned CG in the space of the outputs (the dual), or directly.  M_k contains mu, as in `ZProblem`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from macmpi.demand import Demands
from macmpi.nets.chain import Segment
from macmpi.nets.design import row_dots, split_columns
from macmpi.nets.layers import Tangent
from macmpi.nets.losses import Metric, Squared, dense, times
from macmpi.nets.segment import Fixed, fixed
from macmpi.reductions import AT_ONCE, EVERY, Average
from macmpi.solvers import CONTINUOUS, SINGLE, ZSolution
from macmpi.solvers.cholesky import POINT, inverse
from macmpi.solvers.descent import Precondition, conjugate_gradients
from macmpi.solvers.z_problem import ZProblem
from macmpi.typing import Array

STIFF = 1e3
"""Directions are computed in double precision where the loss is more than STIFF times as stiff as a constraint, because
their systems may be ill-conditioned."""


@dataclass(frozen=True)
class Linearised:
    """The Gauss-Newton model of a tile of points.

    sizes: (H_1, ..., H_K); feasible: c_1, ..., c_K; tangents: J_2, ..., J_K and B J_{K+1}.
    residual: q (n, L); metrics: M_1, ..., M_K.
    """

    sizes: tuple[int, ...]
    feasible: Sequence[Array]
    tangents: Sequence[Tangent]
    residual: Array
    metrics: tuple[Metric, ...]

    def accumulate(self, terms: Sequence[Array]) -> None:
        """term_k += J_k term_{k-1} for k = 2, ..., K: a forward pass through the tangents."""
        for k in range(1, len(terms)):
            terms[k] += self.tangents[k - 1].jvp(terms[k - 1])


def dual(model: Linearised, precondition: Precondition, iterations: int, tolerance: float) -> Array:
    """Computes dz_k = c_k + J_k dz_{k-1} + M_k^-1 Phi_k^T v, where v solves the dual system by preconditioned CG.

    The dual system is (I + sum_k Phi_k M_k^-1 Phi_k^T) v = q - sum_k Phi_k c_k.
    Cost: a pass through the segments after the first, and 2 passes a CG iteration.
    """
    dZ = np.hstack(model.feasible)
    T = np.empty_like(dZ)
    dz, t = (split_columns(model.sizes, A) for A in (dZ, T))
    model.accumulate(dz)
    R = model.residual - model.tangents[-1].jvp(dz[-1])

    def product(P: Array, last: bool) -> tuple[Array, Array | None, Array]:
        return *dual_product(model, P, t, last), T

    return conjugate_gradients(dZ, R, product, precondition, iterations, tolerance)


def dual_product(model: Linearised, P: Array, t: Sequence[Array], last: bool = False) -> tuple[Array, Array | None]:
    """Computes P^T S P row by row, and S P (None if `last`), for S = I + sum_k Phi_k M_k^-1 Phi_k^T.

    t: arrays to which it writes t_k = sum_{j <= k} J_k ... J_{j+1} M_j^-1 Phi_j^T P.
    """
    u, curvature = P, row_dots(P, P) if last else None
    for k in range(len(t) - 1, -1, -1):
        u = model.tangents[k].vjp(u)
        times(u, model.metrics[k].inverse, out=t[k])
        if curvature is not None:
            curvature += row_dots(u, t[k])
    model.accumulate(t)
    if curvature is not None:
        return curvature, None
    SP = P + model.tangents[-1].jvp(t[-1])
    return row_dots(P, SP), SP


def direct_dual(model: Linearised) -> Array:
    """Computes the direction by the dual system, written out as an L x L matrix for each point.

    Cost: L backward passes, and L^2 sum H + L^3 / 3 flops a point.
    """
    dZ = np.hstack(model.feasible)
    dz = split_columns(model.sizes, dZ)
    model.accumulate(dz)
    n, L = model.residual.shape
    R = model.residual - model.tangents[-1].jvp(dz[-1])
    S, U, pulled = np.tile(np.eye(L), (n, 1, 1)), np.tile(np.eye(L, dtype=R.dtype), (n, 1, 1)), list[Array]()
    for tangent in reversed(model.tangents):
        U = np.stack([tangent.vjp(U[:, i]) for i in range(L)], axis=1)
        pulled.insert(0, U.astype(np.float64, copy=False))
    for metric, A in zip(model.metrics, pulled, strict=True):
        S += times(A, metric.inverse) @ A.transpose(0, 2, 1)
    v = solve_rows(S, R)
    for c, term, metric, A in zip(model.feasible, dz, model.metrics, pulled, strict=True):
        np.add(c, times(np.einsum("nlh,nl->nh", A, v).astype(R.dtype), metric.inverse), out=term)
    model.accumulate(dz)
    return dZ


def direct_primal(model: Linearised) -> Array:
    """Computes the direction by the normal equations, written out as a (sum H) x (sum H) matrix for each point.

    The matrix is block tridiagonal over the sites.
    Cost: H_k passes through J_{k+1} and 2 H_k^2 H_{k+1} flops a site and point, and (sum H)^3 / 3 to solve.
    """
    n, bounds = len(model.residual), np.cumsum([0, *model.sizes]).tolist()
    A, b = np.zeros((n, bounds[-1], bounds[-1])), np.zeros((n, bounds[-1]))
    for k, metric in enumerate(model.metrics):
        last, here = k + 1 == len(model.metrics), slice(bounds[k], bounds[k + 1])
        J = columns(model.tangents[k], n, model.sizes[k], model.residual.dtype)
        MJ = J if last else times(J, model.metrics[k + 1].M)
        A[:, here, here] += dense(metric.M, model.sizes[k]) + J @ MJ.transpose(0, 2, 1)
        b[:, here] += times(model.feasible[k], metric.M)
        if last:
            b[:, here] += (J @ model.residual[:, :, None])[:, :, 0]
        else:
            above = slice(bounds[k + 1], bounds[k + 2])
            A[:, here, above], A[:, above, here] = -MJ, -MJ.transpose(0, 2, 1)
            b[:, here] -= (MJ @ model.feasible[k + 1][:, :, None])[:, :, 0]
    return solve_rows(A, b).astype(model.residual.dtype)


def columns(tangent: Tangent, n: int, size: int, dtype: np.dtype) -> Array:
    """Computes J^T of each point, with one jvp for each column of J: (n, size, n_out)."""
    images = []
    for i in range(size):
        unit = np.zeros((n, size), dtype)
        unit[:, i] = 1.0
        images.append(tangent.jvp(unit))
    return np.stack(images, axis=1)


def solve_rows(A: Array, B: Array) -> Array:
    """Solves A x = b for the matrix (n, m, m) and the right side (n, m) of each row, in float64.

    A share POINT of its trace is added to the diagonal of each matrix, to keep it regular.
    """
    A = A + POINT * np.trace(A, axis1=1, axis2=2)[:, None, None] * np.eye(A.shape[1])
    return np.linalg.solve(A, B[:, :, None].astype(np.float64))[:, :, 0]


def flops_a_point(sizes: Sequence[int], outputs: int, passes: float, cg_iterations: int) -> dict[str, float]:
    """Counts the flops of each kind of direction for one point.

    sizes: (H_1, ..., H_K); outputs: L; passes: the flops of a pass through J_2, ..., J_{K+1}.
    cg_iterations: the largest number of CG iterations; there are never more iterations than unknowns.
    """
    H, L = sum(sizes), outputs
    squares = sum(h * h for h in sizes)
    return {
        "dual": passes + min(cg_iterations, L) * (2.0 * passes + 2.0 * L * L),
        "direct_dual": passes * (2.0 + L) + L * L * H + L**3 / 3.0,
        "direct_primal": passes * max(sizes) + 2.0 * squares * (max(sizes) + L) + H**3 / 3.0,
    }


def _plus(form: Array, M: Array) -> Array:
    """Adds a form to M (n, n), in place, and returns M.  form: a matrix (n, n), a diagonal (n,), or a number ()."""
    if form.ndim == 2:
        M += form
    else:
        M[np.diag_indices_from(M)] += form
    return M


def dual_preconditioner(
    sample: ZProblem, average: Average, dtype: np.dtype, made: type[np.floating] = np.float64
) -> Precondition:
    """Makes the preconditioner of the dual system: the inverse of the mean of I + sum_k Phi_k M_k^-1 Phi_k^T.

    The mean is over a sample of points, and is computed segment by segment from the first site.  If the last segment
    ends in a linear map with more outputs than inputs, the inverse is applied by Woodbury's formula.
    sample: the Z-problem of the sample; average: computes means over it.
    dtype, made: the precisions in which it is applied, and in which it is computed.
    """
    weights, sites = [W.astype(made) for W in sample.weights], [A.astype(made) for A in sample.ahead(sample.Z)]
    segments = sample.segments
    first, *inverses = (m.inverse.astype(made) for m in sample.metrics)
    M = _plus(first, np.zeros((sample.sizes[0],) * 2, made))
    for segment, A, C in zip(segments[1:-1], sites[:-1], inverses, strict=True):
        M = _plus(C, segment.congruence(weights, A, M, average=average))
    last, A = segments[-1], sites[-1]
    output = last.maps[-1]
    if sample.loss.unit_hessian and output.n_out > output.n_in and "linear" in output.capabilities:
        M = last.congruence(weights, A, M, len(last.maps) - 1, average)
        V = weights[last.parameter_blocks[-1]][:, : output.n_in]
        C = np.linalg.solve(np.eye(len(M), dtype=made) + M @ (V.T @ V), M)
        C, V = (0.5 * (C + C.T)).astype(dtype), V.astype(dtype)
        return lambda R: R - ((R @ V) @ C) @ V.T
    S = last.congruence(weights, A, M, average=average)
    if not sample.loss.unit_hessian:
        F = average.rows(lambda rows: last.forward(weights, A[rows]))
        S = average.mean(lambda rows: sample.loss.congruence(sample.Y[rows], F[rows], S), S.shape)
    try:
        P = inverse(_plus(np.ones(()), S).astype(made, copy=False)).astype(dtype)
    except np.linalg.LinAlgError:
        if made != np.float64:
            return dual_preconditioner(sample, average, dtype)
        return lambda R: R.copy()  # one direction dwarfs all others: no preconditioner
    return lambda R: R @ P


class Shared(NamedTuple):
    """The preconditioner and the tangents of linear maps, which points share where directions are computed by CG.

    Both are in the precision of the directions.
    """

    precondition: Precondition
    fixed: Fixed


@dataclass(frozen=True)
class GaussNewtonZ:
    """min over z of eq. (4) for each point, for all points of a tile at once.

    direction: "dual" solves by preconditioned CG; "direct" by a factorisation for each point, in the smaller of the two
        spaces; "auto" takes the one with the fewest flops.
    cg_precision: with "single", CG to a rough tolerance is in float32; outputs, constraints and objectives never are.
    relaxation: the first step length of a point (above 1: over-relaxation); then 1 is tried, then halves.  The old z
        stays where no trial is lower.

    Cost of an iteration, with F = 2 n sum_{k >= 2} H_{k-1} H_k flops for a pass through the segments after the first:
    3 F, 2 F for each CG iteration, and 2 n L^2 for each use of the preconditioner.
    """

    iterations: int = 1
    relaxation: float = 1.5
    cg_iterations: int = 4
    cg_tolerance: float = 0.01
    cg_precision: str = "double"
    halvings: int = 10
    direction: str = "auto"

    handles: ClassVar[Demands] = CONTINUOUS

    def choice(self, problem: ZProblem) -> str:
        """Returns the kind of direction for problems of this shape: "dual", "direct_dual" or "direct_primal"."""
        passes = 2.0 * sum(segment.multiplications for segment in problem.segments[1:])
        flops = flops_a_point(problem.sizes, problem.Y.shape[1], passes, self.cg_iterations)
        if self.direction == "direct":
            flops = {name: flops[name] for name in ("direct_dual", "direct_primal")}
        return self.direction if self.direction in flops else min(flops, key=lambda name: flops[name])

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Shared | None:
        """Prepares preconditioner and fixed tangents; returns None if directions are computed directly."""
        if self.choice(sample) != "dual":
            return None
        stiffest = sample.loss.stiffness * max(float(np.abs(m.inverse).max()) for m in sample.metrics)
        single = self.cg_precision == "single" and self.cg_tolerance >= SINGLE and stiffest <= STIFF
        dtype = np.dtype(np.float32) if single else sample.Z.dtype
        precondition = dual_preconditioner(sample, average, dtype, np.float32 if single else np.float64)
        maps = (pair for segment in sample.segments[1:] for pair in zip(segment.maps, segment.blocks, strict=True))
        return Shared(precondition, fixed(maps, [W.astype(dtype, copy=False) for W in sample.weights]))

    def solve(self, problem: ZProblem, shared: Shared | None) -> ZSolution:
        Z, errors, choice = problem.Z.copy(), np.empty(len(problem.Z)), self.choice(problem)
        for _ in range(self.iterations):
            errors, model = linearised(problem, Z, shared)
            if shared is None:
                dZ = direct_dual(model) if choice == "direct_dual" else direct_primal(model)
            else:
                with np.errstate(over="ignore", invalid="ignore"):  # such a step is not taken
                    dZ = dual(model, shared.precondition, self.cg_iterations, self.cg_tolerance)
            self._line_search(problem, Z, dZ.astype(Z.dtype, copy=False), errors)
        return ZSolution(Z, errors)

    def _line_search(self, problem: ZProblem, Z: Array, dZ: Array, errors: Array) -> None:
        """Moves each row of Z, in place, to the first trial step that lowers its objective, and updates `errors`.

        Rows that have not found one yet are evaluated by themselves; which rows these are depends on the tile alone.
        """
        steps = [0.5**i for i in range(self.halvings + 1)]
        if self.relaxation != 1.0:
            steps.insert(0, self.relaxation)
        rows = np.arange(len(Z))
        for step in steps:
            some = EVERY if len(rows) == len(Z) else rows  # all of them without a copy
            trial = step * dZ[some]
            trial += Z[some]
            with np.errstate(over="ignore", invalid="ignore"):  # a trial may go too far: it is not taken
                values = problem.values(trial, some)
            better = values < errors[rows]
            moved = rows[better]
            Z[moved], errors[moved] = trial[better], values[better]
            rows = rows[~better]
            if not len(rows):
                break


def linearised(problem: ZProblem, Z: Array, shared: Shared | None) -> tuple[Array, Linearised]:
    """Computes the objective of each point at Z, (n,), and the Gauss-Newton model there.

    shared: what the points share; None if directions are computed directly.
    The objectives have the precision of Z, and the model has the precision of `shared` or, without it, of Z.
    """
    dtype, metrics = Z.dtype if shared is None else shared.fixed.dtype, problem.metrics
    F, tangents = problem.linearise(Z, None if shared is None else shared.fixed)
    if dtype != Z.dtype:
        metrics = tuple(Metric(*(A.astype(dtype) for A in (m.M, m.inverse, m.root))) for m in metrics)
    root = problem.loss.root(problem.Y, F[-1]).astype(dtype)
    missed = problem.missed(Z, F)
    feasible = [c.astype(dtype, copy=False) for c in missed]
    tangents[-1] = root.after(tangents[-1])
    return problem.weigh(Z, missed, F[-1]), Linearised(problem.sizes, feasible, tangents, root.residual, metrics)


IDENTITY = Segment((), ())


@dataclass(frozen=True)
class AlternatingZ:
    """Sweeps from the last site to the first, and minimises eq. (4) over the coordinates z_k of one site at a time:

        1/2 ||z_k - f_k(z_{k-1}) - u_k||_{M_k}^2 + 1/2 ||z_{k+1} - f_{k+1}(z_k) - u_{k+1}||_{M_{k+1}}^2,

    where for k = K the loss takes the place of the second term.  This is the Z-problem of a net with one site, which
    `GaussNewtonZ` solves.

    Cost of a sweep: an iteration of gauss_newton, and one pass for each forward value.
    """

    iterations: int = 1
    relaxation: float = 1.0
    cg_iterations: int = 4
    cg_tolerance: float = 0.01

    handles: ClassVar[Demands] = CONTINUOUS

    @property
    def _inner(self) -> GaussNewtonZ:
        return GaussNewtonZ(1, self.relaxation, self.cg_iterations, self.cg_tolerance)

    def prepare(self, sample: ZProblem, average: Average = AT_ONCE) -> Any:
        return [self._inner.prepare(one_site(sample, k), average) for k in range(len(sample.sizes))]

    def solve(self, problem: ZProblem, shared: Any) -> ZSolution:
        Z = problem.Z.copy()
        for _ in range(self.iterations):
            for k in reversed(range(len(problem.sizes))):
                solution = self._inner.solve(one_site(replace(problem, Z=Z), k), shared[k])
                split_columns(problem.sizes, Z)[k][:] = solution.Z
        return ZSolution(Z, problem.values(Z))


def one_site(problem: ZProblem, k: int) -> ZProblem:
    """Returns the Z-problem of site k alone, numbered from 0, with all other coordinates fixed.

    Its coordinates have the target f_k(z_{k-1}) + u_k; its outputs have the coordinates of the next site as targets.
    """
    sites = problem.sites(problem.Z)
    if k == 0:
        target = problem.first
    else:
        target = problem.segments[k].forward(problem.weights, problem.inputs(k, sites[k - 1]))
        if problem.shift is not None:
            target += problem.sites(problem.shift)[k]
    loss, Y = problem.loss, problem.Y
    if k + 1 < len(sites):
        loss, Y = Squared(problem.metrics[k + 1]), sites[k + 1]
        if problem.shift is not None:
            Y = Y - problem.sites(problem.shift)[k + 1]
    return replace(
        problem,
        segments=(IDENTITY, problem.segments[k + 1]),
        sizes=(problem.sizes[k],),
        loss=loss,
        metrics=(problem.metrics[k],),
        X=target,
        Y=Y,
        Z=sites[k],
        shift=None,
        sides=problem.sides[k : k + 1],
    )
