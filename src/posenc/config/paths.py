"""Where the configuration files are, in a checkout and in an installed wheel."""

from collections.abc import Callable, Sequence
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def conf_dir() -> Path:
    """The folder `conf/`: at the top of a checkout, inside the package of a wheel."""
    for folder in (_PACKAGE.parents[1] / "conf", _PACKAGE / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise FileNotFoundError(f"no conf/train.yaml beside {_PACKAGE}: the installation is damaged")


def options(group: str, config_dirs: list[Path] | None = None) -> dict[str, str]:
    """The options of a config group, each with the one-line description that heads its YAML."""
    found: dict[str, str] = {}
    for folder in [*(config_dirs or []), conf_dir()]:
        for file in sorted((folder / group).glob("*.yaml")):
            found.setdefault(file.stem, _description(file))
    return found


def options_in(config_dirs: Sequence[Path]) -> Callable[[str], list[str]]:
    """Group -> the names of its options, in the order in which Hydra's `glob(*)` has them."""
    return lambda group: sorted(options(group, list(config_dirs)))


def _description(file: Path) -> str:
    """The first comment of a YAML, Hydra's package directive aside."""
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            return ""
        if "@package" not in line:
            return line.lstrip("# ")
    return ""


def groups() -> list[str]:
    """Every config group that holds options, as slash-separated paths."""
    root = conf_dir()
    folders = {file.parent.relative_to(root).as_posix() for file in root.glob("*/**/*.yaml")}
    return sorted(folders)
