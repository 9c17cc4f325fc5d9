"""The documented configs are found by name: after the user's own files, in a clone and where a wheel has put them."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch.here import run_here

from macmpi import UsageError, config
from macmpi.config import documented

RUN = Path(__file__).resolve().parents[2] / "run"


def test_all_configs_of_the_repository_are_documented_ones() -> None:
    assert documented.documented() == {path.stem: path for path in RUN.glob("*.toml")}
    lines = dict(line.split(maxsplit=1) for line in documented.listed().splitlines())
    assert list(lines) == list(documented.documented())
    for name, path in documented.documented().items():
        for word in (name, path.name):
            assert documented.text_of(word, documented.documented()) == path.read_text()
        assert lines[name].split()[:3] == path.read_text().removeprefix("# ").split()[:3]


@pytest.mark.parametrize("given", ["nowhere", "elsewhere/usps_mac", "elsewhere/usps_mac.toml", ".", "..", "a" * 300])
def test_what_is_no_config_stays_as_it_is(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert documented.found(Path(given)) == Path(given)


def test_a_run_says_which_config_it_found(table: Path) -> None:
    brief = ("--iterations", "0")
    out = run_here("digits_mac", *brief, "--set", "model.hidden=[2]", cwd=table, code=0).out
    assert out.splitlines()[0] == f"config: {RUN / 'digits_mac.toml'}"
    assert (table / "runs" / "digits_mac" / "model.h5").exists()
    assert "config:" not in run_here("points.toml", *brief, cwd=table, code=0).out
    assert run_here("points", *brief, "--overwrite", cwd=table, code=0).out.startswith("config: points.toml\n")
    assert not run_here("digits_mac", "--explain", cwd=table, code=0).out.startswith("config:"), "it is to be pasted"


def test_the_text_of_a_config_is_that_config(tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text(documented.text_of("usps_classify", documented.documented()))
    assert config.read(copy, []) == config.read(RUN / "usps_classify.toml", [])
    with pytest.raises(UsageError, match=r"'\.\./usps_mac'"):
        documented.text_of("../usps_mac", documented.documented())
