"""The contract of a fitter, for every row of FITTERS: in its own right, as a W-solver, and in a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from contracts.examples import cases, example_of, one_hot, summed
from contracts.test_trainers import offer
from covering import each
from numpy.testing import assert_allclose, assert_array_equal
from plans import plan_of

from macmpi import UsageError, config
from macmpi.config import FITTERS as NAMES
from macmpi.data.dataset import Dataset
from macmpi.data.scaling import Scaling
from macmpi.half_steps.problems import prepare_w, w_problem
from macmpi.mac import Mac
from macmpi.methods.starts import Origin, start
from macmpi.nets.chain import Segment
from macmpi.nets.layers import Map
from macmpi.nets.layers.affine import Affine
from macmpi.nets.layers.codes import Binary
from macmpi.nets.layers.fitted import Kernels, Neighbours, Trees
from macmpi.nets.losses import LOSSES
from macmpi.parallel.streams import stream
from macmpi.parallel.team import Team
from macmpi.plan.choices import fitters
from macmpi.results import model_file
from macmpi.results.model import Model
from macmpi.solvers.fitters import FITTERS, ByFitter
from macmpi.solvers.w_problem import SegmentProblem, values
from macmpi.typing import Array

pytest.importorskip("sklearn")
pytestmark = pytest.mark.filterwarnings("error")


@dataclass(frozen=True)
class Example:
    """A map with what it reads and what it should give; kind of target: "numbers", "labels", "bits"."""

    map: Map
    inputs: Array
    targets: Array
    what: str = "numbers"

    @property
    def after(self) -> tuple[Map, ...]:
        return (Binary(self.map.n_out),) if self.what == "bits" else ()


def curved(map_: Map, random: np.random.Generator, n: int = 60) -> Example:
    A = random.normal(size=(n, map_.n_in))
    return Example(map_, A, np.sin(A @ random.normal(size=(map_.n_in, map_.n_out))))


def alike(map_: Map, random: np.random.Generator) -> Example:
    """All points are the same one, and their targets are not."""
    return Example(map_, np.full((20, map_.n_in), 0.3), random.normal(size=(20, map_.n_out)))


def classes(random: np.random.Generator, present: int = 4) -> Example:
    A = random.normal(size=(50, 3))
    return Example(Affine(3, 4), A, np.eye(4)[np.abs(A @ random.normal(size=(3, present))).argmax(axis=1)], "labels")


def bits(random: np.random.Generator) -> Example:
    """One unit is always on."""
    A = random.normal(size=(50, 3))
    T = (A @ random.normal(size=(3, 4)) > 0.2).astype(float)
    T[:, 2] = 1.0
    return Example(Affine(3, 4), A, T, "bits")


def forests(kind: str) -> list[Callable[[np.random.Generator], Example]]:
    maps = (Trees(3, 2, 4, 3, kind), Trees(1, 1, 1, 1, kind), Trees(3, 1, 2, 5, kind))
    return [*(partial(curved, map_) for map_ in maps), partial(alike, Trees(2, 2, 3, 2, kind))]


EXAMPLES: dict[str, list[Callable[[np.random.Generator], Example]]] = {
    "forest": forests("forest"),
    "boosted": forests("boosted"),
    "kernel_ridge": [
        partial(curved, Kernels(3, 2, 20, 1.5)),
        partial(curved, Kernels(3, 1, 70, 1.5)),
        partial(alike, Kernels(2, 2, 5, 1.0)),
    ],
    "nearest_neighbours": [
        partial(curved, Neighbours(3, 2, 20)),
        partial(curved, Neighbours(3, 1, 70, 1)),
        partial(alike, Neighbours(2, 2, 3)),
    ],
    "linear_svm": [classes, partial(classes, present=2), bits],
    "logistic": [classes, partial(classes, present=2), bits],
}


case = each(cases(FITTERS, EXAMPLES))


@pytest.fixture
def example(case: tuple[str, int], random: np.random.Generator) -> Example:
    return example_of(case, EXAMPLES, "EXAMPLES of test_fitters.py")(random)


@pytest.fixture
def fitter(case: tuple[str, int]) -> Any:
    return FITTERS[case[0]]()


def drawn() -> Any:
    return stream(0, "fitter", 1)


def problem_of(example: Example, W: Array | None = None, ridge: float = 0.1) -> SegmentProblem:
    shape = example.map.parameter_shape
    assert shape is not None
    segment = Segment((example.map, *example.after), (0, *(None for _ in example.after)))
    loss = LOSSES["cross_entropy" if example.what == "labels" else "squared"]
    flat = np.zeros(shape) if W is None else W
    return SegmentProblem(
        example.inputs, example.targets, ridge, flat.reshape(1, -1), segment, loss, (shape,), key=(0, 3, 1)
    )


def error(problem: SegmentProblem, W: Array) -> float:
    return float(values(problem, W.reshape(1, -1), summed(problem.rows, 2))[0])


# --- the contract -----------------------------------------------------------------------------------------------------


def test_the_words_of_the_config_are_the_registry() -> None:
    assert set(NAMES) == FITTERS.keys()


def test_shapes(fitter: Any, example: Example) -> None:
    """From nothing and from the present weights, in either precision; it fits what it says."""
    assert example.map.spec()["kind"] in fitter.kinds
    assert example.what in fitter.targets <= {"numbers", "labels", "bits"}
    present = None
    for dtype in (np.float64, np.float32):
        present = fitter.fit(example.map, example.inputs.astype(dtype), example.targets, present, drawn())
        assert present.shape == example.map.parameter_shape
        assert np.isfinite(present).all()


def test_the_same_stream_gives_the_same_bits_and_arguments_are_left_alone(fitter: Any, example: Example) -> None:
    A, T = example.inputs.copy(), example.targets.copy()
    first = fitter.fit(example.map, A, T, None, drawn())
    assert_array_equal(fitter.fit(example.map, A.copy(), T.copy(), None, drawn()), first)
    kept = first.copy()
    fitter.fit(example.map, A, T, first, drawn())
    for now, was in ((A, example.inputs), (T, example.targets), (first, kept)):
        assert_array_equal(now, was)


def test_it_fits_better_than_nothing(case: tuple[str, int], fitter: Any, example: Example) -> None:
    """Better than weights of 0, on the points that it is given, unless all of these are alike."""
    problem = problem_of(example, ridge=0.0)
    found = error(problem, fitter.fit(example.map, example.inputs, example.targets, None, drawn()))
    nothing = error(problem, np.zeros(problem.shapes[0]))
    assert found < nothing or np.ptp(example.inputs) == 0.0


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0])
def test_no_w_step_raises_the_segments_own_error(
    scale: float, fitter: Any, example: Example, random: np.random.Generator
) -> None:
    """From any weights, those of a fit to other targets among them."""
    other = replace(example, targets=example.targets[::-1])
    W = scale * fitter.fit(other.map, other.inputs, other.targets, None, drawn())
    problem = problem_of(example, W)
    found = ByFitter(fitter).solve(problem, summed(problem.rows, 2))
    assert found.shape == problem.start.shape
    assert error(problem, found) <= error(problem, W)


class Worse:
    """Gives other weights than it should; says whether it descends."""

    kinds: ClassVar[frozenset[str]] = frozenset({"affine"})
    targets: ClassVar[frozenset[str]] = frozenset({"numbers"})
    library: ClassVar[str] = ""

    def __init__(self, descends: bool, shape: tuple[int, ...] = (2, 4)) -> None:
        self.descends, self.shape = descends, shape

    def fit(self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Any) -> Array:
        return np.full(self.shape, 1e3)


def test_weights_are_kept_where_they_were_better_unless_the_fitter_descends(random: np.random.Generator) -> None:
    problem = problem_of(curved(Affine(3, 2), random), random.normal(size=(2, 4)))
    over_points = summed(problem.rows, 2)
    assert_array_equal(ByFitter(Worse(False)).solve(problem, over_points), problem.start)
    assert_array_equal(ByFitter(Worse(True)).solve(problem, over_points), np.full((1, 8), 1e3))
    with pytest.raises(ValueError, match=r"the fitter of affine gave weights of shape \(3, 4\), not \(2, 4\)"):
        ByFitter(Worse(False, (3, 4))).solve(problem, over_points)


# --- what scikit-learn computes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trees", "depth", "outputs"), [(5, 3, 2), (1, 1, 1), (4, 7, 3)])
def test_a_forest_computes_what_scikit_learn_does(
    trees: int, depth: int, outputs: int, random: np.random.Generator
) -> None:
    from sklearn.ensemble import RandomForestRegressor

    map_ = Trees(4, outputs, trees, depth)
    example = curved(map_, random)
    A, T = example.inputs.astype(np.float32).astype(float), example.targets
    W = FITTERS["forest"]().fit(map_, A, T, None, drawn())
    seeds, new = drawn().integers(2**31 - 1, size=trees), random.normal(size=(200, 4)).astype(np.float32).astype(float)
    theirs = [RandomForestRegressor(1, max_depth=depth, max_features=1 / 3, random_state=int(seed)) for seed in seeds]
    for forest in theirs:
        forest.fit(A, T if outputs > 1 else T[:, 0])
    for points in (A, new):
        expected = np.mean([forest.predict(points).reshape(-1, outputs) for forest in theirs], axis=0)
        assert_allclose(map_.forward(W, points), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "case", [case for case in cases(FITTERS, EXAMPLES) if hasattr(FITTERS[case.values[0][0]], "fit_rows")]
)
def test_rows_that_are_fitted_apart_are_those_of_the_whole(fitter: Any, example: Example) -> None:
    """Whoever fits them, and whichever others with them."""
    whole = fitter.fit(example.map, example.inputs, example.targets, None, drawn())
    for rows in (slice(0, 1), slice(1, len(whole)), slice(len(whole) - 1, len(whole)), slice(0, len(whole))):
        found = fitter.fit_rows(example.map, rows, example.inputs, example.targets, drawn())
        assert_array_equal(found, whole[rows])


def test_one_neighbour_of_all_points_is_the_targets(random: np.random.Generator) -> None:
    """And five are scikit-learn's mean of means: each example stands for the five points nearest to it."""
    from sklearn.neighbors import KNeighborsRegressor

    example = curved(Neighbours(3, 2, 60, 1), random)
    W = FITTERS["nearest_neighbours"]().fit(example.map, example.inputs, example.targets, None, drawn())
    assert_allclose(example.map.forward(W, example.inputs), example.targets, rtol=1e-12)
    map_ = Neighbours(3, 2, 60)
    W = FITTERS["nearest_neighbours"]().fit(map_, example.inputs, example.targets, None, drawn())
    near = KNeighborsRegressor(5, algorithm="brute").fit(example.inputs, example.targets)
    expected = KNeighborsRegressor(5, algorithm="brute").fit(example.inputs, near.predict(example.inputs))
    assert_allclose(map_.forward(W, example.inputs), expected.predict(example.inputs), rtol=1e-9)


def test_kernel_ridge_on_all_points_is_kernel_ridge_regression(random: np.random.Generator) -> None:
    from sklearn.kernel_ridge import KernelRidge

    map_ = Kernels(3, 2, 40, 1.5)
    example = curved(map_, random, 40)
    W = FITTERS["kernel_ridge"]().fit(map_, example.inputs, example.targets, None, drawn())
    theirs = KernelRidge(alpha=0.1, kernel="rbf", gamma=1.0 / 1.5**2).fit(example.inputs, example.targets)
    new = random.normal(size=(50, 3))
    assert_allclose(map_.forward(W, new), theirs.predict(new), rtol=1e-6, atol=1e-6)


def test_a_point_at_the_threshold_goes_to_the_first_child() -> None:
    """Two trees of depth 2 by hand: node i is followed by 2 i + 1, or above its threshold by 2 i + 2."""
    tree = [1, 0, 0, 0.5, -1.0, 2.0, 10.0, 20.0, 30.0, 40.0]
    points = np.array([[-1.0, 0.5], [0.0, 0.5], [2.0, 0.6], [2.1, 0.6]])
    expected = np.array([[10.0], [20.0], [30.0], [40.0]])
    assert_array_equal(Trees(2, 1, 1, 2).forward(np.array([tree]), points), expected)
    assert_array_equal(Trees(2, 1, 2, 2).forward(np.array([tree, tree]), points), 2.0 * expected)


def test_a_fitter_is_given_the_present_weights_and_nothing_at_first(random: np.random.Generator) -> None:
    """And the same stream each time, whatever the iteration."""
    seen: list[Any] = []

    class Noted(Worse):
        def fit(self, map: Any, inputs: Array, targets: Array, start: Array | None, random: Any) -> Array:
            seen.append((start, random.integers(2**31)))
            return super().fit(map, inputs, targets, start, random)

    W = random.normal(size=(2, 4))
    for flat, iteration in ((np.zeros((2, 4)), 0), (W, 1)):
        problem = replace(problem_of(curved(Affine(3, 2), random), flat), key=(0, iteration, 1))
        ByFitter(Noted(True)).solve(problem, summed(problem.rows, 2))
    assert seen[0][0] is None
    assert_array_equal(seen[1][0], W)
    assert seen[0][1] == seen[1][1]


def test_damaged_trees_give_numbers_and_end() -> None:
    """Any weights are some trees: a file of another's cannot ask for columns that are not there."""
    map_ = Trees(3, 2, 4, 3)
    for value in (-7.0, 1e300, 0.5):
        W = np.full(map_.parameter_shape, value)
        W[:, map_.nodes :] = 1.0
        assert_array_equal(map_.forward(W, np.ones((5, 3))), np.full((5, 2), 4.0))


# --- in a run ---------------------------------------------------------------------------------------------------------

RUNS: dict[str, dict[str, Any]] = {
    "forest": {"model.hidden": [3], "model.activation": "forest"},
    "boosted": {"model.hidden": [3, 5], "model.activation": ["boosted", "tanh"]},
    "kernel_ridge": {"model.hidden": [6, 3], "model.activation": ["tanh", "kernel_ridge"], "model.width": 2.0},
    "nearest_neighbours": {
        "model.hidden": [4, 3],
        "model.activation": ["nearest_neighbours", "tanh"],
        "model.examples": 30,
    },
    "linear_svm": {"model.hidden": [5], "model.activation": "binary", "model.fitters": ["linear_svm", "auto"]},
    "logistic": {
        "model.hidden": [5],
        "model.activation": "tanh",
        "model.loss": "cross_entropy",
        "model.fitters": ["auto", "logistic"],
    },
}


def configured(keys: dict[str, Any]) -> config.Config:
    table: dict[str, dict[str, Any]] = {"model": {"trees": 4, "depth": 3, "examples": 9}, "method": {"name": "mac"}}
    table["penalty"] = {"mu0": 1.0}
    for name, value in keys.items():
        part, key = name.split(".")
        table.setdefault(part, {})[key] = value
    return config.validate(table, "this test")


def points(labels: bool) -> Dataset:
    random = np.random.default_rng(3)
    X, X_val = (np.tanh(random.normal(size=(k, 2)) @ np.ones((2, 4)) + random.normal(size=(k, 4))) for k in (60, 9))
    Y, Y_val = (one_hot(random, len(A), 3) if labels else A for A in (X, X_val))
    unit, of_y = (Scaling(np.zeros(n), np.ones(n)) for n in (4, Y.shape[1]))
    return Dataset(X, Y, X_val, Y_val, unit, of_y, "")


def begun(name: str, keys: dict[str, Any] | None = None) -> tuple[Mac, Any]:
    whole, data = configured(RUNS[name] | (keys or {})), points("model.loss" in RUNS[name])
    mac = Mac(plan_of(whole, 4, data.Y.shape[1], len(data.X), len(data.X_val), 1), data, Team())
    state = start(mac, Origin())
    mac.begin(state)
    return mac, state


WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"penalty.method": "augmented_lagrangian"},
    {"penalty.metric": "variance"},
    {"model.precision": "float32", "penalty.mu_max": 1e4},
)


@pytest.mark.parametrize("keys", WAYS, ids=str)
@pytest.mark.parametrize("name", sorted(FITTERS))
def test_no_w_step_of_a_run_raises_a_segments_error(name: str, keys: dict[str, Any]) -> None:
    """The fitter is handed inputs and targets of its own segment, and weights change."""
    mac, state = begun(name, keys)
    work, moved = mac.plan.work.w_step, False
    job = next(j for j in work.jobs if mac.plan.resolved.regressions[j.segment].by_fitter)
    (block,) = mac.plan.chain.regressed(job.segment)
    job = replace(job, units=None, place=mac.plan.offsets.block(block))  # all rows that are fitted apart
    for _ in range(3):
        mac.z_step(state)
        problem = w_problem(prepare_w(mac.parts, work, state), job)
        before = state.weights[job.place].copy()
        mac.w_step(state)
        now = state.weights[job.place]
        own = tuple(values(problem, W[None].astype(float), mac.parts.over_points)[0] for W in (now, before))
        assert own[0] <= own[1] * (1.0 + (1e-5 if "model.precision" in keys else 0.0))
        moved = moved or bool((now != before).any())
        state.completed()
    assert moved


@pytest.mark.parametrize("name", sorted(FITTERS))
def test_a_net_with_it_is_saved_and_loaded(name: str, tmp_path: Path) -> None:
    mac, state = begun(name)
    mac.sweep(state)
    model_file.write(tmp_path / "model.h5", Model.of(mac.plan.chain, {"last": state.weights}, mac.data), {})
    again = model_file.load(tmp_path / "model.h5")
    assert again.chain.maps == mac.plan.chain.maps
    expected = mac.plan.chain.forward(mac.parts.weights(state), mac.data.X)
    assert_array_equal(again.chain.forward(again.weights, mac.data.X), expected)


LISTED: dict[str, tuple[dict[str, Any], list[str], dict[int, str]]] = {
    "dense": ({"model.hidden": [5, 3], "model.activation": "tanh"}, ["auto", "auto", "logistic"], {2: "logistic"}),
    "codewords": (
        {"model.hidden": [5, 3], "model.activation": ["quantise", "tanh"], "model.words": 7},
        ["auto", "auto", "logistic"],
        {3: "logistic"},
    ),
    "its own": (
        {"model.hidden": [5], "model.activation": "forest"},
        ["auto", "logistic"],
        {0: "forest", 1: "logistic"},
    ),
    "another than its own": ({"model.hidden": [5], "model.activation": "forest"}, ["boosted", "auto"], {0: "boosted"}),
}


@pytest.mark.parametrize("case", LISTED)
def test_a_list_names_layers_not_blocks_of_weights(case: str) -> None:
    keys, listed, expected = LISTED[case]
    whole = configured({**keys, "model.fitters": listed, "model.loss": "cross_entropy"})
    plan = plan_of(whole, 4, 3, 60, 9, 1)
    assert fitters(whole.model, plan.chain) == expected
    named = {
        plan.chain.segments[k].parameter_blocks[0]: r.name for k, r in plan.resolved.regressions.items() if r.by_fitter
    }
    assert named == expected


def test_a_fitter_of_the_outputs_is_refused_targets_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, {("macmpi.fitters", "worse"): lambda: Worse(True, (4, 6))})
    keys = {"model.hidden": [5], "model.activation": "tanh", "model.fitters": ["auto", "worse"], "loss.missing": True}
    with pytest.raises(UsageError, match=r'"worse".*loss.missing = true.*use model.fitters = "auto" there'):
        plan_of(configured(keys), 5, 4, 60, 9, 1)
    plan_of(configured({**keys, "model.fitters": "auto"}), 5, 4, 60, 9, 1)


def test_a_forest_is_a_job_a_tree_and_keeps_its_weights_where_they_were_better() -> None:
    """The guard looks at all trees together, once the ranks have exchanged them."""
    mac, state = begun("forest", {})
    plan, trees = mac.plan, mac.plan.chain.blocks[0].parameter_shape
    assert trees is not None
    jobs = plan.work.jobs(0)
    assert [job.units.rows for job in jobs if job.units] == [slice(i, i + 1) for i in range(trees[0])]
    assert (jobs[0].place.start, jobs[-1].place.stop) == (0, plan.offsets.weights[1])
    mac.z_step(state)
    mac.w_step(state)
    first = state.weights[plan.offsets.block(0)].copy()
    assert first.any()
    state.Z[:] = plan.chain.segments[0].forward(mac.parts.weights(state), mac.data.X)  # no other forest does as well
    mac.w_step(state)
    assert_array_equal(state.weights[plan.offsets.block(0)], first)
