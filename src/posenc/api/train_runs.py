"""`posenc.train`: plan and run a sweep from Python."""

import shlex
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

from posenc.api.loaded_run import LoadedRun, override_list
from posenc.api.sweep_launch import compose_training, launch_training, plan_training
from posenc.config.console import Console
from posenc.config.errors import RunError
from posenc.config.yaml_files import check_config_dirs
from posenc.runs.status import Status


def train(
    overrides: str | Sequence[str] = (),
    *,
    config_dirs: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    show_progress: bool = False,
) -> list[LoadedRun]:
    """Train and evaluate the runs that `overrides` describe, and return them.

    `overrides` are those of `posenc train`, as a list or as one string that is split as in a
    shell; comma-separated values define a sweep. `config_dirs` are folders of YAML files, as with
    `--config-dir`. As with the command, each run is trained in its own process, finished runs are
    skipped, and interrupted ones resume. Nothing is printed unless `show_progress` is true.

    Raises ConfigError for an invalid configuration, before any run directory is written, and
    RunError if a run did not finish. On Ctrl-C, every active run saves a checkpoint and stops, and
    KeyboardInterrupt is raised.
    """
    words = override_list(overrides)
    config_dirs = [config_dirs] if isinstance(config_dirs, str | PathLike) else config_dirs
    folders = check_config_dirs([Path(folder) for folder in config_dirs])
    sweep = compose_training(words, folders, words)
    console = Console(stderr=True, quiet=not show_progress)
    sweep.launcher.console = console
    on_progress: Callable[[str], None] = console.print
    flags = [word for folder in folders for word in ("--config-dir", str(folder))]
    command = shlex.join(["posenc", "train", *flags, *words])
    planned_runs = plan_training(sweep, command, on_progress)
    _, statuses = launch_training(sweep, planned_runs)
    if any(status.state != "finished" for status in statuses.values()):
        raise RunError(_describe_unfinished(statuses))
    return [LoadedRun(planned.run, planned.modules) for planned in planned_runs]


def _describe_unfinished(statuses: dict[str, Status]) -> str:
    """Return an error message with a remedy and the state of each unfinished run."""
    unfinished = {name: s for name, s in statuses.items() if s.state != "finished"}
    failed = any(status.state == "failed" for status in unfinished.values())
    remedy = "train again with retry=true" if failed else "train again to resume them"
    lines = [f"{len(unfinished)} of {len(statuses)} runs did not finish; {remedy}"]
    for name, status in unfinished.items():
        error = f" ({status.error})" if status.error else ""
        lines.append(f"{name}: {status.state}{error}")
    return "\n".join(lines)
