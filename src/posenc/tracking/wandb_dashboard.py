"""An experiment's W&B workspace and W&B report: verdicts, panels and the run table.

A panel is included only if the runs log its metric.
"""

import hashlib
from collections.abc import Mapping, Sequence

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces.reports.v2.interface import Panel

from posenc.report.experiment import Experiment
from posenc.report.judge import judge_experiment
from posenc.report.page import paragraphs
from posenc.report.verdicts import summary, verdict_tables
from posenc.tracking.logged_keys import LoggedKeys
from posenc.tracking.wandb_history import EVALUATION_AXES, LENGTH_AXIS, POSITION_AXIS
from posenc.tracking.wandb_media import IMAGE_KEY, SWAP_TABLE_KEY, TABLE_KEY
from posenc.tracking.wandb_summary import RATIO_KEY, SPEED_KEY
from posenc.tracking.wandb_workspaces_api import set_id, set_view_name

MAX_RUNS = 100  # per panel; W&B's default is 10
MAX_TITLE_LENGTH = 128
COLUMN_PREFIXES = ("ppl@", "extrap", "cost/")
PANEL_WIDTH, PANEL_HEIGHT = 12, 8  # in units of a report's grid, which is 24 units wide
EXTRAPOLATION_TITLES = {
    "perplexity": "Perplexity by evaluation length",
    "accuracy": "Accuracy by evaluation length",
}
POSITION_TITLES = {"loss": "Loss by position in the window"}
TRAINING_TITLES = {
    "train/loss": "Training loss",
    "validation/loss": "Validation loss",
    "train/learning_rate": "Learning rate",
    "train/gradient_norm": "Gradient norm before clipping",
}


def build_workspace(
    entity: str, project: str, experiment: Experiment, keys: LoggedKeys
) -> ws.Workspace:
    """Return the workspace, not yet saved; its name depends only on the experiment's name.

    Panels of a workspace cannot filter runs, so each training length gets separate lines.
    """
    group_by = keys.encoding_key if len(keys.train_lengths) == 1 else "series"
    verdicts = _verdicts_markdown(experiment)
    sections: dict[str, list[Panel]] = {
        "Claims": [wr.MarkdownPanel(markdown=verdicts)] if verdicts else [],
        **panels_by_heading(keys, group_by),
        "Report figures": [wr.MediaBrowser(title=key, media_keys=[key]) for key in keys.figures],
    }
    workspace = ws.Workspace(
        entity=entity,
        project=project,
        name=f"posenc {experiment.name}",
        sections=[
            ws.Section(
                name=heading,
                panels=arrange(panels, heading),
                is_open=True,
                layout_settings=ws.SectionLayoutSettings(columns=2, rows=2),
            )
            for heading, panels in sections.items()
            if panels
        ],
        settings=ws.WorkspaceSettings(max_runs=MAX_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=_experiment_filter(experiment), pinned_columns=_columns(keys)
        ),
    )
    set_view_name(workspace, hashlib.sha256(experiment.name.encode()).hexdigest()[:11])
    return workspace


def build_report(entity: str, project: str, experiment: Experiment, keys: LoggedKeys) -> wr.Report:
    """Return the report. Saving it replaces the report with the same title, `posenc <name>`."""
    title = experiment.about.get("title") or experiment.name
    verdicts = _verdicts_markdown(experiment)
    runs = _runset("All runs", "All runs", _experiment_filter(experiment), keys)
    return wr.Report(
        entity=entity,
        project=project,
        title=f"posenc {experiment.name}"[:MAX_TITLE_LENGTH],
        description=title,
        width="fluid",
        blocks=[
            wr.H1(title),
            wr.MarkdownBlock("\n\n".join(paragraphs(experiment.about))),
            *([wr.H2("Claims and verdicts"), wr.MarkdownBlock(verdicts)] if verdicts else []),
            *(
                block
                for n in keys.train_lengths
                for block in _blocks_for_length(experiment, keys, n)
            ),
            wr.H2("Runs"),
            wr.PanelGrid(
                runsets=[runs], panels=arrange([wr.RunComparer(diff_only="split")], "runs")
            ),
        ],
    )


def _blocks_for_length(experiment: Experiment, keys: LoggedKeys, train_length: int) -> list:
    """Return the report's blocks for the runs of one training length."""
    heading = f"Trained at L = {train_length}"
    filters = f"{_experiment_filter(experiment)} and Config('train_length') = {train_length}"
    blocks: list = [wr.H2(heading)]
    for subheading, panels in panels_by_heading(keys, keys.encoding_key).items():
        if not panels:
            continue
        name = f"l{train_length}-{subheading}"
        grid = wr.PanelGrid(
            runsets=[_runset(name, heading, filters, keys)], panels=arrange(panels, name)
        )
        blocks += [wr.H3(subheading), grid]
    return blocks


def _runset(name: str, title: str, filters: str, keys: LoggedKeys) -> wr.Runset:
    runset = wr.Runset(name=title, filters=filters, pinned_columns=_columns(keys))
    set_id(runset, name)
    return runset


def _experiment_filter(experiment: Experiment) -> str:
    return f"Config('experiment') = '{experiment.name}'"


def _columns(keys: LoggedKeys) -> list[str]:
    """Return the columns of the run table: configuration keys, then results and costs."""
    results = [key for key in keys.summary if key.startswith(COLUMN_PREFIXES)]
    return [*(f"config:{key}" for key in keys.config), *(f"summary:{key}" for key in results)]


def _verdicts_markdown(experiment: Experiment) -> str:
    """Return the verdicts on premises and claims as Markdown, empty if there are none."""
    verdicts = judge_experiment(experiment)
    counts = [f"**{name}: {summary(items)}**" for name, items in verdicts.by_heading.items()]
    return "\n\n".join([*counts, *(table.to_markdown() for table in verdict_tables(verdicts))])


def panels_by_heading(keys: LoggedKeys, group_by: str) -> dict[str, list[Panel]]:
    """Return the panels under each heading; `group_by` is the configuration key that groups lines.

    A heading whose metrics the runs do not log has no panels.
    """
    by_length = _curve_panels(keys, LENGTH_AXIS, EXTRAPOLATION_TITLES, group_by)
    by_position = _curve_panels(keys, POSITION_AXIS, POSITION_TITLES, group_by)
    has_swaps = SWAP_TABLE_KEY in keys.media
    swaps = [wr.WeavePanelSummaryTable(table_name=SWAP_TABLE_KEY)] if has_swaps else []
    return {
        "Extrapolation": [*by_length, *swaps, *_ratio_panels(keys, group_by)],
        "Loss by position": [*by_position, *_position_media_panels(keys)],
        "Quality against cost": _cost_panels(keys),
        "Training": _training_panels(keys, group_by),
    }


def arrange(panels: list[Panel], name: str) -> list[Panel]:
    """Place the panels in two columns and set ids that depend only on `name` and the order."""
    for i, panel in enumerate(panels):
        x, y = PANEL_WIDTH * (i % 2), PANEL_HEIGHT * (i // 2)
        panel.layout = wr.Layout(x=x, y=y, w=PANEL_WIDTH, h=PANEL_HEIGHT)
        set_id(panel, f"{name}-{i}")
    return panels


def _curve_panels(
    keys: LoggedKeys, axis: str, titles: Mapping[str, str], group_by: str
) -> list[Panel]:
    """Return panels of the curves on an evaluation axis; `titles` maps metrics to titles."""
    prefix = axis.partition("/")[0]
    return [
        _line_plot(curves, axis, f"{title}{_title_suffix(curves)}", group_by)
        for metric, title in titles.items()
        for curves in keys.curve_keys(f"{prefix}/", f"/{metric}")
    ]


def _ratio_panels(keys: LoggedKeys, group_by: str) -> list[Panel]:
    if RATIO_KEY not in keys.summary:
        return []
    return [
        wr.BarPlot(
            title="Perplexity at the longest length divided by that at L",
            metrics=[wr.SummaryMetric(RATIO_KEY)],
            groupby=wr.Config(group_by),
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
        )
    ]


def _position_media_panels(keys: LoggedKeys) -> list[Panel]:
    if IMAGE_KEY not in keys.media:
        return []
    images = wr.MediaBrowser(title="Loss by position for each run", media_keys=[IMAGE_KEY])
    return [images, wr.WeavePanelSummaryTable(table_name=TABLE_KEY)]


def _cost_panels(keys: LoggedKeys) -> list[Panel]:
    perplexities = [key for key in keys.summary if key.startswith("ppl@")]
    if SPEED_KEY not in keys.summary or not perplexities:
        return []
    quality = "ppl@2L" if "ppl@2L" in perplexities else perplexities[-1]
    benchmarks = [key for key in keys.summary if key.startswith("bench/") and "tokens" in key]
    return [
        wr.ScatterPlot(
            title=f"{quality} against {cost}",
            x=wr.SummaryMetric(cost),
            y=wr.SummaryMetric(quality),
            log_y=True,
        )
        for cost in (SPEED_KEY, *benchmarks)
    ]


def _training_panels(keys: LoggedKeys, group_by: str) -> list[Panel]:
    return [
        _line_plot([key], axis, f"{title} by {axis}", group_by)
        for key, title in TRAINING_TITLES.items()
        for axis in ("tokens", "step")
        if key in keys.history
    ]


def _line_plot(keys: Sequence[str], axis: str, title: str, group_by: str) -> Panel:
    """Return a plot of the means over seeds, with bands from the minimum to the maximum."""
    return wr.LinePlot(
        title=title,
        x=wr.Metric(axis),
        y=[wr.Metric(key) for key in keys],
        log_x=axis in EVALUATION_AXES,
        log_y=keys[0].endswith("/perplexity"),
        title_x=axis,
        title_y=keys[0],
        groupby=wr.Config(group_by),
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
    )


def _title_suffix(curves: Sequence[str]) -> str:
    """Return a suffix for a panel's title, such as `: nonoverlapping, swaps`."""
    middle = "/".join(curves[0].split("/")[1:-1])
    parts = [*filter(None, [middle]), *(["swaps"] if len(curves) > 1 else [])]
    return f": {', '.join(parts)}" if parts else ""
