"""`posenc completion`: completions of a command line, including those in real shells."""

import os
import pty
import select
import subprocess
import sys
import time
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
    assert completions("posenc plan machi") == ["machine.", "machine="]
    assert completions("posenc inspect experi") == ["experiment="]
    assert completions("posenc train hydra/") == ["hydra/launcher="]
    assert "hydra.launcher.jobs=" in completions("posenc train hydra.launcher.")
    assert "evaluation/swap=" in completions("posenc evaluate ")


def test_options_are_completed_after_a_comma_too() -> None:
    assert completions("posenc train encoding=stic") == ["encoding=stick_breaking"]
    assert completions("posenc train seed=1  encoding=nope,stic") == [
        "encoding=nope,stick_breaking"
    ]


def test_a_list_is_completed_with_the_options_that_can_be_added_to_it() -> None:
    assert completions("posenc train logger=[") == [
        f"logger=[{name}" for name in ("csv", "tensorboard", "wandb")
    ]
    assert completions("posenc train logger=[wandb,") == [
        "logger=[wandb,csv",
        "logger=[wandb,tensorboard",
    ]


def test_the_completed_keys_are_those_of_the_chosen_options() -> None:
    line = "posenc train encoding="
    keys = set(completions(f"{line}alibi encoding."))
    assert "encoding.slopes=" in keys and "encoding.num_buckets=" not in keys
    assert (
        keys
        < set(completions(f"{line}alibi,t5 encoding."))
        < set(completions("posenc train encoding."))
    )


def test_settings_with_a_few_values_are_completed() -> None:
    assert completions("posenc train kernel=fl") == ["kernel=flex"]
    assert completions("posenc train precision=") == ["precision=bf16", "precision=float32"]


def test_options_of_a_config_folder_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "encoding").mkdir(parents=True)
    (tmp_path / "conf" / "encoding" / "mine.yaml").write_text("slope_of_mine: 1\n")
    monkeypatch.chdir(tmp_path)
    assert completions("posenc train --config-dir co") == ["conf/"]
    for flag in ("--config-dir conf", "--config-dir=conf"):
        assert completions(f"posenc train {flag} encoding=min") == ["encoding=mine"]
        keys = completions(f"posenc train {flag} encoding=mine encoding.")
        assert "encoding.slope_of_mine=" in keys


def test_runs_in_another_folder_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere" / "mine").mkdir(parents=True)
    (tmp_path / "elsewhere" / "mine" / "plan.json").touch()
    monkeypatch.chdir(tmp_path)
    assert completions("posenc report outputs_dir=elsewhere name=") == ["name=mine"]


def test_experiments_and_run_directories_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "outputs" / "mine" / "rope-L64-s1-0c1d2e3f"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    (run.parent / "plan.json").touch()
    # A name that a shell would execute is not offered.
    unsafe = tmp_path / "outputs" / "mine;touch x" / "$(touch x)"
    unsafe.mkdir(parents=True)
    for file in (unsafe / "config.yaml", unsafe.parent / "plan.json"):
        file.touch()
    monkeypatch.chdir(tmp_path)
    expected = f"run=outputs/mine/{run.name}"
    assert completions("posenc evaluate run=") == completions("posenc clean run=out") == [expected]
    assert completions("posenc status mi") == ["mine"]
    assert completions("posenc report name=") == ["name=mine"]


def test_bash_replaces_the_part_after_the_equals_sign(tmp_path: Path) -> None:
    script = ["bash", "--norc", "-c", IN_BASH]
    environment = {**os.environ, "PYTHON": sys.executable, "COMP_WORDBREAKS": " ="}
    result = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["nope,stick_breaking"]


@pytest.fixture
def shell_environment(tmp_path: Path) -> dict[str, str]:
    """Environment variables with which a shell finds `posenc` but none of the user's settings."""
    command = tmp_path / "posenc"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m posenc "$@"\n')
    command.chmod(0o755)
    isolated = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}
    return {**os.environ, **isolated, "XDG_CONFIG_HOME": str(tmp_path)}


@pytest.mark.shells
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("posenc tra", ["train"]),
        ("posenc train encoding=nope,stic", ["encoding=nope,stick_breaking"]),
        ("posenc train enc", ["encoding.", "encoding/spectrum=", "encoding="]),
    ],
)
def test_fish_offers_the_completions(
    line: str, expected: list[str], shell_environment: dict[str, str]
) -> None:
    script = f"posenc completion fish | source; complete -C '{line}'"
    result = subprocess.run(
        ["fish", "-c", script], env=shell_environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == expected


@pytest.mark.shells
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("posenc tra", "train "),
        ("posenc train encoding=nope,stic", "stick_breaking "),
        ("posenc train encoding.spectrum.ba", "se="),
    ],
)
def test_zsh_inserts_the_completion(
    line: str, completed: str, shell_environment: dict[str, str]
) -> None:
    # RE''ADY, so that the terminal's echo of this line does not contain READY.
    setup = "autoload -Uz compinit; compinit -D -u; source <(posenc completion zsh); echo RE''ADY"
    process, terminal = pty.fork()
    if process == 0:
        try:
            os.execvpe("zsh", ["zsh", "-f", "-i"], shell_environment)
        finally:  # without zsh, the forked process must not continue running tests
            os._exit(127)
    try:
        os.write(terminal, f"{setup}\n".encode())
        read_until(terminal, "READY")
        os.write(terminal, f"{line}\t".encode())
        read_until(terminal, completed)
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


def read_until(terminal: int, expected: str, seconds: float = 60) -> None:
    """Read what a terminal shows until it contains the expected text."""
    shown, deadline = "", time.monotonic() + seconds
    while expected not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")


def test_names_that_a_shell_would_run_are_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my$(touch a)").mkdir()
    assert completions("posenc train --config-dir my") == []
    folder = tmp_path / "conf" / "encoding"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("$(touch b): 1\nwidth: 2\n3: 4\n")
    completed = completions("posenc train --config-dir conf encoding=mine encoding.")
    assert "encoding.width=" in completed and not any("$" in word for word in completed)


def test_a_config_folder_with_a_pipe_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "encoding").mkdir()
    os.mkfifo(tmp_path / "encoding" / "pipe.yaml")
    completed = completions(f"posenc train --config-dir {tmp_path} encoding=ali")
    assert completed == ["encoding=alibi", "encoding=alibi_pi"]
