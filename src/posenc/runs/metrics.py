"""The training log `metrics.jsonl`: one row a step, and never two."""

import json
from pathlib import Path
from typing import Any

from posenc.runs.files import append_line, read_lines, write_atomic


class MetricsLog:
    """Rows `{"step", "tokens", "loss", "learning_rate"[, "validation_loss"]}`; losses in nats."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: dict[str, Any]) -> None:
        append_line(self.path, row)

    def rows(self) -> list[dict[str, Any]]:
        return read_lines(self.path)

    def cut_back(self, step: int) -> None:
        """Drop what was logged after `step`, the step that training resumes from."""
        kept = [row for row in self.rows() if row["step"] <= step]
        write_atomic(self.path, "".join(json.dumps(row) + "\n" for row in kept))
