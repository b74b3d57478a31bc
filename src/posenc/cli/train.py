"""`posenc train`: plan the runs of a sweep, launch them and summarize their outcomes.

The launcher runs jobs from a frozen copy of the code (`posenc.jobs.frozen_code`).
"""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from posenc.benchmark.bench_settings import BENCH_KEYS
from posenc.cli.arguments import Arguments
from posenc.config.components import build
from posenc.config.compose import Composer
from posenc.config.errors import ConfigError, plural, unusable_path
from posenc.config.grids import compose_sweep, expand_config
from posenc.config.paths import options
from posenc.runs.files import is_disk_full
from posenc.runs.status import Status
from posenc.sweeps.launcher import Launcher, PlannedRun


def run(arguments: Arguments) -> int:
    """Plan all runs, launch the unfinished ones and print a summary."""
    console = Console(stderr=True)
    sweep = compose_sweep("train", arguments.overrides, arguments.config_dirs)
    if benchmark_keys := [key for key in BENCH_KEYS if key in sweep]:
        raise ConfigError(
            f"{', '.join(benchmark_keys)}: this is a benchmark, not an experiment to train;"
            f" run posenc bench {' '.join(arguments.argv)}"
        )
    if not isinstance(sweep.retry, bool):
        raise ConfigError(f"retry={sweep.retry} must be true or false")
    if not sweep.hydra.launcher._target_.startswith("posenc."):
        available = ", ".join(options("hydra/launcher", arguments.config_dirs))
        raise ConfigError(f"hydra/launcher must be one of {available}")
    launcher: Launcher = build(sweep.hydra.launcher, name="hydra.launcher")
    jobs = expand_config(sweep, arguments.overrides, arguments.config_dirs)
    if "--cfg" in arguments.flags:
        from posenc.jobs.job_config import compose_job

        composer = Composer("train", arguments.config_dirs)
        for overrides in jobs:
            print(OmegaConf.to_yaml(compose_job(overrides, arguments.config_dirs, composer)))
        return 0

    planned_runs = _plan(jobs, sweep, arguments, local=launcher.local, console=console)
    before = {planned.name: planned.run.status() for planned in planned_runs}
    skipped_states = {"finished"} if sweep.retry else {"finished", "failed"}
    to_launch = [p for p in planned_runs if before[p.name].state not in skipped_states]
    if to_launch:
        finished = sum(status.state == "finished" for status in before.values())
        launcher.launch(to_launch, finished)
    after = {planned.name: planned.run.status() for planned in planned_runs}
    return _summarize(before, after, Path(sweep.outputs_dir) / sweep.name, console)


def _plan(
    jobs: Sequence[Sequence[str]],
    sweep: DictConfig,
    arguments: Arguments,
    *,
    local: bool,
    console: Console,
) -> list[PlannedRun]:
    from posenc.sweeps.plan import plan
    from posenc.sweeps.reuse import reused_experiments

    command, reuse = arguments.command_line(), reused_experiments(sweep)
    with console.status("validating configurations and preparing data") as status:
        try:
            return plan(
                jobs, arguments.config_dirs, command, status.update, reuse=reuse, local=local
            )
        except OSError as error:
            if is_disk_full(error):
                raise
            raise ConfigError(
                f"{unusable_path(error)} (runs go to outputs_dir, prepared data to cache_dir)"
            ) from None


def _summarize(
    before: dict[str, Status], after: dict[str, Status], folder: Path, console: Console
) -> int:
    """Print the skipped runs and the next command; return 0 if every run is finished, else 1."""
    for name, status in after.items():
        if status.state == "failed" and status == before[name]:
            console.print(f"skipped {name}, which failed: {status.error}", markup=False)
            console.print("add retry=true to rerun it")
    if any(status.state != "finished" for status in after.values()):
        return 1
    runs = plural(len(after), "run")
    console.print(
        f"{runs} finished ({folder}). Next: posenc report name={folder.name}", highlight=False
    )
    return 0
