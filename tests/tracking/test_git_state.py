"""The git state that is saved with a run; reading it runs no code of an untrusted repository."""

import subprocess
from pathlib import Path

import pytest

from posenc.runs.environment import SOURCE_VARIABLE, job_environment, source_folder
from posenc.tracking.git_state import git_diff, git_state


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a changed file, in the current directory."""
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


def test_the_saved_changes_can_be_applied(repository: Path) -> None:
    """Also if they end with a blank line of context, or change a binary file."""
    (repository / "file").write_text("before\n\n")
    (repository / "binary").write_bytes(bytes(range(256)))
    git(repository, "add", "file", "binary")
    git(repository, "commit", "-qm", "second")
    (repository / "file").write_text("after\n\n")
    (repository / "binary").write_bytes(bytes(range(1, 256)))
    patch = repository.parent / "diff.patch"
    patch.write_text(git_diff())
    git(repository, "checkout", "-q", ".")
    git(repository, "apply", str(patch))
    assert (repository / "file").read_text() == "after\n\n"
    assert (repository / "binary").read_bytes() == bytes(range(1, 256))


def test_a_repository_that_only_contains_the_virtual_environment_of_posenc_is_not_saved(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = repository / ".venv" / "posenc"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    monkeypatch.setenv(SOURCE_VARIABLE, str(installed))
    assert git_state() == {}


@pytest.mark.parametrize(
    ("settings", "attributes"),
    [
        ({"core.fsmonitor": "touch {marker}; false"}, ""),
        ({"filter.x.clean": "touch {marker}; cat"}, "* filter=x"),
        ({"diff.external": "touch {marker}"}, ""),
        ({"diff.x.textconv": "touch {marker}; cat"}, "* diff=x"),
        (
            {
                "remote.origin.promisor": "true",
                "remote.origin.url": ".",
                "remote.origin.uploadpack": "touch {marker}; false",
            },
            "",
        ),
        (
            {
                "remote.origin.promisor": "true",
                "remote.origin.url": "ext::touch {marker}",
                "protocol.ext.allow": "always",
            },
            "",
        ),
        ({"include.path": "../included"}, ""),
        ({"core.sshCommand": "touch {marker}"}, ""),
        ({"core.hooksPath": "hooks"}, ""),
        (
            {
                "filter.lfs.clean": "git-lfs clean -- %f",
                "lfs.extension.x.clean": "touch {marker}; cat",
            },
            "* filter=lfs",
        ),
        ({}, ""),
    ],
)
def test_no_command_of_a_repository_is_run(
    repository: Path, settings: dict[str, str], attributes: str
) -> None:
    marker = repository.parent / "marker"
    (repository / "included").write_text(f"[core]\nfsmonitor = touch {marker}; false\n")
    for name, value in settings.items():
        git(repository, "config", name, value.format(marker=marker))
    if len(settings) > 1:  # reading a blob that a partial clone lacks fetches it
        blob = git(repository, "rev-parse", "HEAD:file").strip()
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


def test_the_state_of_a_typical_clone_is_saved(repository: Path) -> None:
    for name in ("remote.origin.url", "branch.main.merge", "user.email", "submodule.a.url"):
        git(repository, "config", name, "value")
    assert git_state()["git_dirty"] is True and "+after" in git_diff()


def test_a_repository_with_its_worktree_elsewhere_is_not_read(
    repository: Path,
) -> None:
    git(repository, "config", "core.worktree", str(repository.parent))
    (repository.parent / "file").write_text("private\n")
    assert git_state() == {} and git_diff() == ""
    git(repository.parent, "init", "-q")  # another repository of the user
    assert git_state() == {} and git_diff() == ""


@pytest.mark.parametrize("form", ["file", "link", "commondir"])
def test_a_folder_that_names_the_git_directory_of_another_repository_is_not_read(
    form: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloaded, target = repository.parent / "downloaded", repository / ".git"
    downloaded.mkdir()
    if form == "file":
        (downloaded / ".git").write_text(f"gitdir: {target}\n")
    elif form == "link":
        (downloaded / ".git").symlink_to(target)
    else:
        (downloaded / ".git").mkdir()
        (downloaded / ".git" / "commondir").write_text(f"{target}\n")
        (downloaded / ".git" / "HEAD").write_text((target / "HEAD").read_text())
    assert "before" in git(downloaded, "diff", "HEAD")
    monkeypatch.chdir(downloaded)
    assert git_diff() == ""


def test_a_submodule_is_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = repository.parent / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository), "in")
    (outer / "in" / "file").write_text("in the submodule\n")
    monkeypatch.chdir(outer / "in")
    assert "+in the submodule" in git_diff()


def test_a_linked_worktree_is_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "worktree", "add", "-q", "../linked")
    linked = repository.parent / "linked"
    (linked / "file").write_text("in the linked worktree\n")
    monkeypatch.chdir(linked)
    assert "+in the linked worktree" in git_diff()


@pytest.mark.parametrize("name", ["lfs.extension.x.clean", "gc.recentObjectsHook"])
def test_a_setting_that_names_a_program_is_refused(repository: Path, name: str) -> None:
    git(repository, "config", name, "true")
    assert git_state() == {}


def test_variables_that_git_sets_for_its_hooks_do_not_select_another_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repository.parent / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    assert git_state()["git_dirty"] is True and "+after" in git_diff()


def test_a_job_reads_the_git_state_of_the_package_that_was_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = source_folder()
    monkeypatch.setenv(SOURCE_VARIABLE, job_environment(1)[SOURCE_VARIABLE])
    assert source_folder() == expected and (expected / "runs").is_dir()
