"""`posenc search-factors`: search for LongRoPE factors for a finished run."""

import shlex
from typing import TYPE_CHECKING

from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import command_with_modules, compose_request, print_configs
from posenc.config.console import Console
from posenc.config.errors import ConfigError
from posenc.config.identity import check_identity
from posenc.config.settings import SPLITS, check_settings
from posenc.report.table import Column, Table
from posenc.runs.run_directory import RunDirectory, find_run

if TYPE_CHECKING:
    from posenc.api.longrope_search import FactorSearchResult

INTEGERS = ("length", "tokens", "batch_tokens", "generations", "population", "parents")
SETTINGS = {
    **dict.fromkeys((*INTEGERS, "mutations", "crossovers", "seed"), int),
    "split": SPLITS,
    "modules": list[str],
}


def run(arguments: Arguments) -> int:
    """Search, and print the losses and the commands that use the factors."""
    request = compose_request(arguments, "search_factors")
    if CFG in arguments.flags:
        return print_configs([request])
    if request.length is None:
        raise ConfigError(
            "length is missing; set it to the window length in tokens, such as length=1024"
        )
    check_settings(request, SETTINGS)
    directory = find_run(request.run)
    from posenc.api.longrope_search import search_factors  # imports torch; typos are reported first
    from posenc.api.saved_run import locked_run, run_config, training_threads
    from posenc.model.device import deterministic_numerics

    config = run_config(directory, list(request.modules), command_with_modules(arguments))
    check_identity(config)
    console = Console(stderr=True)
    with console.status("measuring PI, NTK and YaRN, and mutations of them") as status:

        def on_progress(generation: int, candidates: int, loss: float) -> None:
            status.update(
                f"generation {generation} of {request.generations} · {candidates} candidates ·"
                f" lowest loss {loss:.6f}"
            )

        with locked_run(directory), training_threads(directory), deterministic_numerics():
            result = search_factors(directory, config, request, on_progress, console.print)
    _print(directory, request.length, request.split, result)
    return 0


def _print(directory: RunDirectory, length: int, split: str, result: "FactorSearchResult") -> None:
    columns = [Column("factors", align="left"), Column("loss", format=".6f")]
    best = f"best of {result.candidates} candidates"
    rows = [*result.initial_losses.items(), (best, result.loss)]
    title = f"{directory.name} at {length} tokens ({split})"
    Console().print(Table(title, columns, [list(row) for row in rows]))
    swap = result.swap_file.stem
    evaluate = [
        "posenc",
        "evaluate",
        f"run={directory.path}",
        "--config-dir",
        str(result.config_dir),
        f"evaluation.lengths=[{length}]",
        f"evaluation/swap=none,pi,ntk,yarn,{swap}",
    ]
    print(f"evaluate: {shlex.join(evaluate)}")
    if result.training_overrides is not None:
        print(f"train:    {shlex.join(['posenc', 'train', *result.training_overrides])}")
