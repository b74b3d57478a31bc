"""posenc's sweeper, where Hydra looks for it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.grids import jobs_of
from posenc.sweeps.overrides import render


class PosencSweeper(Sweeper):
    """Plans all jobs of `grids` times the command line, then launches those that are not done.

    Of Hydra's protocol it keeps the form: the "task function" is called once, with the overrides
    of all jobs, so that all are composed and checked before any starts. It returns, for each job,
    the arguments of its process, the run directory first.
    """

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._context, self._config = hydra_context, config
        self._plan: Callable[[list[list[str]]], Sequence[Sequence[str]]] = task_function
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> dict[str, Status]:
        """How every run of the sweep stands in the end, by name.

        Finished runs are left alone, failed ones too unless `retry` is set.
        """
        jobs = {job[0]: job for job in self._plan(jobs_of(self._config, arguments, self._options))}
        before = {path: RunDirectory(Path(path)).status() for path in jobs}
        done = {"finished"} if self._config.retry else {"finished", "failed"}
        due = [job for path, job in jobs.items() if before[path].state not in done]
        if due:
            finished = sum(status.state == "finished" for status in before.values())
            self._launcher.launch(due, finished)
        return {Path(path).name: RunDirectory(Path(path)).status() for path in jobs}

    def _options(self, group: str) -> list[str]:
        search = render(list(self._config.hydra.searchpath), "hydra.searchpath")
        return self._context.config_loader.get_group_options(
            group,
            ObjectType.CONFIG,
            self._config.hydra.job.config_name,
            [f"hydra.searchpath={search}"],
        )
