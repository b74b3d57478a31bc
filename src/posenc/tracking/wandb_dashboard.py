"""An experiment's W&B workspace and W&B report: verdicts, panels and the run table."""

import hashlib

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces.reports.v2.interface import Panel

from posenc.report.experiment import Experiment
from posenc.report.premises import judge_experiment
from posenc.report.verdict_table import verdict_tables
from posenc.report.verdict_text import summary
from posenc.tracking.logged_keys import LoggedKeys
from posenc.tracking.wandb_panels import arrange, panels_by_heading
from posenc.tracking.wandb_workspaces_api import set_id, set_view_name

MAX_RUNS = 100  # per panel; W&B's default is 10
MAX_TITLE_LENGTH = 128
COLUMN_PREFIXES = ("ppl@", "extrap", "cost/")


def build_workspace(
    entity: str, project: str, experiment: Experiment, keys: LoggedKeys
) -> ws.Workspace:
    """Return the unsaved workspace; its name depends only on the experiment's name.

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
    """Return the unsaved report; W&B identifies it by its title, which depends only on the name."""
    title = experiment.about.get("title") or experiment.name
    paragraphs = (
        experiment.about.get(key) for key in ("question", "interpretation", "limitations")
    )
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
            wr.MarkdownBlock("\n\n".join(filter(None, paragraphs))),
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
    judged = {"Premises": verdicts.premises, "Claims": verdicts.claims}
    counts = [f"**{name}: {summary(items)}**" for name, items in judged.items() if items]
    return "\n\n".join([*counts, *(table.to_markdown() for table in verdict_tables(verdicts))])
