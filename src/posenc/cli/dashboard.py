"""`posenc dashboard`: create or update an experiment's W&B workspace and report."""

from posenc.cli.arguments import Arguments
from posenc.cli.command_setup import experiment_folder
from posenc.config.console import Console
from posenc.config.errors import import_extra


def run(arguments: Arguments) -> int:
    import_extra("wandb_workspaces", "posenc dashboard")
    from posenc.report.experiment import read_experiment
    from posenc.tracking import wandb_workspaces_api as api
    from posenc.tracking.logged_keys import corrupt_records, read_logged_keys
    from posenc.tracking.upload import experiment_project
    from posenc.tracking.wandb_dashboard import build_report, build_workspace

    folder, console = experiment_folder(arguments), Console(highlight=False, soft_wrap=True)
    experiment = read_experiment(folder)
    corrupt = {**corrupt_records(folder), **experiment.corrupt}
    for name, reason in corrupt.items():
        console.print(f"{name} was skipped: {reason}")
    keys = read_logged_keys(folder, corrupt)
    spec_only = "--spec" in arguments.flags
    entity, project = experiment_project(folder)
    entity = entity or (api.ENTITY_PLACEHOLDER if spec_only else api.default_entity())
    workspace = build_workspace(entity, project, experiment, keys)
    report = build_report(entity, project, experiment, keys)
    if spec_only:
        api.write_spec(folder / "dashboard.json", workspace, report)
        console.print(str(folder / "dashboard.json"))
        return 0
    workspace_url, report_url = api.save(workspace, report)
    console.print(f"workspace: {workspace_url}\nreport: {report_url}")
    return 0
