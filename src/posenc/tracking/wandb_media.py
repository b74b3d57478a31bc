"""Loss by position as a W&B table and image."""

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from omegaconf import DictConfig

from posenc.runs.evaluation_rows import read_positions
from posenc.runs.figure import png
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_history import position_bins, rows_by_position

TABLE_KEY, IMAGE_KEY = "loss_by_position_table", "loss_by_position_image"
COLUMNS = ("data", "split", "swap", "length", "position", "loss", "tokens")
Curves = dict[tuple[str, str, str, int], list[tuple[float, float, int]]]
"""(data, split, swap, length) -> bins of (position, loss, tokens)."""


def position_media(directory: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """Return the table and image for `run.log`, with every length measured by position."""
    import wandb
    from PIL import Image

    curves = _curves(directory, config)
    data: list[Any] = [[*key, *values] for key, bins in curves.items() for values in bins]
    image = Image.open(io.BytesIO(png(lambda: _draw(curves, directory.name, config))))
    table = wandb.Table(columns=list(COLUMNS), data=data)
    return {TABLE_KEY: table, IMAGE_KEY: wandb.Image(image)}


def _curves(directory: RunDirectory, config: DictConfig) -> Curves:
    arrays = read_positions(directory.positions_file)
    return {
        (row["data_name"], row["split"], row["swap"] or "", row["length"]): position_bins(
            row, arrays, config
        )
        for row in rows_by_position(directory.rows(), arrays)
    }


def _draw(curves: Curves, title: str, config: DictConfig) -> Figure:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (data, split, swap, length), bins in curves.items():
        positions, losses, _ = zip(*bins, strict=True)
        label = " ".join(filter(None, (f"{length} tokens of {data}, {split}", swap)))
        axes.plot(positions, losses, marker="o", markersize=3, label=label)
    axes.axvline(config.train_length, color="#555555", linestyle="--", label="training length")
    axes.set(xscale="log", xlabel="Position in the window (tokens)", title=title)
    axes.set_ylabel("Loss (nats per token)")
    axes.legend(fontsize=7)
    return figure
