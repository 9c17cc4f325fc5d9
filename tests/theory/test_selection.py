"""Model selection in the W-step (sections 2.4 and 4.4): separable, exact, and E_Q + C never rises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of
from scipy import special, stats
from theory.basis_nets import NET, autoencoder, begun, config, e_q, fitted, gaussians, own_ridges, planned, regression
from theory.checks import deviation
from theory.problems import given
from unit.crew import crew

from macmpi.config import Config
from macmpi.config.reading import read
from macmpi.data.dataset import Dataset
from macmpi.half_steps.problems import layer_gram
from macmpi.half_steps.w_step import carry_out
from macmpi.mac import Mac
from macmpi.methods.selection import Comparing, Selection
from macmpi.nets.layers.fitted import GaussianBasis
from macmpi.nets.losses import Squared
from macmpi.nets.losses.cross_entropy import CrossEntropy
from macmpi.parallel import tiles
from macmpi.parallel.team import Team
from macmpi.plan.selectable import CRITERIA, candidates_of
from macmpi.plan.work_lists import Job
from macmpi.solvers import cholesky
from macmpi.state import W_STEP, Z_STEP, State
from macmpi.training import checkpoint
from macmpi.training.checkpoint import contents
from macmpi.typing import Array

SETTINGS: dict[str, dict[str, Any]] = {
    "objective": {"penalty": {"ridge": 2e-3, "ridge_scale": "objective"}},
    "unit": {"penalty": {"ridge": 0.1}},
    "multipliers": {"penalty": {"method": "augmented_lagrangian", "ridge": 0.01}},
    "over-relaxed": {"penalty": {"ridge": 0.01}, "w_step": {"relaxation": 1.9}},
    "wide": {"model": {"hidden": [12, 100, 10]}, "penalty": {"ridge": 0.01}},
}
A_PARAMETER = {
    "aic": lambda n: 1.0,
    "bic": lambda n: 0.5 * math.log(n),
    "mdl": lambda n: 0.5 * math.log(n / (2.0 * math.pi)),
}
"""In units of epsilon^2, in addition to half the sum of squares."""

PAIR = [0.3, 0.03]
ROUNDING = 1.0 + 1e-11


def selecting(data: Dataset | None = None, every: int = 1, **tables: Any) -> tuple[Selection, State]:
    """Candidates 2, 4, ..., 12 for the encoder and 2, 4, ..., 10 for the decoder; the state after a W-step."""
    data = data or autoencoder()
    model = {"hidden": [12, 2, 10], **NET, **tables.get("model", {})}
    pairs = zip(model["hidden"], model["activation"], strict=True)
    sizes = [list(range(2, n, 2)) if kind == "rbf" else [] for n, kind in pairs]
    keys = {"criterion": "aic", "epsilon2": [0.1], "sizes": sizes, "every": every}
    tables["selection"] = {**keys, **tables.get("selection", {})}
    made = config(**tables)
    method = Selection(planned(made, data), data, Team())
    state = begun(method)
    method.begin(state)
    return method, state


def trial_of(method: Selection, state: State) -> tuple[Comparing, list[Job]]:
    work = method.largest.work.regressions([b.segment for b in method.candidates])
    own = {b.segment: b for b in method.candidates}
    ridges = dict(enumerate([ridge] for ridge in own_ridges(method, state)))
    trial = Comparing(method.largest, given(method, state), work, own, ridges)
    carry_out(work, trial)
    return trial, list(work.jobs)


def inputs_and_targets(method: Selection, state: State, basis: int) -> tuple[Array, Array]:
    """Of f_1 or f_2: the multipliers move the targets of f_1."""
    if basis:
        return state.Z, method.data.Y
    mu = state.mu
    return method.data.X, state.Z - state.own.multipliers / mu if state.own.multipliers.size else state.Z


def order_of(method: Selection, A: Array, basis: int) -> Array:
    """The centres of the largest candidate."""
    block = method.largest.chain.segments[basis].blocks[0]
    assert block is not None
    return method.largest.centres(block, A, None)


def alone(method: Selection, state: State, basis: int, count: int) -> float:
    """The least part of E_Q + ridge that a net of `count` centres has, fitted by itself."""
    A, T = inputs_and_targets(method, state, basis)
    C, width = order_of(method, A, basis)[:count], method.begun.resolved.config.model.each("width", 2)[basis]
    ridge = own_ridges(method, state)[basis]
    scale = 1.0 if basis else state.mu
    return scale * fitted(gaussians(A, C, width), T, ridge)[1]


def price(method: Selection, counts: list[int]) -> float:
    """C in the scale of E_Q."""
    keys, n, data = method.begun.resolved.config.selection, method.plan.n_train, method.data
    of = A_PARAMETER.get(keys.criterion, CRITERIA[keys.criterion])(n)
    (H,) = method.plan.chain.site_sizes
    sizes = [data.X.shape[1] + H, H + data.Y.shape[1]]
    epsilons = keys.epsilon2 * (2 // len(keys.epsilon2))
    return sum(of * e * size * count for e, size, count in zip(epsilons, sizes, counts, strict=True))


def total(method: Selection, state: State) -> float:
    """E_Q + ridge + C."""
    return e_q(method, state, method.begun.resolved.config) + price(method, method.plan.basis_sizes)


def totals(method: Selection, state: State) -> tuple[list[Array], list[float]]:
    """Of candidates and of what is, net by net; widths and ridges one after the other."""
    tried, present = method.totals(state)
    return [np.concatenate([v.ravel() for v, _ in own]) for own in tried.values()], [v for v, _ in present.values()]


def select(method: Selection, state: State) -> None:
    """A W-step with selection alone."""
    state.position = W_STEP
    method.sweep(state)
    assert method.changed is not None


# --- the errors of the candidates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("mu", [0.1, 10.0])
def test_the_errors_of_all_candidates_are_those_of_single_fits(mu: float, setting: str) -> None:
    for data in (autoencoder(), regression()):
        method, state = selecting(data, every=100, **SETTINGS[setting])
        method.sweep(state)
        state.mu = mu
        trial, jobs = trial_of(method, state)
        assert [job.segment for job in jobs] == ([0, 0, 1] if setting == "wide" else [0, 1])
        for b, basis in enumerate(method.candidates):
            counts = basis.counts
            assert len(counts) > 4
            squares = sum(trial.objectives(job)[1:] for job in jobs if job.segment == b)
            found = method.plan.penalty_weight(b, mu) * squares
            deviation("errors of candidates", found, [alone(method, state, b, count) for count in counts])


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_incumbent_counts_as_it_is(setting: str) -> None:
    method, state = selecting(**SETTINGS[setting])
    random = np.random.default_rng(3)
    state.weights += 0.1 * random.normal(size=len(state.weights))
    method.parts.begin_first(state)
    _, present = totals(method, state)
    mu = state.mu
    shifts = 0.5 * np.sum(state.own.multipliers**2) / mu
    assert_allclose(sum(present), total(method, state) + shifts, rtol=1e-10)


def test_the_candidates_centres_are_the_first_of_one_order_of_the_points() -> None:
    method, state = selecting()
    A, _ = inputs_and_targets(method, state, 0)
    whole = order_of(method, A, 0)
    assert len(np.unique(whole, axis=0)) == 12
    assert all((c == A).all(axis=1).any() for c in whole)
    assert not np.array_equal(whole, A[:12])
    select(method, state)
    C1, _, C3, _ = method.parts.weights(state)
    assert len(C1) < 12 or len(C3) < 10
    assert_array_equal(C1, whole[: len(C1)])
    assert_array_equal(C3, order_of(method, state.Z, 1)[: len(C3)])


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_features_and_the_factors_of_the_candidates(
    ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All together they make what one rank makes alone, no point and no piece twice, and find the same bits."""
    for name, size in (("GRAM_WHOLE", 8), ("GRAM_ROWS", 3), ("EXACT_WIDTH", 2)):
        monkeypatch.setattr(tiles, name, size)
    for name, size in (("WHOLE", 8), ("PANEL", 3), ("LEAST", 2)):
        monkeypatch.setattr(cholesky, name, size)
    method, state = selecting()
    made = list[tuple[str, int]]()
    forward, piece = GaussianBasis.forward, cholesky._piece

    def counted(self: GaussianBasis, W: Any, A: Array, **keys: Any) -> Array:
        made.append(("features", len(A)))
        return forward(self, W, A, **keys)

    def counted_piece(*arguments: Any) -> Array:
        found = piece(*arguments)
        made.append(("piece", found.size))
        return found

    monkeypatch.setattr(GaussianBasis, "forward", counted)
    monkeypatch.setattr(cholesky, "_piece", counted_piece)

    def together(team: Any) -> tuple[list[Array], list[float]]:
        plan = replace(method.plan, ranks=team.size)
        return totals(Selection(plan, method.data, team), deepcopy(state))

    one = together(Team())
    alone_made = sorted(made)
    assert len({kind for kind, _ in alone_made}) == 2
    made.clear()
    for found in crew(ranks, together):
        assert not isinstance(found, Exception)
        for mine, theirs in zip(one, found, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                assert_array_equal(a, b)
    assert sorted(made) == alone_made


# --- what a parameter costs -------------------------------------------------------------------------------------------

FROM_THE_LIKELIHOOD: dict[str, Callable[[float, int, int], float]] = {
    "aic": lambda log_l, k, n: 0.5 * (2.0 * k - 2.0 * log_l),
    "bic": lambda log_l, k, n: 0.5 * (k * math.log(n) - 2.0 * log_l),
    "mdl": lambda log_l, k, n: 0.5 * k * math.log(n / (2.0 * math.pi)) - log_l,
}
"""Half of AIC and BIC by their definitions, of k parameters and n points; the length of a description by its leading
terms."""


@pytest.mark.parametrize("criterion", CRITERIA)
def test_e1_and_the_cost_compare_models_as_the_likelihood_does(criterion: str) -> None:
    """Of normal errors of variance eps^2 by SciPy's density, and of labels: differences of E1 + C are those of
    criterion times eps^2, of a negative log likelihood those of the criterion itself."""
    random, n, of = np.random.default_rng(0), 50, FROM_THE_LIKELIHOOD[criterion]
    Y, eps = random.normal(size=(n, 3)), 0.3
    labels = np.eye(3)[random.integers(0, 3, size=n)]
    models = [(k, Y + 0.2 * random.normal(size=Y.shape), random.normal(size=Y.shape)) for k in (4, 9, 17)]
    normal = [of(stats.norm.logpdf(Y, F, eps).sum(), k, n) for k, F, _ in models]
    multinomial = [of(float(np.sum(labels * special.log_softmax(F, axis=1))), k, n) for k, _, F in models]
    for loss, targets, epsilon2, expected in (
        (Squared(), Y, eps**2, normal),
        (CrossEntropy(), labels, 1.0, multinomial),
    ):
        outputs = [(k, G if loss.labels else F) for k, F, G in models]
        found = [loss.value(targets, F).sum() + CRITERIA[criterion](n) * epsilon2 * k for k, F in outputs]
        deviation(f"price of {criterion}", np.diff(found), epsilon2 * np.diff(expected))


def test_the_shipped_path_has_the_papers_price() -> None:
    """2 eps^2 a parameter, as section 4.4 prints it, with an eps^2 of each net."""
    keys = read(Path(__file__).parents[2] / "run" / "coil_select.toml", []).selection
    assert [CRITERIA[keys.criterion](1368) * e for e in keys.epsilons(2)] == [2.0 * 3e-4, 2.0 * 0.05]


# --- what is chosen ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon2", [[0.1], PAIR, [1e-9], [1e3]], ids=str)
@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_selected_sizes_are_the_best_of_all_pairs(criterion: str, epsilon2: list[float]) -> None:
    """min over all architectures of min over their weights of E_Q + C: M K fits say what M^K nets would."""
    keys = {"criterion": criterion, "epsilon2": epsilon2}
    method, state = selecting(selection=keys, **SETTINGS["objective"])
    tables = [{int(m): alone(method, state, b, int(m)) for m in method.candidates[b].counts} for b in (0, 1)]
    assert [len(t) for t in tables] == [6, 5]
    state.weights *= 0.5  # so that the incumbent is no candidate
    select(method, state)
    values = {
        (m1, m3): tables[0][m1] + tables[1][m3] + price(method, [m1, m3])
        for m1, m3 in itertools.product(tables[0], tables[1])
    }
    best = min(values, key=lambda pair: values[pair])
    assert tuple(method.plan.basis_sizes) == best
    assert_allclose(total(method, state), values[best], rtol=1e-8)
    if epsilon2 == [1e3]:
        assert best == (2, 2)


def test_candidates_without_sizes_step_from_150_to_the_layers_own_number() -> None:
    data = autoencoder()
    for hidden, first, second in (
        ([200, 2, 150], [150, 175, 200], [150]),
        ([205, 2, 176], [150, 175, 200, 205], [150, 175, 176]),
    ):
        made = config(model={"hidden": hidden}, selection={"criterion": "aic", "epsilon2": [0.1]})
        plan = plan_of(made, data.X.shape[1], data.Y.shape[1], 300, 10, 1)
        assert [b.counts.tolist() for b in candidates_of(plan.resolved, plan.n_train)] == [first, second]


# --- descent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon2", [[0.1], PAIR], ids=["one", "two"])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("setting", SETTINGS)
def test_no_selection_raises_e_q_and_the_cost(setting: str, criterion: str, epsilon2: list[float]) -> None:
    """At fixed mu, iteration after iteration, and from weights that no W-step has made."""
    keys = {"criterion": criterion, "epsilon2": epsilon2}
    method, state = selecting(selection=keys, **SETTINGS[setting])
    changes = 0
    for i in range(6):
        method.z_step(state)
        if i == 3:
            state.weights *= 0.7
        before, sizes = total(method, state), method.plan.basis_sizes
        select(method, state)
        assert total(method, state) <= before * ROUNDING
        changes += method.changed is True
        assert method.changed == (method.plan.basis_sizes != sizes)
    assert changes


def better_centres(method: Selection, state: State, basis: int) -> None:
    """Give a net the best of many random centres, fitted there: no prefix of the one order does as well."""
    A, T = inputs_and_targets(method, state, basis)
    ridge, width = own_ridges(method, state)[basis], method.begun.resolved.config.model.each("width", 2)[basis]
    C, W = method.parts.weights(state)[2 * basis : 2 * basis + 2]
    random, best = np.random.default_rng(0), np.inf
    for _ in range(300):
        tried = A[random.permutation(len(A))[: len(C)]] + 0.1 * random.normal(size=C.shape)
        found, error = fitted(gaussians(A, tried, width), T, ridge)
        if error < best:
            best, C[:], W[:] = error, tried, found
    method.parts.begin_first(state)
    state.own.grams = np.empty(0)
    method.begin(state)
    others = [alone(method, state, basis, int(m)) for m in method.candidates[basis].counts]
    assert best * (1.0 if basis else state.mu) < min(others)


def test_the_first_gram_is_that_of_the_centres_at_every_moment() -> None:
    """Of an encoder that keeps its own centres, of one that is refitted, and of one of another size."""
    epsilons = ([1e-12, 10.0], [10.0, 1e-12], [1e-12, 1e-12])
    for foreign, epsilon2 in itertools.product(("no", "good", "bad"), epsilons):
        method, state = selecting(model={"hidden": [6, 2, 6]}, selection={"epsilon2": epsilon2})
        if foreign != "no":
            better_centres(method, state, 0)
        if foreign == "bad":
            method.parts.weights(state)[1][:] = 0.0
        for _ in range(2):
            select(method, state)
            C, *_ = method.parts.weights(state)
            Phi = gaussians(method.data.X, C, 2.5)
            assert_allclose(method.parts.first(state).features, Phi, rtol=1e-12)
            assert_allclose(np.triu(layer_gram(given(method, state), 0).G), np.triu(Phi.T @ Phi), rtol=1e-10)
            method.z_step(state)


# --- the state and the record -----------------------------------------------------------------------------------------


def test_a_change_is_written_into_the_state() -> None:
    method, state = selecting()
    method.z_step(state)
    state.note_validation(method.evaluate(state).validation)
    assert len(state.history.best_weights)
    select(method, state)
    assert method.changed
    assert state.own.sizes.tolist() == [method.plan.basis_sizes[0], 2, method.plan.basis_sizes[1]]
    assert len(state.history.best_weights) == 0
    assert state.history.best_e1_val == math.inf
    assert state.history.e1_val == math.inf, "the schedule compares errors of one net alone"
    assert len(state.weights) == method.plan.offsets.weights[-1] < method.largest.offsets.weights[-1]
    state.note_validation(method.evaluate(state).validation)
    assert_array_equal(state.history.best_weights, state.weights)
    assert (state.iteration, state.position, state.mu_done) == (1, Z_STEP, state.mu)


def test_every_so_many_iterations() -> None:
    method, state = selecting(every=3)
    plain = Mac(method.plan, method.data, method.team)
    twin = deepcopy(state)
    found = []
    for i in range(7):
        if i < 2:
            plain.sweep(twin)
        method.sweep(state)
        found.append(method.changed)
        assert state.iteration == i + 1
        if i < 2:
            assert_array_equal(state.weights, twin.weights)
    assert [i + 1 for i, changed in enumerate(found) if changed is not None] == [3, 6]
    assert found[2] is True


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_record_says_what_was_done_and_what_it_costs(criterion: str) -> None:
    method, state = selecting(every=2, selection={"criterion": criterion, "epsilon2": PAIR})
    for phase in (None, "selection", None, "selection"):
        method.sweep(state)
        notes = method.notes(state)
        assert notes.get("phase") == phase
        assert notes.get("changed") == method.changed
        deviation("C(W)", 37 * notes["cost"], price(method, method.plan.basis_sizes))


def resumed(saved: State, keys: Config, data: Dataset) -> Selection:
    """As `run.py` goes on."""
    plan = planned(keys, data)
    if (architecture := saved.own.architecture).units:
        plan = plan.resized(*architecture)
    method = Selection(plan, data, Team())
    method.begin(saved)
    return method


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_run_cut_before_or_after_a_selection_goes_on_with_the_same_bits(
    cut: int, setting: str, tmp_path: Path
) -> None:
    method, state = selecting(every=2, **SETTINGS[setting])
    for _ in range(cut):
        method.sweep(state)
    saved, _ = checkpoint.read(checkpoint.save(tmp_path, state, {}, 1))
    assert (len(saved.own.sizes) > 0) == (cut >= 2)
    other = resumed(saved, method.begun.resolved.config, method.data)
    assert other.plan.basis_sizes == method.plan.basis_sizes
    assert [b.counts.tolist() for b in other.candidates] == [b.counts.tolist() for b in method.candidates]
    for _ in range(3):
        method.sweep(state)
        other.sweep(saved)
        ours, theirs = contents(state), contents(saved)
        for name in ours:
            assert_array_equal(theirs[name], ours[name], err_msg=name)
        assert (other.changed, other.notes(saved)) == (method.changed, method.notes(state))
    assert other.evaluate(saved) == method.evaluate(state)
    assert_array_equal(other.finish(saved).weights, method.finish(state).weights)


# --- nets with other layers -------------------------------------------------------------------------------------------


def test_the_layers_without_basis_functions_get_their_w_step() -> None:
    """A selection in every iteration still trains all of the net, with factors of its present inputs."""
    model = {
        "hidden": [12, 2, 6],
        "activation": ["rbf", "linear", "sigmoid"],
        "sites": ["none", "after", "after"],
        "width": 2.5,
    }
    method, state = selecting(model=model, penalty={"ridge": 0.0}, selection={"epsilon2": [0.2]})
    assert [b.layer for b in method.candidates] == [0]
    errors = [method.evaluate(state).E_Q]
    for i in range(6):
        sigmoid, output = (W.copy() for W in method.parts.weights(state)[2:])
        method.sweep(state)
        assert all((old != W).any() for W, old in zip(method.parts.weights(state)[2:], (sigmoid, output), strict=True))
        errors.append(method.evaluate(state).E_Q)
        if i == 0:
            assert method.changed
    assert len(method.plan.basis_sizes) == 1
    assert errors[-1] < errors[1] < np.inf


def test_a_net_with_basis_functions_in_one_half_alone() -> None:
    """Then its number alone changes; |W| counts the centres and the weights that read them."""
    model = {"hidden": [2, 10], "activation": ["linear", "rbf"], "sites": ["after", "none"], "width": 1.5}
    method, state = selecting(model=model, selection={"epsilon2": [0.05]})
    data = method.data
    select(method, state)
    assert method.changed
    assert [b.segment for b in method.candidates] == [1]
    assert state.own.sizes.tolist() == [2, method.plan.basis_sizes[0]]
    assert_allclose(method.notes(state)["cost"], 0.05 * (2 + data.Y.shape[1]) * method.plan.basis_sizes[0] / 37)
