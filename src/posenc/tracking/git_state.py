"""The git commit and the uncommitted changes that are saved with a run.

They are read without running code of the repository, which may be from someone else.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from posenc.runs.environment import source_folder

GIT = (
    "git",
    "--no-optional-locks",
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "protocol.allow=never"),
    *("-c", "safe.bareRepository=explicit"),
)
GIT_TIMEOUT = 5  # seconds
SAFE_SETTINGS = re.compile(
    r"""core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|symlinks|hookspath
        |precomposeunicode|autocrlf|eol|safecrlf|whitespace|quotepath|abbrev|compression|worktree
        |sparsecheckout|sparsecheckoutcone|sharedrepository|longpaths|untrackedcache|commitgraph)
    |extensions\.(?:worktreeconfig|objectformat|refstorage)
    |remote\..+\.(?:url|pushurl|fetch|push|tagopt|prune|mirror|gh-resolved)
    |submodule\.(?:active|.+\.(?:url|active|branch|ignore))
    |lfs\.(?:repositoryformatversion|allowincompletepush|.+\.(?:access|locksverify))
    |gc\.(?:auto|autodetach|autopacklimit|pruneexpire|reflogexpire|reflogexpireunreachable)
    |(?:branch|user|author|committer|color|init|pull|push|fetch|commit|tag|github)\..+""",
    re.VERBOSE | re.DOTALL,
)
"""Repository settings that cannot make `git status` or `git diff` run another program.

Settings for hooks and remotes are among them, because the options in `GIT` turn hooks and remotes
off. git lists names in lower case, except for the name of a branch, a remote or a submodule.
"""
KEPT_VARIABLES = ("GIT_CONFIG_", "GIT_EXEC_PATH", "GIT_CEILING_DIRECTORIES")
"""Prefixes of the environment variables `GIT_...` that are passed on to git.

The others, some of which git sets for its hooks, can name another repository or programs to run.
"""
MAX_DIFF_CHARACTERS = 1_000_000


def git_state() -> dict[str, Any]:
    """Return the commit of posenc's git checkout, and whether the checkout has uncommitted changes.

    The keys are `git_commit` and `git_dirty`. Returns an empty mapping if posenc does not run from
    a git checkout, or if the settings of the repository could make git run another program.
    """
    folder = source_folder()  # not the copy that a job imports, whose folder another user may own
    try:
        _require_safe_repository(folder)
        if not _git(folder, "ls-files"):  # a virtual environment in another repository
            return {}
        commit = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "-uno", "--ignore-submodules=all")
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"git_commit": commit, "git_dirty": bool(changes)}


def git_diff() -> str:
    """Return the uncommitted changes of the git repository that contains the current directory.

    Returns an empty string if there is no repository, if its settings could make git run another
    program, or if the changes exceed MAX_DIFF_CHARACTERS. The contents of binary files are left out
    if they would exceed it.
    """
    options = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "HEAD")
    try:
        _require_safe_repository(Path.cwd())
        diff = _git(Path.cwd(), "diff", "--binary", *options, strip=False)
        if len(diff) > MAX_DIFF_CHARACTERS:
            diff = _git(Path.cwd(), "diff", *options, strip=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return diff if len(diff) <= MAX_DIFF_CHARACTERS else ""


def _require_safe_repository(folder: Path) -> None:
    """Raise SubprocessError if a git repository, which may be from someone else, is not safe.

    Its settings could make git run other programs, and it could refer to another repository of the
    user, whose contents would then be saved.
    """
    settings = _git(folder, "config", "--list", "--show-scope", "--name-only", "-z").split("\0")
    for scope, name in zip(settings[::2], settings[1::2], strict=False):
        if scope in ("local", "worktree") and not SAFE_SETTINGS.fullmatch(name):
            raise subprocess.SubprocessError(f"{name} is set")
    work_tree = Path(_git(folder, "rev-parse", "--show-toplevel"))
    repositories = {_git(path, "rev-parse", "--absolute-git-dir") for path in (folder, work_tree)}
    if len(repositories) > 1 or not _belongs_to(Path(repositories.pop()), work_tree):
        raise subprocess.SubprocessError("its git directory is that of another repository")


def _belongs_to(git_folder: Path, work_tree: Path) -> bool:
    """Return whether a git directory is the work tree's own, not only named in its `.git` file.

    The git directory of a linked work tree or a submodule is elsewhere, but records the path of the
    work tree.
    """
    link = work_tree / ".git"
    if link.is_symlink():
        return False
    if link.is_dir():
        return link.samefile(git_folder) and not (link / "commondir").exists()
    path = git_folder / "gitdir"  # in a linked work tree
    owner = path.read_text(errors="replace").strip() if path.is_file() else ""
    if not owner:
        owner = f"{_git(git_folder, 'config', '--file', 'config', 'core.worktree')}/.git"
    return (git_folder / owner).resolve() == link.resolve()


def _git(folder: Path, *arguments: str, strip: bool = True) -> str:
    command = [*GIT, "-C", str(folder), *arguments]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(KEPT_VARIABLES)
    }
    output = subprocess.check_output(
        command,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        timeout=GIT_TIMEOUT,
        env={**environment, "GIT_NO_LAZY_FETCH": "1"},
    )
    text = output.decode(errors="replace")
    return text.strip() if strip else text
