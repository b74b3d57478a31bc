"""`posenc train`: plan all runs, then see each of them to its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from posenc.benchmark.settings import OWN
from posenc.cli.arguments import Arguments
from posenc.config.compose import compose, hydra_at_conf
from posenc.config.errors import ConfigError
from posenc.runs.files import is_disk_full
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.overrides import steering

OWN_PLUGINS = {
    "sweeper": ["hydra_plugins.posenc.sweeper.PosencSweeper"],
    "launcher": [
        "hydra_plugins.posenc.launcher.PoolLauncher",
        "hydra_plugins.posenc.queues.LocalLauncher",
        "hydra_plugins.posenc.queues.SlurmLauncher",
        "hydra_plugins.posenc.queues.RayLauncher",
    ],
}


def run(arguments: Arguments) -> int:
    console = Console(stderr=True)
    before: dict[str, Status] = {}
    config = compose("train", steering(arguments.overrides), arguments.config_dirs, with_hydra=True)

    if only_bench := [key for key in OWN if key in config]:
        raise ConfigError(
            f"{', '.join(only_bench)}: only a benchmark has these; it is measured, not trained:"
            f" posenc bench {' '.join(arguments.words)}"
        )
    if not isinstance(config.retry, bool):
        raise ConfigError(f"retry={config.retry} must be true or false")
    for part, plugins in OWN_PLUGINS.items():
        if config.hydra[part].get("_target_") not in plugins:
            raise ConfigError(f"hydra/{part}: posenc has its own; leave it, or give one of conf/")

    here = get_class(config.hydra.launcher._target_).here

    def planned(jobs: Sequence[Sequence[str]]) -> list[list[str]]:
        planned_jobs = _plan(jobs, arguments, console, here)
        for path, *_ in planned_jobs:
            before[Path(path).name] = RunDirectory(Path(path)).status()
        return planned_jobs

    with hydra_at_conf():
        context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
        sweeper: Any = Plugins.instance().instantiate_sweeper(
            config=config, hydra_context=context, task_function=planned
        )
        outcomes: dict[str, Status] = sweeper.sweep(list(arguments.overrides))
    return _conclude(outcomes, before, config, console)


def _plan(
    jobs: Sequence[Sequence[str]], arguments: Arguments, console: Console, here: bool
) -> list[list[str]]:
    """The arguments of every job's process: its run directory, and the modules it may import."""
    from posenc.sweeps.plan import plan, resolved

    if "--cfg" in arguments.flags:
        for overrides in jobs:
            print(OmegaConf.to_yaml(resolved(overrides, arguments.config_dirs)))
        return []
    with console.status("checking every configuration and preparing the data") as status:
        try:
            typed = arguments.typed()
            planned = plan(jobs, arguments.config_dirs, typed, status.update, here=here)
        except OSError as error:
            if is_disk_full(error):
                raise
            raise ConfigError(
                f"{error.filename or 'a file'}: {error.strerror or error}; give another path"
                f" (runs go to outputs_dir, prepared data to cache_dir)"
            ) from None
    return [
        [str(job.run.path), *(word for name in job.config.modules for word in ("--module", name))]
        for job in planned
    ]


def _conclude(
    outcomes: dict[str, Status], before: dict[str, Status], config: DictConfig, console: Console
) -> int:
    """0 when every run is finished; the launcher's view has said how those ended that it ran."""
    for name, status in outcomes.items():
        if status.state == "failed" and status == before[name]:
            console.print(f"left alone: {name}, which failed: {status.error}", markup=False)
            console.print("retry=true runs it again")
    if any(status.state != "finished" for status in outcomes.values()):
        return 1
    if outcomes:
        folder = Path(config.outputs_dir) / config.name
        console.print(f"all {len(outcomes)} runs are finished in {folder}", highlight=False)
        console.print(f"see them: posenc report name={config.name}", highlight=False)
    return 0
