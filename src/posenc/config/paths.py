"""The folders `conf/`, with its config groups, and `outputs/`, with the results."""

import re
import shlex
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
OUTPUTS = Path("outputs")
"""The default of outputs_dir, where runs and experiments are looked up by name."""
SWAP_GROUP, NO_SWAP = "evaluation/swap", "none"


def experiment_command(command: str, folder: Path) -> str:
    """Return `posenc COMMAND` for an experiment's folder, as it is typed in a shell."""
    words = ["posenc", command, f"name={folder.name}"]
    if folder.parent != OUTPUTS:
        words.append(f"outputs_dir={folder.parent}")
    return shlex.join(words)


def replace_home(text: str, name: str) -> str:
    """Return `text` with `name` for the path of the home directory."""
    home = str(Path.home())
    return text if home == "/" else re.sub(rf"(?<![\w.-]){re.escape(home)}(?=/|$)", name, text)


def experiment_names(outputs: Path) -> list[str]:
    """Return the names of the experiments in a folder of results, sorted."""
    return sorted(file.parent.name for file in outputs.glob("*/plan.json"))


def describe_other_results(folder: Path) -> str:
    """Return text that names the results of posenc bench and inspect in a folder, or ""."""
    return " and ".join(
        f"the results of posenc {command} ({folder / command})"
        for command in ("bench", "inspect")
        if (folder / command).is_dir()
    )


def conf_dir() -> Path:
    """Return `conf/`, which is at the top of a checkout but inside the package in a wheel."""
    for folder in (_PACKAGE.parents[1] / "conf", _PACKAGE / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise FileNotFoundError(f"no conf/train.yaml for {_PACKAGE}: the installation is corrupt")


@cache
def groups() -> tuple[str, ...]:
    """Return every config group as a slash-separated path, sorted."""
    root = conf_dir()
    names = {file.parent.relative_to(root).as_posix() for file in root.glob("*/**/*.yaml")}
    return tuple(sorted(names))


def options(group: str, config_dirs: Sequence[Path] = ()) -> dict[str, str]:
    """Map each option of a config group to its description, the first comment of its YAML file."""
    return {name: _description(file) for name, file in option_files(group, config_dirs).items()}


def allowed_options(group: str, config_dirs: Sequence[Path] = ()) -> list[str]:
    """Return the options of a config group; for swaps, also `none`, which has no file."""
    names = list(options(group, config_dirs))
    return [NO_SWAP, *names] if group == SWAP_GROUP else names


def option_files(group: str, config_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """Map each option of a config group to its YAML file; as in Hydra, `conf/` comes first."""
    files: dict[str, Path] = {}
    for folder in [conf_dir(), *config_dirs]:
        for file in sorted((folder / group).glob("*.yaml")):
            files.setdefault(file.stem, file)
    return files


def _description(file: Path) -> str:
    """Return the first comment at the top of a YAML file, skipping Hydra's package directive."""
    comments = takewhile(lambda line: line.startswith("#"), file.read_text().splitlines())
    return next((line.lstrip("# ") for line in comments if "@package" not in line), "")
