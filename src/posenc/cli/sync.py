"""`posenc sync`: upload the runs of an experiment to W&B, or recreate their offline files."""

from posenc.cli.arguments import Arguments
from posenc.cli.command_setup import experiment_folder
from posenc.config.console import Console
from posenc.config.errors import ConfigError, PosencError, RunError
from posenc.runs.run_directory import list_runs


def run(arguments: Arguments) -> int:
    folder, console = experiment_folder(arguments), Console(highlight=False, soft_wrap=True)
    from posenc.tracking.upload import sync_run, upload_figures  # slow imports, deferred
    from posenc.tracking.wandb_client import WandbError

    runs = list_runs(folder)
    if not runs:
        raise ConfigError(f"{folder} has no runs; create them with posenc train")
    offline, skipped = "--offline" in arguments.flags, 0
    action = "recreating the offline files of" if offline else "uploading"
    for index, directory in enumerate(runs):
        try:
            with Console(stderr=True).status(f"{action} {directory.name}"):
                outcome = sync_run(directory, offline=offline)
            console.print(f"{directory.name}: {outcome}")
        except WandbError as error:
            raise RunError(
                f"{directory.name}: {error}; {index - skipped} of {len(runs)} runs done; rerun to"
                f" continue"
            ) from None
        except PosencError as error:
            skipped += 1
            console.print(f"{directory.name}: skipped: {error}")
    if not offline and upload_figures(folder):
        console.print("report figures: uploaded")
    if skipped:
        raise RunError(f"{skipped} of {len(runs)} runs were skipped; see the errors above")
    return 0
