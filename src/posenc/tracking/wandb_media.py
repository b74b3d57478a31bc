"""Loss by position as a W&B table and image, and the perplexities of swaps as a table."""

import io
from typing import Any

from omegaconf import DictConfig

from posenc.report.chart import Chart, Line, PlotPoint, Subplot, VerticalLine
from posenc.report.confidence import zero_width_band
from posenc.report.encoding_styles import encoding_style, sweep_styles
from posenc.report.line_plot import line_figure
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_history import SWAP_COLUMNS, loss_by_position, swap_rows

TABLE_KEY, IMAGE_KEY = "loss_by_position_table", "loss_by_position_image"
SWAP_TABLE_KEY = "swap_table"
COLUMNS = ("data", "split", "swap", "length", "position", "loss", "tokens")
Curves = dict[tuple[str, str, str, int], list[tuple[float, float, int]]]
"""(data, split, swap, length) -> bins of (position, loss, tokens)."""


def position_media(directory: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """Return a table and an image for W&B's `Run.log`: the final weights' losses by position."""
    import wandb
    from PIL import Image

    rows = directory.rows()
    arrays = directory.losses_by_position(rows)
    curves: Curves = {
        (row["data_name"], row["split"], row["swap"] or "", row["length"]): bins
        for row, bins in loss_by_position(rows, arrays, config.train_length)
        if row.get("at_tokens") is None
    }
    data: list[Any] = [[*key, *values] for key, bins in curves.items() for values in bins]
    image = Image.open(io.BytesIO(_png(curves, directory.name, config)))
    table = wandb.Table(columns=list(COLUMNS), data=data)
    return {TABLE_KEY: table, IMAGE_KEY: wandb.Image(image)}


def swap_table(directory: RunDirectory) -> dict[str, Any]:
    """Return a table for W&B's `Run.log` with the perplexity of every swap, factor and length."""
    import wandb

    data: list[Any] = swap_rows(directory.rows())
    return {SWAP_TABLE_KEY: wandb.Table(columns=list(SWAP_COLUMNS), data=data)}


def _png(curves: Curves, title: str, config: DictConfig) -> bytes:
    train_length, lines = config.train_length, []
    styles = sweep_styles(encoding_style(config.choices.encoding), len(curves))
    for style, ((data, split, swap, length), bins) in zip(styles, curves.items(), strict=True):
        label = " ".join(filter(None, (f"{length} tokens, {data} {split}", swap)))
        points = tuple(PlotPoint(position, zero_width_band(loss)) for position, loss, _ in bins)
        lines.append(Line(label, style, points))
    train_length_line = VerticalLine(train_length, f"L = {train_length}")
    chart = Chart(
        file_stem="loss_by_position",
        title=title,
        x_title="Position in the window (tokens)",
        y_title="Loss (nats per token)",
        subplots=(Subplot("", tuple(lines), "loss", (train_length_line,), train_length),),
        caption="",
        csv="",
    )
    return line_figure("", chart).png
