"""`posenc sync`: upload the runs of an experiment to W&B."""

from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.targets import experiment_folder
from posenc.config.errors import ConfigError, RunError
from posenc.runs.run_directory import list_runs


def run(arguments: Arguments) -> int:
    from posenc.tracking.upload import upload_figures, upload_run

    folder, console = experiment_folder(arguments), Console(highlight=False)
    runs = list_runs(folder)
    if not runs:
        raise ConfigError(f"{folder} has no runs; create them with posenc train")
    for uploaded, directory in enumerate(runs):
        try:
            console.print(f"{directory.name}: {upload_run(directory)}")
        except RunError as error:
            raise RunError(
                f"{directory.name}: {error}; {uploaded} of {len(runs)} runs uploaded; rerun to"
                f" continue"
            ) from None
    if upload_figures(folder):
        console.print("figures of the report: uploaded")
    return 0
