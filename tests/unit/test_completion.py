"""`macmpi completion`: bash completes commands, options, documented configs and keys."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from macmpi import UsageError, completion
from macmpi.__main__ import known
from macmpi.config import Config, flat
from macmpi.config.documented import documented

LOOK = 'COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); {function}; printf "%s\\n" "${{COMPREPLY[@]}}"'


@pytest.fixture(scope="module")
def script() -> str:
    pytest.importorskip("shtab")
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    return completion.script("bash")


def completed(script: str, *words: str) -> set[str]:
    """The words that bash would offer for the last one."""
    quoted = " ".join(f"'{word}'" for word in words)
    look = LOOK.format(words=quoted, function="_shtab_macmpi")
    done = subprocess.run(["bash", "-c", f"{script}\n{look}"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_commands_are_completed(script: str) -> None:
    assert set(known()) <= completed(script, "macmpi", "")
    assert completed(script, "macmpi", "swe") == {"sweep"}


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_options_keys_and_configs_are_completed(command: str, script: str) -> None:
    assert completed(script, "macmpi", command, "--res") == {"--resume"}
    assert set(documented()) <= completed(script, "macmpi", command, "")
    assert completed(script, "macmpi", command, "usps_ma") == {"usps_mac"}
    assert completed(script, "macmpi", command, "x.toml", "--set", "model.hid") == {"model.hidden="}
    assert {f"{key}=" for key in flat(Config())} == completed(script, "macmpi", command, "x.toml", "--set", "")


def test_zsh_has_the_same_words() -> None:
    pytest.importorskip("shtab")
    script = completion.script("zsh")
    assert script.startswith("#compdef macmpi")
    for word in (*known(), "--resume", *documented(), *flat(Config())):
        assert word in script


def test_without_shtab_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(UsageError, match="pip install shtab"):
        completion.script("bash")
