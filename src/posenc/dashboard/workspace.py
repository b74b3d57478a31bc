"""The W&B workspace of an experiment: its runs, grouped, with every panel in place."""

import hashlib

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from posenc.dashboard.logged import Logged
from posenc.dashboard.panels import Group, groups, placed
from posenc.dashboard.text import verdicts_text
from posenc.report.collect import Experiment

MOST_RUNS = 100  # that a panel draws; W&B's default is 10


def workspace(entity: str, project: str, experiment: Experiment, logged: Logged) -> ws.Workspace:
    """Not saved; its name, from the experiment's, is the same whenever it is made.

    A workspace cannot filter a panel, so several training lengths are curves of their own here.
    """
    by = logged.group if len(logged.train_lengths) == 1 else "series"
    sections = [*_words(experiment), *groups(logged, by), *_figures(logged)]
    made = ws.Workspace(
        entity=entity,
        project=project,
        name=f"posenc {experiment.name}",
        sections=[
            ws.Section(
                name=group.name,
                panels=placed(group.panels, group.name),
                is_open=True,
                layout_settings=ws.SectionLayoutSettings(columns=2, rows=2),
            )
            for group in sections
        ],
        settings=ws.WorkspaceSettings(max_runs=MOST_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=experiment_filter(experiment), pinned_columns=columns(logged)
        ),
    )
    made._internal_name = f"nw-{hashlib.sha256(experiment.name.encode()).hexdigest()[:11]}-v"
    return made


def experiment_filter(experiment: Experiment) -> str:
    return f"Config('experiment') = '{experiment.name}'"


def columns(logged: Logged) -> list[str]:
    """The run table's: flat keys, then scalars."""
    scalars = [name for name in logged.summary if name.startswith(("ppl@", "extrap", "cost/"))]
    return [*(f"config:{key}" for key in logged.config), *(f"summary:{name}" for name in scalars)]


def _words(experiment: Experiment) -> list[Group]:
    said = verdicts_text(experiment)
    return [Group("Claims", [wr.MarkdownPanel(markdown=said)])] if said else []


def _figures(logged: Logged) -> list[Group]:
    pictures = [wr.MediaBrowser(title=key, media_keys=[key]) for key in logged.figures]
    return [Group("Figures of the report", list(pictures))] if pictures else []
