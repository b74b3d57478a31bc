"""A W&B run brought level with its run directory, from wherever it stands."""

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from posenc.runs.run_directory import RunDirectory
from posenc.tracking.journal import Journal
from posenc.tracking.media import position_media
from posenc.tracking.offline_files import mirrored_step
from posenc.tracking.points import training_point
from posenc.tracking.summary import run_summary

if TYPE_CHECKING:
    from wandb import Run


class Mirror:
    """Steps arrive in order and each once: a run that was cut off has a beginning of them."""

    def __init__(self, run: "Run", directory: RunDirectory, config: DictConfig) -> None:
        self.run, self.directory, self.config = run, directory, config
        self._sent = max(0, mirrored_step(run))

    def training(self, rows: list[dict[str, Any]]) -> None:
        """Log rows that a durable checkpoint covers, and those before them that are lacking."""
        if rows and rows[0]["step"] > self._sent + 1:
            rows = [r for r in self.directory.metrics() if r["step"] <= rows[-1]["step"]]
        for row in rows:
            self._log(row["step"], training_point(row))

    def results(self) -> None:
        """Log what was evaluated, once training is over, and renew the summary."""
        if self.directory.rows():
            journal = Journal(self.directory)
            journal.update(self.config)
            self.training(self.directory.metrics())
            for entry in journal.entries:
                if "point" in entry:
                    self._log(entry["step"], entry["point"])
                elif entry["step"] > self._sent and entry is journal.newest_media:
                    self._log(entry["step"], position_media(self.directory, self.config))
        self.run.summary.update(run_summary(self.directory, self.config))

    def _log(self, step: int, point: dict[str, Any]) -> None:
        if step > self._sent:
            self.run.log(point, step=step, commit=True)
            self._sent = step
