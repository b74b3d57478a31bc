"""The package as it is when a sweep begins: all of its jobs run that, whatever is edited later."""

import hashlib
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from posenc.config.errors import RunError

PACKAGE = Path(__file__).resolve().parents[1]
NOT_CODE = ("conf", "__pycache__")


def code_digest() -> str:
    """12 hexadecimal digits of this package's files: two with equal ones run the same code."""
    found = hashlib.sha256()
    for file in sorted(path for path in PACKAGE.rglob("*") if path.is_file()):
        name = file.relative_to(PACKAGE)
        if not set(NOT_CODE) & set(name.parts):
            found.update(f"{name.as_posix()}\0".encode())
            found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:12]


def freeze(folder: Path) -> Path:
    """A folder to import this package from, `<folder>/.code/<digest>`, made if it is not there."""
    home = folder / ".code" / code_digest()
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=home.parent, prefix=".") as making:
            made = Path(making) / "code"
            shutil.copytree(PACKAGE, made / "posenc", ignore=shutil.ignore_patterns("conf"))
            try:
                made.rename(home)
            except OSError:
                if not home.is_dir():  # else another launcher was faster
                    raise
    return home


def frozen(folder: Path) -> Path:
    """Where to import from the code that a sweep in this folder began with."""
    try:
        return freeze(folder)
    except OSError as error:
        one = error.args[0][0][2] if isinstance(error, shutil.Error) else error  # of many
        raise RunError(f"the code cannot be frozen in {folder}: {one}") from None
