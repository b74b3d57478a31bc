"""An inspection as W&B shows it: tables to sort and filter, and pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from wandb import Run

Tables = Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]]
"""Columns and rows by name."""


class Inspection(NamedTuple):
    """What was inspected, under the name of `run`; `images` are files."""

    run: RunDirectory
    config: Mapping[str, Any]
    tables: Tables
    images: Sequence[Path]


def log_inspection(run: "Run", found: Inspection) -> None:
    """All tables and figures, at one step."""
    import wandb

    logged: dict[str, Any] = {
        f"tables/{name}": wandb.Table(
            columns=[*columns], data=[list(row) for row in rows], allow_mixed_types=True
        )
        for name, (columns, rows) in found.tables.items()
    }
    logged |= {f"figures/{image.stem}": wandb.Image(str(image)) for image in found.images}
    run.log(logged, commit=True)
