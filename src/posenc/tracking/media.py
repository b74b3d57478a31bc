"""Loss by position as a table and as an image."""

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from omegaconf import DictConfig

from posenc.runs.evaluation_rows import read_positions
from posenc.runs.figure import png
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.points import by_position, position_bins

TABLE, IMAGE = "loss_by_position_table", "loss_by_position_image"
COLUMNS = ("data", "split", "swap", "length", "position", "loss", "tokens")
Lines = dict[tuple[str, str, str, int], list[tuple[float, float, int]]]


def position_media(directory: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """What `run.log` takes: every length that was measured by position, in log-spaced bins."""
    import wandb
    from PIL import Image

    lines = _lines(directory, config)
    data: list[Any] = [[*of, *values] for of, line in lines.items() for values in line]
    picture = Image.open(io.BytesIO(png(lambda: _draw(lines, directory.name, config))))
    return {TABLE: wandb.Table(columns=list(COLUMNS), data=data), IMAGE: wandb.Image(picture)}


def _lines(directory: RunDirectory, config: DictConfig) -> Lines:
    arrays = read_positions(directory.positions_file)
    return {
        (row["data_name"], row["split"], row["swap"] or "", row["length"]): position_bins(
            row, arrays, config
        )
        for row in by_position(directory.rows(), arrays)
    }


def _draw(lines: Lines, title: str, config: DictConfig) -> Figure:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (data, split, swap, length), line in lines.items():
        at, loss, _ = zip(*line, strict=True)
        name = " ".join(filter(None, (f"{length} tokens of {data}, {split}", swap)))
        axes.plot(at, loss, marker="o", markersize=3, label=name)
    axes.axvline(config.train_length, color="#555555", linestyle="--", label="training length")
    axes.set(xscale="log", xlabel="Position in the window (tokens)", title=title)
    axes.set_ylabel("Loss (nats per token)")
    axes.legend(fontsize=7)
    return figure
