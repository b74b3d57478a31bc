"""`posenc completion`: the words that can end a command line, also in a real bash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.cli.completion import SCRIPTS, completions

IN_BASH = """
posenc() { "$PYTHON" -m posenc "$@"; }
eval "$(posenc completion bash)"
COMP_LINE="posenc train encoding=nope,stic" COMP_POINT=31
_posenc
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_commands_flags_and_shells_are_completed() -> None:
    assert completions("posenc tra") == ["train"]
    assert completions("posenc plan --") == ["--cfg", "--config-dir", "--help", "--json"]
    assert completions("posenc completion ") == sorted(SCRIPTS)


def test_keys_are_completed_up_to_the_next_dot() -> None:
    assert completions("posenc train enc") == ["encoding.", "encoding/spectrum=", "encoding="]
    assert completions("posenc train encoding.spectrum.ba") == ["encoding.spectrum.base="]
    assert completions("posenc plan machi") == ["machine="]
    assert "evaluation/swap=" in completions("posenc evaluate ")


def test_options_are_completed_after_a_comma_too() -> None:
    assert completions("posenc train encoding=stic") == ["encoding=stick_breaking"]
    assert completions("posenc train seed=1  encoding=nope,stic") == [
        "encoding=nope,stick_breaking"
    ]


def test_experiments_and_run_directories_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "outputs" / "mine" / "rope-L64-s1-0c1d2e3f"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    (run.parent / "plan.json").touch()
    monkeypatch.chdir(tmp_path)
    expected = f"run=outputs/mine/{run.name}"
    assert completions("posenc evaluate run=") == completions("posenc clean run=out") == [expected]
    assert completions("posenc status mi") == ["mine"]
    assert completions("posenc report name=") == ["name=mine"]


def test_bash_replaces_the_part_behind_the_equals_sign(tmp_path: Path) -> None:
    script = ["bash", "--norc", "-c", IN_BASH]
    environment = {**os.environ, "PYTHON": sys.executable, "COMP_WORDBREAKS": " ="}
    result = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["nope,stick_breaking"]
