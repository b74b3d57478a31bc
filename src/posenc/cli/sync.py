"""`posenc sync`: upload the runs of an experiment to W&B."""

from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.targets import experiment_folder
from posenc.config.errors import ConfigError, PosencError, RunError
from posenc.runs.run_directory import list_runs


def run(arguments: Arguments) -> int:
    from posenc.tracking.upload import upload_figures, upload_run
    from posenc.tracking.wandb_client import WandbError

    folder, console = experiment_folder(arguments), Console(highlight=False, soft_wrap=True)
    runs = list_runs(folder)
    if not runs:
        raise ConfigError(f"{folder} has no runs; create them with posenc train")
    damaged = 0
    for index, directory in enumerate(runs):
        try:
            console.print(f"{directory.name}: {upload_run(directory)}")
        except WandbError as error:
            raise RunError(
                f"{directory.name}: {error}; {index - damaged} of {len(runs)} runs uploaded; rerun"
                f" to continue"
            ) from None
        except PosencError as error:
            damaged += 1
            console.print(f"{directory.name}: not uploaded: {error}", markup=False)
    if upload_figures(folder):
        console.print("figures of the report: uploaded")
    if damaged:
        raise RunError(f"{damaged} of {len(runs)} runs could not be uploaded; see the errors above")
    return 0
