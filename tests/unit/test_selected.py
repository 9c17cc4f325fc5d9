"""What a selection has chosen, as a user sees it: in the records, the model, its card and the words of `show`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import macmpi
from macmpi.results.model_file import load
from macmpi.show import card_lines, layers

X = np.tanh(np.random.default_rng(0).normal(size=(60, 5)))


@pytest.mark.parametrize("every", [2, 3])
def test_a_run_that_ends_before_it_selects_says_so(every: int, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"selection.criterion": "bic", "selection.epsilon2": 0.1, "selection.sizes": [[2]], "run.max_iterations": 2}
    macmpi.fit(X, hidden=[3], config=keys | {"method.name": "mac", "selection.every": every}, verbose=True)
    assert ("before iteration 3 (selection.every): nothing was compared" in capsys.readouterr().out) == (every == 3)


def test_widths_and_ridges_are_told(tmp_path: Path) -> None:
    keys = {
        "method.name": "mac",
        "model.activation": ["rbf", "linear", "rbf"],
        "model.width": [9.0, 0.1],
        "model.centres": "subset",
        "start.method": "pca",
        "selection.criterion": "aic",
        "selection.epsilon2": 2e-3,
        "selection.sizes": [[], [], []],
        "selection.widths": [1.0, 2.0, 4.0],
        "selection.ridges": [1e-3, 1.0],
        "selection.every": 1,
        "run.max_iterations": 2,
    }
    found = macmpi.fit(X, hidden=[20, 2, 15], config=keys, output=tmp_path / "run", verbose=False)
    last = next(r for r in found.history[::-1] if "widths" in r)
    net = load(tmp_path / "run" / "model.h5")
    widths = [m.spec()["width"] for m in net.chain.maps if m.spec()["kind"] == "rbf"]
    assert last["widths"] == widths != [9.0, 0.1]
    assert net.card is not None
    assert list(net.card.training.ridges) == last["ridges"]
    assert f"rbf 20 of width {widths[0]:g}" in layers(net)
    said = [text for _, text in card_lines(net.card)]
    assert f"ridges selected: {', '.join(f'{ridge:g}' for ridge in last['ridges'])}" in said
    assert np.isfinite(net.predict(X)).all()
    assert "best" in load(tmp_path / "run" / "model.h5").kept
