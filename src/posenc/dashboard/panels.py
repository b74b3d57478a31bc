"""The panels of a dashboard, each of a metric that runs log."""

from dataclasses import dataclass

import wandb_workspaces.reports.v2 as wr
from wandb_workspaces.reports.v2.interface import Panel

from posenc.dashboard.logged import Logged
from posenc.tracking.media import IMAGE, TABLE
from posenc.tracking.points import LENGTH, POSITION

SPEED = "cost/training_tokens_per_second"
RATIO = "extrapolation_ratio"
WIDE, HALF, HIGH = 24, 12, 8  # in units of a report's grid, which is 24 wide
CURVES = {"/perplexity": "Perplexity", "/accuracy": "Accuracy"}
TRAINING = {
    "train/loss": "Training loss",
    "validation/loss": "Validation loss",
    "train/learning_rate": "Learning rate",
}


@dataclass(frozen=True)
class Group:
    """Panels under one heading."""

    name: str
    panels: list[Panel]


def groups(logged: Logged, by: str) -> list[Group]:
    """All groups that have something to show; curves are grouped by the configuration key `by`."""
    made = [
        Group("Extrapolation", [*_extrapolation(logged, by), *_ratio(logged, by)]),
        Group("Loss by position", [*_positions(logged, by), *_position_media(logged)]),
        Group("Cost against quality", _cost(logged)),
        Group("Training", _training(logged, by)),
    ]
    return [group for group in made if group.panels]


def placed(panels: list[Panel], name: str) -> list[Panel]:
    """Two to a row, under ids that stay the same when the dashboard is made again."""
    for i, panel in enumerate(panels):
        panel.layout = wr.Layout(x=HALF * (i % 2), y=HIGH * (i // 2), w=HALF, h=HIGH)
        panel._id = id_of(f"{name}-{i}")
    return panels


def id_of(name: str) -> str:
    """A heading as an id: `Loss by position` is `loss-by-position`."""
    return name.lower().replace(" ", "-")


def _extrapolation(logged: Logged, by: str) -> list[Panel]:
    return [
        _curve(name, LENGTH, _title(title, name, "extrapolation", ending), by, log_x=True)
        for ending, title in CURVES.items()
        for name in logged.curves("extrapolation/", ending)
    ]


def _ratio(logged: Logged, by: str) -> list[Panel]:
    if RATIO not in logged.summary:
        return []
    bars = wr.BarPlot(
        title="Perplexity at the longest length over that at L",
        metrics=[wr.SummaryMetric(RATIO)],
        groupby=wr.Config(by),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
    )
    return [bars]


def _positions(logged: Logged, by: str) -> list[Panel]:
    return [
        _curve(name, POSITION, _title("Loss", name, "loss_by_position", "/loss"), by, log_x=True)
        for name in logged.curves("loss_by_position/", "/loss")
    ]


def _position_media(logged: Logged) -> list[Panel]:
    if not logged.media:
        return []
    pictures = wr.MediaBrowser(title="Loss by position of every run", media_keys=[IMAGE])
    return [pictures, wr.WeavePanelSummaryTable(table_name=TABLE)]


def _cost(logged: Logged) -> list[Panel]:
    quality = [name for name in logged.summary if name.startswith("ppl@")]
    if SPEED not in logged.summary or not quality:
        return []
    shown = "ppl@2L" if "ppl@2L" in quality else quality[-1]
    return [_against(SPEED, shown), *(_against(name, shown) for name in _benched(logged))]


def _benched(logged: Logged) -> list[str]:
    return [name for name in logged.summary if name.startswith("bench/") and "tokens" in name]


def _against(cost: str, quality: str) -> Panel:
    return wr.ScatterPlot(
        title=f"{quality} against {cost}",
        x=wr.SummaryMetric(cost),
        y=wr.SummaryMetric(quality),
        log_y=True,
    )


def _training(logged: Logged, by: str) -> list[Panel]:
    shown = {name: title for name, title in TRAINING.items() if name in logged.history}
    return [
        _curve(name, axis, f"{title} by {axis}", by)
        for name, title in shown.items()
        for axis in ("tokens", "step")
    ]


def _curve(name: str, axis: str, title: str, by: str, log_x: bool = False) -> Panel:
    """Means over seeds with bands from the lowest to the highest."""
    return wr.LinePlot(
        title=title,
        x=wr.Metric(axis),
        y=[wr.Metric(name)],
        log_x=log_x,
        log_y=name.endswith("/perplexity"),
        title_x=axis,
        title_y=name,
        groupby=wr.Config(by),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
    )


def _title(quantity: str, name: str, beginning: str, ending: str) -> str:
    what = name.removeprefix(beginning).removesuffix(ending).strip("/")
    over = "evaluation length" if beginning == "extrapolation" else "position in the window"
    return f"{quantity} by {over}" + (f": {what}" if what else "")
