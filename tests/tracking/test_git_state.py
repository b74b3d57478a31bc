"""What is saved about git repositories, which may be from someone else."""

import subprocess
from pathlib import Path

import pytest

from posenc.runs.environment import SOURCE_VARIABLE, job_environment, source_folder
from posenc.tracking.wandb_config import git_diff, git_state


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a changed file, in the current folder."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "file").write_text("before\n")
    git(folder, "add", "file")
    git(folder, "commit", "-qm", "first")
    (folder / "file").write_text("after\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv(SOURCE_VARIABLE, str(folder))
    return folder


def test_the_commit_and_the_changes_are_saved(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://example.org/a.git")
    state = git_state()
    assert len(state["git_commit"]) == 40 and state["git_dirty"] is True
    assert "-before\n+after" in git_diff()


@pytest.mark.parametrize(
    ("settings", "attributes"),
    [
        ({"core.fsmonitor": "touch {marker}; false"}, ""),
        ({"filter.x.clean": "touch {marker}; cat"}, "* filter=x"),
        ({"diff.external": "touch {marker}"}, ""),
        ({"diff.x.textconv": "touch {marker}; cat"}, "* diff=x"),
        ({"remote.a.promisor": "true", "remote.a.uploadpack": "touch {marker}; false"}, ""),
        ({"core.sshCommand": "touch {marker}"}, ""),
        ({"core.hooksPath": "hooks"}, ""),
        ({}, ""),
    ],
)
def test_no_command_of_a_repository_is_run(
    repository: Path, settings: dict[str, str], attributes: str
) -> None:
    marker = repository.parent / "marker"
    for name, value in settings.items():
        git(repository, "config", name, value.format(marker=marker))
    git(repository, "config", "remote.a.url", str(repository.parent / "elsewhere"))
    if "remote.a.promisor" in settings:  # git would fetch the committed file from its remote
        blob = subprocess.check_output(["git", "rev-parse", "HEAD:file"], text=True).strip()
        (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (repository / ".gitattributes").write_text(attributes)
    for hooks in (repository / "hooks", repository / ".git" / "hooks"):
        hooks.mkdir(exist_ok=True)
        hook = hooks / "post-index-change"
        hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
        hook.chmod(0o755)
    git_state()
    git_diff()
    assert not marker.exists()


def test_jobs_read_the_state_of_the_package_that_theirs_is_a_copy_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = source_folder()
    monkeypatch.setenv(SOURCE_VARIABLE, job_environment(1)[SOURCE_VARIABLE])
    assert source_folder() == expected and (expected / "runs").is_dir()
