"""Synchronizes a W&B run with its run directory; each step is logged once and in order.

Training rows keep their training steps. W&B's history is append-only, so each new evaluation result
gets the next free step, and `mirror.json` in the run directory records these steps.
"""

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from posenc.runs.run_directory import RunDirectory
from posenc.tracking.mirror_file import MirrorFile
from posenc.tracking.offline_files import last_logged_step
from posenc.tracking.wandb_history import Row, training_row
from posenc.tracking.wandb_media import position_media
from posenc.tracking.wandb_summary import run_summary

if TYPE_CHECKING:
    from wandb import Run


class Mirror:
    """Logs the missing rows of a W&B run; `last_step` is the last step that W&B has.

    If `rewrite`, all rows are logged, without regard to earlier offline run files.
    """

    def __init__(
        self, run: "Run", directory: RunDirectory, config: DictConfig, *, rewrite: bool = False
    ) -> None:
        self.run, self.directory, self.config = run, directory, config
        self.last_step = 0 if rewrite else max(0, last_logged_step(run))

    def log_training(self, rows: list[dict[str, Any]]) -> None:
        """Log rows of the training log, and any earlier rows that are missing from W&B."""
        if rows and rows[0]["step"] > self.last_step + 1:
            rows = [r for r in self.directory.metrics() if r["step"] <= rows[-1]["step"]]
        for row in rows:
            self._log(row["step"], training_row(row))

    def log_results(self) -> None:
        """Log the evaluation results, if there are any, and update the summary."""
        if self.directory.rows():
            mirror_file = MirrorFile(self.directory)
            mirror_file.add_new_results(self.config)
            self.log_training(self.directory.metrics())
            for entry in mirror_file.entries:
                if "row" in entry:
                    self._log(entry["step"], entry["row"])
                elif entry["step"] > self.last_step and entry is mirror_file.newest_media:
                    self._log(entry["step"], position_media(self.directory, self.config))
        self.run.summary.update(run_summary(self.directory, self.config))

    def _log(self, step: int, row: Row) -> None:
        if step > self.last_step:
            self.run.log(row, step=step, commit=True)
            self.last_step = step
