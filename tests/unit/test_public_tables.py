"""The public tables of run/bench/defaults.py: how they are read, what scikit-learn gets of them, and their page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import data_sets
import defaults
import numpy as np
import pandas as pd
import public_tables
import pytest

installed = pytest.mark.skipif(public_tables.archive() is None, reason=public_tables.MISSING)


def rows(names: list[str], contenders: list[str], splits: int = 6) -> list[dict[str, Any]]:
    """Made-up outcomes: macmpi is worse on the first name, better on the second, and swings about the others'."""
    found = []
    for place, name in enumerate(names):
        for seed in range(splits):
            for who in contenders:
                own = {0: 1.0, 1: -1.0}.get(place, 0.0) + 0.3 * (-1.0) ** seed if who == defaults.OURS else 0.0
                row = {"set": name, "seed": seed, "who": who, "error": 10.0 + own, "seconds": 1.0, "commit": "c0ffee0"}
                found.append(row)
    return found


@installed
@pytest.mark.parametrize("name", ["Crime", "Pima.tr2", "Mroz"])
def test_a_table_is_read_as_it_comes_without_what_says_the_outcome(name: str) -> None:
    kind, X, y = public_tables.read(name)
    table = public_tables.TABLES[name]
    assert len(X) == len(y) >= public_tables.FEWEST
    assert not {table.target, *table.left_out} & set(X.columns)
    assert not any(str(column).startswith("Unnamed") for column in X.columns)
    assert any(column.dtype.kind in "iu" for _, column in X.items())
    assert (y.dtype.kind == "f") == (kind == "regression")
    assert not pd.isna(y).any()
    assert name != "Pima.tr2" or X.isna().any(axis=None)


@installed
@pytest.mark.long
def test_the_tables_are_the_first_of_their_kind_in_the_drawn_order() -> None:
    order = {path: place for place, path in enumerate(public_tables.drawn())}
    chosen = list(public_tables.TABLES.values())[1:]
    for kind in ("regression", "labels"):
        places = [order[table.path] for table in chosen if table.kind == kind]
        assert len(places) == 10
        assert places == sorted(places)


def test_without_the_package_the_tables_are_left_out_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(public_tables, "find_spec", lambda name: None)
    arguments = ["defaults.py", "--sets", "iris", "--repeats", "0", "--output", str(tmp_path / "found.json")]
    monkeypatch.setattr("sys.argv", arguments)
    defaults.main()
    assert public_tables.MISSING in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", [*arguments[:2], "diamonds", *arguments[3:]])
    with pytest.raises(SystemExit):
        defaults.main()


@pytest.mark.parametrize("kind", ["regression", "labels"])
@pytest.mark.parametrize("who", [defaults.MLP, defaults.STOPPED, defaults.TREES])
def test_rivals_take_text_gaps_and_categories_that_are_new(who: str, kind: str) -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame(
        {"amount": random.normal(size=80), "city": ["Oslo", "Rome", None, "Bern"] * 20, "count": range(80)}
    )
    X.loc[3, "amount"] = np.nan
    y = np.array(["0", "1"] * 40, dtype=object) if kind == "labels" else random.normal(size=80)
    new = X.iloc[:4].assign(city=["Paris", "Rome", None, "Oslo"])
    found = defaults.peer(who, kind, 0, 0, X).fit(X, y).predict(new)
    assert len(found) == 4
    assert defaults.error(kind, found, y[:4]) >= 0.0


def test_labels_are_compared_by_what_they_say() -> None:
    assert defaults.error("labels", np.array([1, 0]), np.array(["1", "1"], dtype=object)) == 50.0


def test_the_section_of_the_tables_says_where_macmpi_is_worse_by_more_than_noise(tmp_path: Path) -> None:
    names = list(public_tables.TABLES)[:4]
    contenders = [defaults.OURS, defaults.MLP, defaults.STOPPED, defaults.TREES]
    tables, sets = rows(names, contenders), rows(list(data_sets.SETS)[:3], [defaults.OURS, defaults.MLP])
    own = defaults.spread(tables, dict.fromkeys(names, (1234, 5)))
    text = defaults.page("python run/bench/defaults.py", (sets, defaults.table(sets)), (tables, own))
    public = text.split(f"{defaults.PUBLIC}\n")[1]
    first, second = (
        [line for line in part.splitlines() if line.startswith("| ")] for part in public.split("| macmpi against")
    )
    assert [line.split(":")[0] for line in first][1:] == [f"| {n}" for n in names]
    assert "1,234, 5" in public
    assert [line.split(" | ")[-2:] for line in second] == [[names[0], "1 |"]] * 3
    assert f"worse than boosted trees on the tables {names[0]}." in " ".join(text.split("\n\n")[1].split())
    assert max(len(line) for line in public.splitlines() if not line.startswith("|")) <= 120
    page = tmp_path / "page.md"
    page.write_text(text)
    kept = defaults.of_page(page, [defaults.OURS])
    assert {(row["set"], row["who"]) for row in kept} == {(name, defaults.MLP) for name in list(data_sets.SETS)[:3]}
    for rows_of_sets, rows_of_tables in (([], tables), (sets, []), ([], [])):  # what is not measured again stays
        lines = defaults.table(rows_of_sets) if rows_of_sets else []
        again = defaults.page("c", (rows_of_sets, lines), (rows_of_tables, own), text)
        parts, before = again.split(defaults.PUBLIC), text.split(defaults.PUBLIC)
        written = ["Written by `c`" in " ".join(part.split()) for part in parts]  # wherever the lines end
        assert written == [bool(rows_of_sets), bool(rows_of_tables)]
        assert rows_of_sets or parts[0] == before[0]
        assert rows_of_tables or parts[1] == before[1]
