"""A copy of this package, made when a sweep starts, so that later edits do not affect its jobs."""

import hashlib
import shutil
import stat
import time
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

import posenc
from posenc.config.errors import RunError

PACKAGE = Path(__file__).resolve().parents[1]
EXCLUDED = ("conf", "__pycache__")


def code_digest() -> str:
    """Return 12 hexadecimal digits that identify the package's files, except conf and bytecode."""
    return _digest(PACKAGE, EXCLUDED)[:12]


def _digest(package: Path, excluded: Collection[str] = ()) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in package.rglob("*") if path.is_file()):
        name = file.relative_to(package)
        if not set(excluded) & set(name.parts):
            digest.update(f"{name.as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def snapshot_code(folder: Path) -> Path:
    """Copy the package to `<folder>/.code/<digest>` if it is not there, and return the path.

    Jobs import posenc from there. A copy with other files or contents is replaced: a machine
    crash may leave empty files, and a folder from another user may contain any module or
    bytecode. Raises RunError if the copy cannot be written, or if the package has been modified
    since this process imported it: the jobs would run different code from the planning process.
    """
    digest = _digest(PACKAGE, EXCLUDED)
    now = time.time()  # later times come from another machine's clock
    files = [file for file in PACKAGE.rglob("*.py") if file.is_file()]
    if modified := [f for f in files if posenc.IMPORT_TIME < f.stat().st_mtime <= now]:
        raise RunError(
            f"{modified[0]} has been modified since this process imported posenc; rerun the command"
            f" (in Python, restart the session)"
        )
    target = folder / ".code" / digest[:12]
    try:
        if target.is_symlink():
            target.unlink()
        if target.is_dir() and not _is_copy(target, digest):
            shutil.rmtree(target)
        if not target.is_dir():
            _copy_package(target)
    except OSError as error:
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        raise RunError(f"cannot copy the posenc package to {folder}: {reason}") from None
    return target


def is_intact_copy(folder: Path) -> bool:
    """Return whether a folder, which may be from someone else, is a copy by `snapshot_code`."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return _is_copy(folder, folder.name)


def _is_copy(folder: Path, digest: str) -> bool:
    """Return whether a folder has the files of the package with this digest, and nothing else.

    `digest` may be abbreviated. Symbolic links are rejected: a link to a folder can shadow a module
    of the same name, and a link to a file can expose a private file.
    """
    names = [path.name for path in folder.iterdir()]
    if names != ["posenc"] or any(path.is_symlink() for path in folder.rglob("*")):
        return False
    return _digest(folder / "posenc").startswith(digest)


def _copy_package(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=".") as temporary:
        copy = Path(temporary) / "code"
        shutil.copytree(PACKAGE, copy / "posenc", ignore=shutil.ignore_patterns(*EXCLUDED))
        for path in copy.rglob("*"):  # an installed package may be read-only
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        try:
            copy.rename(target)
        except OSError:
            if not target.is_dir():  # another launcher may have created it in the meantime
                raise
