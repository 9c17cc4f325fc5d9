"""Every verb of a team on 1, 2, 3 and 5 ranks, choices of the config on 2, 3 or 5 of them, in one launch.

Which choices: choices.on_ranks.  With MACMPI_TEST_CHOSEN="pairs" (`make test-long`) any two words meet that do in some
choice, with "all" (`make test-ranks`) every choice runs on 5 ranks and on 2 or 3; with MACMPI_TEST_CHOICES="by=cg
data=node" only those with these words do, on 2, 3 and 5, for the first test to see.
"""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from launch.launching import ROOT, run_program

from macmpi.config import LAYERS, Activation, Method, Model, Parallel, Penalty, Selection, Start, WStep
from macmpi.config.model import Site
from macmpi.nets.losses import LOSSES
from macmpi.plan.selectable import CRITERIA
from macmpi.solvers import W_SOLVERS, Z_SOLVERS
from macmpi.solvers.fitters import FITTERS, TRAINERS

EVERYWHERE, SOME = os.environ.get("MACMPI_TEST_CHOSEN") == "all", "MACMPI_TEST_CHOICES" in os.environ
LIMIT = 1800.0 if EVERYWHERE else 500.0

pytestmark = [pytest.mark.launch, pytest.mark.timeout(LIMIT + 50.0)]

Verdicts = dict[str, str]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """{"5 ranks: what was checked": "" or what is wrong}."""
    script = Path(__file__).with_name("split_world.py")
    folder = tmp_path_factory.mktemp("spmd")
    paths = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    outcome = run_program(program=(script,), ranks=5, cwd=folder, env={"PYTHONPATH": paths}, timeout=LIMIT, code=0)
    assert outcome.err == ""
    found: Verdicts = json.loads(outcome.out)
    return found


def checked(verdicts: Verdicts, ranks: int) -> Verdicts:
    start = f"{ranks} ranks: "
    return {name.removeprefix(start): verdict for name, verdict in verdicts.items() if name.startswith(start)}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_verbs_and_method_are_those_of_one_process(ranks: int, verdicts: Verdicts) -> None:
    mine = checked(verdicts, ranks)
    assert len(mine) > (9 if ranks == 1 else 12 if SOME else 30)
    assert {name: verdict for name, verdict in mine.items() if verdict} == {}


def test_every_method_ran_with_every_place_of_the_data(verdicts: Verdicts) -> None:
    """On 2, 3 and 5 ranks."""
    methods, places = get_args(get_type_hints(Method)["name"]), get_args(get_type_hints(Parallel)["data"])
    every = set(product([f"by={name}" for name in methods if name != "auto"], [f"data={place}" for place in places]))
    for ranks in (2, 3, 5):
        found = {pair for name in checked(verdicts, ranks) for pair in product(name.split(), repeat=2)}
        assert found & every == every


if EVERYWHERE:  # make test-ranks

    def test_every_choice_ran_on_five_ranks_and_on_others(verdicts: Verdicts) -> None:
        two, three, five = (checked(verdicts, ranks).keys() for ranks in (2, 3, 5))
        assert two & three == checked(verdicts, 1).keys()
        assert two | three == five
        assert len(five) > 300


def test_every_registered_choice_was_among_them(verdicts: Verdicts) -> None:
    found = {word for name in verdicts for word in name.split()}
    for word, registry in (("activation", get_args(Activation)), ("loss", LOSSES), ("Z", Z_SOLVERS)):
        assert {f"{word}={name}" for name in registry} <= found
    for table, key in (
        (Penalty, "method"),
        (Penalty, "metric"),
        (Model, "precision"),
        (WStep, "schedule"),
    ):
        assert {f"{key}={name}" for name in get_args(get_type_hints(table)[key])} <= found
    for solver, kind in W_SOLVERS.items():
        assert {f"W={solver}:{problem}" for problem in kind.takes} <= found  # type: ignore[attr-defined]
    assert {f"sites={site}" for site in (*get_args(Site), "mixed", "some")} <= found
    assert {f"start={method}" for method in set(get_args(get_type_hints(Start)["method"])) - {"model"}} <= found


def test_every_layer_trainer_criterion_and_method_was_among_them(verdicts: Verdicts) -> None:
    found = {word for name in verdicts for word in name.split()}
    for word, names in (("activation", LAYERS), ("centres", TRAINERS), ("criterion", CRITERIA), ("fitter", FITTERS)):
        assert {f"{word}={name}" for name in names} <= found
    tables = (("by", Method, "name"), ("acceleration", Method, "acceleration"), ("criterion", Selection, "criterion"))
    tables += (("data", Parallel, "data"),)
    for word, table, key in tables:
        assert {f"{word}={name}" for name in get_args(get_type_hints(table)[key])} <= found
    assert {"gram=rows", "bits=enumerated", "bits=alternating"} <= found
    assert any({"gram=rows", "activation=rbf", "criterion=aic"} <= set(name.split()) for name in verdicts)
