"""Commands import only what they need, so that they start quickly."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["train", "--help"],
        ["evaluate", "--help"],
        ["report", "--help"],
        ["check", "--help"],
        ["bench", "--help"],
        ["inspect", "--help"],
        ["plan", "--help"],
        ["sync", "--help"],
        ["dashboard", "--help"],
        ["wandb-sweep", "--help"],
        ["clean", "--help"],
        ["list"],
    ],
)
def test_help_and_list_import_no_torch(command: list[str]) -> None:
    result = _run_without(["torch", "pytorch_lightning", "wandb", "hydra"], command)
    assert result.returncode == 0, result.stderr
    assert "posenc" in result.stdout or "encoding" in result.stdout


def test_planning_imports_no_lightning() -> None:
    code = "import sys; import posenc.sweeps.plan; sys.exit('pytorch_lightning' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_mistyped_key_or_value_is_reported_without_importing_torch() -> None:
    """One process for all commands: starting Python and importing Hydra take most of the time."""
    code = """
import sys
from posenc.cli import main
for command in %s:
    assert main(command) == 2, command
    assert not sys.modules.keys() & {"torch", "altair", "wandb"}, command
"""
    mistyped = [
        ["train", "encodng=rope"],
        ["train", "encoding=rope", "optimizer.learning_rat=1"],
        ["train", "seed=one"],
        ["train", "encoding=rope,alibi", "seed=1,x"],
        ["train", "encoding=rope", "train_length=abc"],
        ["plan", "encodng=rope"],
        ["plan", "machine=h10"],
        ["check", "encodng=rope"],
        ["bench", "encodng=rope"],
        ["inspect", "encoding=rope", "train_lenght=64"],
        ["evaluate", "run=x", "evaluation.stide=1"],
        ["search-factors", "run=x", "lenght=1"],
        ["wandb-sweep", "encodng=rope"],
        ["report", "exprimnt=x"],
        ["status", "exprimnt=x"],
        ["sync", "exprimnt=x"],
    ]
    result = subprocess.run([sys.executable, "-c", code % mistyped], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    # The other four commands have a mistyped value.
    assert result.stderr.count("unknown key") == 12


def _run_without(modules: list[str], command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that fails if it has imported one of the modules."""
    code = (
        "import sys; from posenc.cli import main; code = main(sys.argv[1:]);"
        f"imported = sys.modules.keys() & set({modules});"
        "sys.exit(f'imported {imported}' if imported else code)"
    )
    return subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
