"""Synchronizes a W&B run with its run directory; each step is logged once and in order.

Training rows keep their training steps. W&B's history is append-only, so each new evaluation result
gets the next free step, and `mirror.json` in the run directory records these steps.
"""

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from posenc.runs.row_types import Row
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.mirror_file import DIFF_FILE, MEDIA_KEY, SWAPS_KEY, MirrorFile
from posenc.tracking.wandb_history import training_row
from posenc.tracking.wandb_summary import run_summary
from posenc.training.checkpoint import list_checkpoints

if TYPE_CHECKING:
    from wandb import Run


class Mirror:
    """Logs the rows that a W&B run is missing; `last_step` is the last step that W&B has.

    An offline run is logged from its first step whenever it is opened. `logged_characters` is the
    number of characters of run.log that have been logged.
    """

    def __init__(self, run: "Run", directory: RunDirectory, config: DictConfig) -> None:
        self.run, self.directory, self.config = run, directory, config
        self.last_step = 0 if run.offline else max(0, run.starting_step - 1)
        self.logged_characters = 0

    def log_training(self, rows: list[dict[str, Any]]) -> None:
        """Log rows of the training log, and any earlier rows that are missing from W&B."""
        if rows and rows[0]["step"] > self.last_step + 1:
            rows = [r for r in self.directory.metrics() if r["step"] <= rows[-1]["step"]]
        for row in rows:
            self._log(row["step"], training_row(row))

    def log_results(self) -> None:
        """Log what is still missing: training rows, evaluation results, summary, and files."""
        self.log_training(checkpointed_rows(self.directory))
        self._log_console()
        if (diff := self.directory.path / DIFF_FILE).exists():
            self.run.save(str(diff), base_path=str(diff.parent), policy="now")
        if self.directory.rows():
            from posenc.tracking import wandb_media  # imports Altair, which is slow to import

            mirror_file = MirrorFile(self.directory)
            mirror_file.add_new_results(self.config)
            self.log_training(self.directory.metrics())
            for entry in mirror_file.entries:
                if "row" in entry:
                    self._log(entry["step"], entry["row"])
                elif entry["step"] > self.last_step and entry is mirror_file.newest(MEDIA_KEY):
                    media = wandb_media.position_media(self.directory, self.config)
                    self._log(entry["step"], media)
                elif entry["step"] > self.last_step and entry is mirror_file.newest(SWAPS_KEY):
                    self._log(entry["step"], wandb_media.swap_table(self.directory))
        self.run.summary.update(run_summary(self.directory, self.config))

    def _log_console(self) -> None:
        """Log the lines of run.log that W&B does not have."""
        if not self.directory.log_file.exists():
            return
        text = self.directory.log_text()
        start = 0 if self.run.offline else MirrorFile(self.directory).logged_characters
        if start > len(text):  # the file has been replaced
            start = 0
        if text[start:].strip():
            self.run.write_logs(text[start:])
        self.logged_characters = len(text)

    def _log(self, step: int, row: Row) -> None:
        if step > self.last_step:
            self.run.log(row, step=step, commit=True)
            self.last_step = step


def checkpointed_rows(directory: RunDirectory) -> list[dict[str, Any]]:
    """Return the rows of the training log that a resumed run would not write again."""
    rows = directory.metrics()
    if directory.status().state == "finished":
        return rows
    checkpoints = list_checkpoints(directory.checkpoints)
    return [row for row in rows if checkpoints and row["step"] <= checkpoints[0].step]
