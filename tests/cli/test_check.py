"""`posenc check` on encodings of one's own, from a folder that holds nothing else."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.check import PROPERTIES, description
from posenc.cli import main
from posenc.config.paths import options

README = (Path(__file__).parents[2] / "README.md").read_text()
Checked = Callable[..., subprocess.CompletedProcess[str]]

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


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    """Runs `posenc check` in a folder with an encoding of one's own, by its name there."""
    folder = tmp_path / "my_conf" / "encoding"
    folder.mkdir(parents=True)
    (tmp_path / "mine.py").write_text(block("python"))
    (folder / "square_root.yaml").write_text(block("yaml"))
    (tmp_path / "wrong.py").write_text(WRONG)
    described = "# A penalty linear in distance, of which a knob is ignored.\n"
    (folder / "wrong.yaml").write_text(f"{described}_target_: wrong.Wrong\nrate: 0.5\nstart: 3\n")
    (folder / "raising.yaml").write_text(f"{described}_target_: wrong.Raising\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("posenc")), "check", *words],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
        )

    return run


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """Property -> verdict and the first line of its evidence, as they are printed."""
    pattern = r"^(.+?)  +(pass|known limitation|fail) +(.*?) *$"
    return {name: (kind, told) for name, kind, told in re.findall(pattern, done.stdout, re.M)}


def test_the_example_of_the_readme_holds(checked: Checked) -> None:
    (command,) = re.findall(r"`posenc check (--config-dir [^`]*)`", README)
    done = checked(*command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows(done)
    assert found.keys() == {description(property) for property in PROPERTIES}
    assert {kind for kind, _ in found.values()} == {"pass"}
    assert found["the YAML has a description"][1].startswith("A penalty that grows")
    assert done.stdout.endswith(f"pass {len(PROPERTIES)}\n")
    assert done.stderr == ""


def test_a_knob_of_the_command_line_is_the_one_that_is_checked(checked: Checked) -> None:
    done = checked("--config-dir", "my_conf", "encoding=wrong", "encoding.start=7")
    assert done.returncode == 1
    found = rows(done)
    kind, told = found["every numeric parameter has an effect"]
    assert kind == "fail" and told.startswith("encoding.start=7: 14 changes nothing")
    assert [kind for kind, _ in found.values()].count("fail") == 1
    assert done.stdout.endswith(f"pass {len(PROPERTIES) - 1}, fail 1\n")


def test_a_hook_that_raises_gives_lines_and_no_traceback(checked: Checked) -> None:
    done = checked("--config-dir=my_conf", "encoding=raising")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    found = rows(done)
    assert len(found) == len(PROPERTIES)
    kind, told = found["no token depends on later ones"]
    assert kind == "fail"
    assert "AttributeError: 'Raising' object has no attribute 'rate' (line 16 of wrong)" in told
    assert found["weights load at any training length"][0] == "pass"


@pytest.mark.slow
def test_without_an_encoding_all_are_checked(checked: Checked) -> None:
    done = checked("--config-dir", "my_conf")
    assert done.returncode == 1
    *lines, last = (line for line in done.stdout.splitlines() if not line.startswith("  "))
    names = sorted([*options("encoding"), "square_root", "wrong", "raising"])
    assert [line.split()[0] for line in lines] == names
    assert [line.split()[0] for line in lines if "fail" in line] == ["raising", "wrong"]
    assert last == f"{len(names)} encodings, 2 with failures"
    assert "  every numeric parameter has an effect: encoding.start=3: 6" in done.stdout


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["encoding=ropee"], ["encoding=ropee", "nearest: rope"]),
        (["encoding=rope,alibi"], ["encoding=rope,alibi", "single value"]),
        (["encoding=rope", "encoding.layout=3"], ["encoding.layout=3", "interleaved"]),
        (["encoding=rope", "encoding.bass=3"], ["encoding.bass", "encoding.spectrum.base"]),
        (["encoding=rope", "model.heads=5"], ["heads=5 do not divide width=32"]),
        (["encoding=rope", "train_length=long"], ["train_length='long'"]),
        (["encoding=rope", "train_length=4"], ["train_length=4", "8 or more"]),
        (["encoding.rotary_fraction=0.5", "encoding.slope=1"], ["encoding.slope"]),
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
