"""`posenc check` on user-written encodings, in a folder that has nothing else."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posenc.check import PROPERTIES, description
from posenc.cli import main
from posenc.config.paths import options

README = (Path(__file__).parents[2] / "README.md").read_text()
Check = Callable[..., subprocess.CompletedProcess[str]]

WRONG = """
from posenc.encodings.base import Encoding


class Wrong(Encoding):
    def __init__(self, geometry, *, rate: float = 0.5, start: int = 3):
        super().__init__(geometry)
        self.rate = rate

    def bias(self, head, distance, pos_q):
        return -self.rate * distance


class Raising(Encoding):
    def bias(self, head, distance, pos_q):
        return self.rate * distance
"""


def code_block(language: str) -> str:
    """Return the first code block of a language in the README."""
    match = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Runs `posenc check` in a folder with user-written encodings."""
    folder = tmp_path / "my_conf" / "encoding"
    folder.mkdir(parents=True)
    (tmp_path / "mine.py").write_text(code_block("python"))
    (folder / "square_root.yaml").write_text(code_block("yaml"))
    (tmp_path / "wrong.py").write_text(WRONG)
    comment = "# A penalty linear in distance; one of its parameters is ignored.\n"
    (folder / "wrong.yaml").write_text(f"{comment}_target_: wrong.Wrong\nrate: 0.5\nstart: 3\n")
    (folder / "raising.yaml").write_text(f"{comment}_target_: wrong.Raising\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("posenc")), "check", *words],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
        )

    return run


def rows(result: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """Return the printed result and the first line of the evidence for each property."""
    pattern = r"^(pass|known limitation|hint|fail)  +(.+?): (.*?) *$"
    matches = re.findall(pattern, result.stdout, re.M)
    return {name: (status, evidence) for status, name, evidence in matches}


def test_the_example_in_the_readme_passes(check: Check) -> None:
    (command,) = re.findall(r"`posenc check (--config-dir [^`]*)`", README)
    result = check(*command.split())
    assert result.returncode == 0, result.stdout + result.stderr
    table = rows(result)
    assert table.keys() == {description(property) for property in PROPERTIES}
    assert {status for status, _ in table.values()} == {"pass"}
    assert table["the YAML has a description"][1].startswith("A penalty that grows")
    assert result.stdout.endswith(f"pass {len(PROPERTIES)}\n")
    assert result.stderr == ""


@pytest.mark.slow
def test_a_parameter_from_the_command_line_is_checked(check: Check) -> None:
    result = check("--config-dir", "my_conf", "encoding=wrong", "encoding.start=7")
    assert result.returncode == 1
    table = rows(result)
    status, evidence = table["every numeric parameter has an effect"]
    assert status == "fail" and evidence.startswith("encoding.start=7: 14 changes nothing")
    assert [status for status, _ in table.values()].count("fail") == 1
    assert result.stdout.endswith(f"pass {len(PROPERTIES) - 1}, fail 1\n")


@pytest.mark.slow
def test_a_hook_that_raises_is_reported_without_a_traceback(check: Check) -> None:
    result = check("--config-dir=my_conf", "encoding=raising")
    assert result.returncode == 1
    assert "Traceback" not in result.stdout + result.stderr
    table = rows(result)
    assert len(table) == len(PROPERTIES)
    status, evidence = table["shapes and dtypes are correct"]
    assert status == "fail"
    assert evidence.startswith("wrong.py, line 15: Raising.bias raised AttributeError")
    assert result.stdout.count("object has no attribute 'rate' (wrong.py, line 16)") == 1
    assert table["weights load at any training length"][0] == "pass"


@pytest.mark.slow
@pytest.mark.usefixtures("check")
def test_without_an_encoding_argument_all_encodings_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks only three of posenc's encodings; tests/encodings/test_conformance.py checks all."""
    left_out = options("encoding").keys() - {"alibi", "nope", "rope"}

    def few_options(*arguments: Any) -> dict[str, str]:
        return {k: text for k, text in options(*arguments).items() if k not in left_out}

    monkeypatch.setattr("posenc.cli.check.options", few_options)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["check", "--config-dir", str(tmp_path / "my_conf")]) == 1
    for module in ("mine", "wrong"):
        sys.modules.pop(module)
    printed = capsys.readouterr().out
    *lines, last = (line for line in printed.splitlines() if not line.startswith("  "))
    names = ["alibi", "nope", "raising", "rope", "square_root", "wrong"]
    assert [line.split()[0] for line in lines] == names
    assert [line.split()[0] for line in lines if "fail" in line] == ["raising", "wrong"]
    assert last == "6 encodings, 2 with failures"
    assert "  every numeric parameter has an effect: encoding.start=3: 6" in printed


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["encoding=ropee"], ["encoding=ropee", "did you mean rope"]),
        (["encoding=rope,alibi"], ["encoding=rope,alibi", "single value"]),
        (["encoding=rope", "encoding.layout=3"], ["encoding.layout=3", "interleaved"]),
        (["encoding=rope", "encoding.bass=3"], ["encoding.bass", "encoding.spectrum.base"]),
        (["encoding=rope", "model.heads=5"], ["heads=5 does not divide width=32"]),
        (["encoding=rope", "train_length=long"], ["train_length='long'"]),
        (["encoding=rope", "train_length=4"], ["train_length=4", "8"]),
        (["encoding.rotary_fraction=0.5"], ["encoding.rotary_fraction=0.5", "encoding=NAME"]),
        (["encoding.rotary_fraction=0.5", "--cfg"], ["encoding=NAME"]),
        (["encoding/spectrum=yarn"], ["encoding/spectrum=yarn", "encoding=NAME"]),
        (["rope"], ["cannot parse 'rope'"]),
        (["--json"], ["unknown flag --json"]),
    ],
)
def test_a_mistake_gets_one_message(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words]) == 2
    message = capsys.readouterr().err
    assert message.startswith("posenc check: ") and "Traceback" not in message
    for part in parts:
        assert part in message
