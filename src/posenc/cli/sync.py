"""`posenc sync`: bring W&B level with an experiment's folder."""

from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.folder import folder_of
from posenc.config.errors import ConfigError, RunError
from posenc.runs.run_directory import runs_of


def run(arguments: Arguments) -> int:
    from posenc.tracking.upload import upload_figures, upload_run

    folder, console = folder_of(arguments), Console(highlight=False)
    runs = runs_of(folder)
    if not runs:
        raise ConfigError(f"{folder} holds no runs; `posenc train` makes some")
    for done, directory in enumerate(runs):
        try:
            console.print(f"{directory.name}: {upload_run(directory)}")
        except RunError as error:
            raise RunError(
                f"{directory.name}: {error}; {done} of {len(runs)} runs are done, nothing is lost:"
                f" the same command goes on from here"
            ) from None
    if upload_figures(folder):
        console.print("the report's figures: uploaded")
    return 0
