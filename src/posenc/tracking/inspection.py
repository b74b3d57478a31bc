"""An inspection as W&B shows it: tables to sort and filter, and pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wandb import Run

Tables = Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]]
"""Columns and rows by name."""


def log_inspection(run: "Run", tables: Tables, images: Sequence[Path]) -> None:
    """All tables and the figures in image files, at one step."""
    import wandb

    found: dict[str, Any] = {
        f"tables/{name}": wandb.Table(
            columns=[*columns], data=[list(row) for row in rows], allow_mixed_types=True
        )
        for name, (columns, rows) in tables.items()
    }
    found |= {f"figures/{image.stem}": wandb.Image(str(image)) for image in images}
    run.log(found, commit=True)
