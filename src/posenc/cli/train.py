"""`posenc train`: plan the runs of a sweep, launch the unfinished ones and print a summary.

`posenc report` prints the results. The launcher runs jobs from a frozen copy of the code
(`posenc.runs.code_snapshot`).
"""

from pathlib import Path

from posenc.api.sweep_launch import compose_training, launch_training, plan_training
from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import print_configs
from posenc.config.console import Console
from posenc.config.errors import plural
from posenc.config.paths import experiment_command
from posenc.runs.status import Status


def run(arguments: Arguments) -> int:
    """Plan all runs, launch the unfinished ones and print a summary."""
    console = Console(stderr=True)
    sweep = compose_training(arguments.overrides, arguments.config_dirs, arguments.argv)
    if CFG in arguments.flags:
        from posenc.jobs.job_config import compose_sweep_jobs

        return print_configs(compose_sweep_jobs(sweep.jobs, sweep.composer))
    with console.status("validating configurations and preparing data") as status:
        planned_runs = plan_training(sweep, arguments.command_line(), status.update)
    before, after = launch_training(sweep, planned_runs)
    for planned in planned_runs:
        name, status = planned.name, after[planned.name]
        if planned.problem:
            console.print(f"skipped {name}: {planned.problem}", soft_wrap=True)
        elif status.state == "failed" and status == before[name]:
            console.print(f"skipped {name}, which failed: {status.error}")
            console.print("add retry=true to rerun it")
    return _summarize(after, sweep.folder, console)


def _summarize(statuses: dict[str, Status], folder: Path, console: Console) -> int:
    """Print the next command if every run has finished; return 0 in this case, else 1."""
    if any(status.state != "finished" for status in statuses.values()):
        return 1
    runs = plural(len(statuses), "run")
    console.print(
        f"{runs} finished ({folder}). Next: {experiment_command('report', folder)}",
        highlight=False,
        soft_wrap=True,
    )
    return 0
