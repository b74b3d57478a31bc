"""`posenc dashboard`: an experiment's W&B workspace and report."""

from importlib.util import find_spec

from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.folder import folder_of
from posenc.config.errors import ConfigError
from posenc.runs.run_directory import runs_of


def run(arguments: Arguments) -> int:
    if find_spec("wandb_workspaces") is None:
        raise ConfigError("wandb-workspaces is not installed; pip install wandb-workspaces==0.4.13")
    from posenc.dashboard import save
    from posenc.dashboard.logged import read_logged
    from posenc.dashboard.report import report
    from posenc.dashboard.workspace import workspace
    from posenc.report.collect import read_experiment
    from posenc.tracking.sync import wandb_of

    folder, console = folder_of(arguments), Console(highlight=False, soft_wrap=True)
    experiment = read_experiment(folder)
    logged, target = read_logged(folder), wandb_of(runs_of(folder)[0])
    only_spec = "--spec" in arguments.flags
    entity = target.entity or (save.PLACEHOLDER if only_spec else save.default_entity())
    made = (
        workspace(entity, target.project, experiment, logged),
        report(entity, target.project, experiment, logged),
    )
    if only_spec:
        save.write_spec(folder / "dashboard.json", *made)
        console.print(str(folder / "dashboard.json"))
        return 0
    for name, address in zip(("workspace", "report"), save.save(*made), strict=True):
        console.print(f"{name}: {address}")
    return 0
