"""The documented configs are found by name: after the user's own files, in a clone and where a wheel has put them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from launch.here import run_here

import macmpi
from macmpi import UsageError, config
from macmpi.api.given import config_of
from macmpi.config import reading
from macmpi.config.whole import GONE

RUN = Path(__file__).resolve().parents[2] / "run"


def test_all_configs_of_the_repository_are_documented_ones() -> None:
    assert reading.documented() == {path.stem: path for path in RUN.glob("*.toml")}
    lines = dict(line.split(maxsplit=1) for line in reading.listed().splitlines())
    assert list(lines) == list(reading.documented())
    for name, path in reading.documented().items():
        for word in (name, path.name):
            assert reading.text_of(word, reading.documented()) == path.read_text()
        assert lines[name].split()[:3] == path.read_text().removeprefix("# ").split()[:3]
        tables = tomllib.loads(path.read_text())
        assert [key for key in GONE if key.split(".")[1] in tables.get(key.split(".")[0], {})] == [], name


@pytest.mark.parametrize("given", ["nowhere", "elsewhere/usps_mac", "elsewhere/usps_mac.toml", ".", "..", "a" * 300])
def test_what_is_no_config_stays_as_it_is(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reading.path_of(Path(given)) == Path(given)


def test_a_run_says_which_config_it_found(table: Path) -> None:
    brief = ("--iterations", "0")
    out = run_here("digits_mac", *brief, "--set", "model.hidden=[2]", cwd=table, code=0).out
    assert out.splitlines()[0] == f"config: {RUN / 'digits_mac.toml'}"
    assert (table / "runs" / "digits_mac" / "model.h5").exists()
    assert "config:" not in run_here("points.toml", *brief, cwd=table, code=0).out
    assert run_here("points", *brief, "--overwrite", cwd=table, code=0).out.startswith("config: points.toml\n")
    assert not run_here("digits_mac", "--explain", cwd=table, code=0).out.startswith("config:"), "it is to be pasted"


@pytest.mark.parametrize("name", ["digits_mac", "digits_mac.toml", "points"])
def test_a_fit_takes_the_config_that_a_run_of_that_name_takes(
    name: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the current folder first, then the documented one."""
    monkeypatch.chdir(table)
    path, _ = reading.read_named(Path(name))
    assert config_of(name, "auto", "auto", "auto", None, None, None) == config.read(path, [])
    out = run_here(name, "--iterations", 0, "--set", "model.hidden=[2]", cwd=table, code=0).out
    assert out.splitlines()[0] == f"config: {path}" or name == str(path)
    brief = macmpi.fit(config=name, callback=lambda record: True)
    assert brief.card is not None
    assert brief.card.data.source == config.read(path, []).data.source


def test_a_name_that_is_no_config_is_refused_in_the_words_of_a_run(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table)
    said = run_here("digit_mac", cwd=table, code=2).err
    with pytest.raises(UsageError) as refused:
        macmpi.fit(config="digit_mac")
    assert said == f"macmpi: {refused.value}\n"
    assert "did you mean digits_mac?" in said


def test_the_text_of_a_config_is_that_config(tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text(reading.text_of("usps_classify", reading.documented()))
    assert config.read(copy, []) == config.read(RUN / "usps_classify.toml", [])
    with pytest.raises(UsageError, match=r"'\.\./usps_mac'"):
        reading.text_of("../usps_mac", reading.documented())
