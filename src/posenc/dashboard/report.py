"""The W&B report of an experiment: verdicts, a facet for each training length, the run table."""

import wandb_workspaces.reports.v2 as wr

from posenc.dashboard.logged import Logged
from posenc.dashboard.panels import groups, id_of, placed
from posenc.dashboard.text import about_text, title_of, verdicts_text
from posenc.dashboard.workspace import columns, experiment_filter
from posenc.report.collect import Experiment

TITLE_LENGTH = 128


def report(entity: str, project: str, experiment: Experiment, logged: Logged) -> wr.Report:
    """Not saved. Its title holds the experiment's name, by which it is found again."""
    said = verdicts_text(experiment)
    return wr.Report(
        entity=entity,
        project=project,
        title=f"posenc {experiment.name}"[:TITLE_LENGTH],
        description=title_of(experiment),
        width="fluid",
        blocks=[
            wr.H1(title_of(experiment)),
            wr.MarkdownBlock(about_text(experiment)),
            *([wr.H2("Claims and verdicts"), wr.MarkdownBlock(said)] if said else []),
            *(block for at in logged.train_lengths for block in _facet(experiment, logged, at)),
            wr.H2("Runs"),
            wr.PanelGrid(
                runsets=[_runs("All runs", experiment_filter(experiment), logged)],
                panels=placed([wr.RunComparer(diff_only="split")], "runs"),
            ),
        ],
    )


def _facet(experiment: Experiment, logged: Logged, train_length: int) -> list:
    """Every group of panels for the runs of one training length."""
    name = f"Trained at L = {train_length}"
    where = f"{experiment_filter(experiment)} and Config('train_length') = {train_length}"
    blocks: list = [wr.H2(name)]
    for group in groups(logged, logged.group):
        runs = _runs(name, where, logged)
        under = f"l{train_length}-{group.name}"
        runs._id = id_of(under)
        panels = placed(group.panels, under)
        blocks += [wr.H3(group.name), wr.PanelGrid(runsets=[runs], panels=panels)]
    return blocks


def _runs(name: str, where: str, logged: Logged) -> wr.Runset:
    runset = wr.Runset(name=name, filters=where, pinned_columns=columns(logged))
    runset._id = id_of(name)
    return runset
