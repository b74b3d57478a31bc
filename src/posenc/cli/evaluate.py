"""`posenc evaluate`: evaluate a finished run at more lengths, with swaps, or on other data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import command_with_modules, print_configs
from posenc.cli.run_selection import select_runs
from posenc.config.compose import Composer
from posenc.config.console import Console
from posenc.config.errors import PosencError, RunError
from posenc.config.grids import expand
from posenc.config.overrides import override_key
from posenc.config.resolve import compose_resolved
from posenc.report.table import Column, Table
from posenc.runs.run_directory import RunDirectory, find_run

if TYPE_CHECKING:
    from posenc.api.run_evaluation import Evaluation

MIN_WIDTH = 110
"""The minimum width of the table in characters; in narrower terminals, its lines wrap."""
COLUMNS = {
    "protocol": Column("protocol", align="left"),
    "stride": Column("stride"),
    "swap": Column("swap", align="left"),
    "at_tokens": Column("training tokens", format=","),
    "length": Column("length"),
    "count": Column("tokens", format=","),
    "coverage": Column("coverage", format=lambda fraction: f"{100 * fraction:.3g}%"),
    "loss": Column("loss", format=".6f"),
    "perplexity": Column("perplexity", format=".3f"),
    "perplexity_per_word": Column("per word", format=".2f"),
    "perplexity_per_byte": Column("per byte", format=".4f"),
    "accuracy": Column("accuracy", format=".4f"),
    "exact": Column("exact", format=".4f"),
}
"""Key of an evaluation row -> column of the printed table."""


def run(arguments: Arguments) -> int:
    """Evaluate one or more runs, after all evaluations have been validated."""
    jobs = expand(None, select_runs(arguments), arguments.config_dirs)
    composer = Composer("evaluate", arguments.config_dirs)
    requests = [OmegaConf.create(compose_resolved(composer, job)) for job in jobs]
    if CFG in arguments.flags:
        return print_configs(requests)
    runs = [find_run(request.run) for request in requests]
    from posenc.api.run_evaluation import evaluate_run  # imports torch; typos are reported first

    user_keys = [{override_key(override) for override in job} for job in jobs]
    evaluations: list[Evaluation] = []
    errors: list[tuple[str, PosencError]] = []
    for run, request, keys in zip(runs, requests, user_keys, strict=True):
        try:
            evaluations.append(_build_evaluation(arguments, run, request, keys))
        except RunError as error:  # a file of this run is corrupt; evaluate the others
            errors.append((run.name, error))
    console = Console(stderr=True)
    for evaluation in evaluations:
        try:
            _print_rows(evaluation.run.name, evaluate_run(evaluation, console))
        except PosencError as error:
            errors.append((evaluation.run.name, error))
    if errors and len(requests) == 1:
        raise errors[0][1]
    for name, error in errors:
        console.print(f"{name} could not be evaluated: {error}", highlight=False, soft_wrap=True)
    if errors:
        raise RunError(f"{len(errors)} of {len(requests)} evaluations failed; see the errors above")
    return 0


def _build_evaluation(
    arguments: Arguments, run: RunDirectory, request: DictConfig, user_keys: set[str]
) -> "Evaluation":
    """Validate and return an evaluation.

    `modules` and `data` are used only if they are set on the command line, because `--config-dir`
    may be a folder in an untrusted run, such as the one that `posenc search-factors` writes.
    """
    from posenc.api.run_evaluation import build_evaluation
    from posenc.api.saved_run import run_config

    modules = list(request.modules) if "modules" in user_keys else []
    if request.get("data") and not any(key.partition(".")[0] == "data" for key in user_keys):
        note = "note: data from --config-dir is not used; set data=... on the command line"
        Console(stderr=True).print(note, highlight=False, soft_wrap=True)
        request.data = None
    config = run_config(run, modules, command_with_modules(arguments))
    return build_evaluation(run, config, request, user_keys, modules)


def _print_rows(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print a table of the rows, without columns that are empty in all of them."""
    title = f"{name} on {rows[0]['data_name']} ({rows[0]['split']})"
    rows = [{**row, "coverage": None if row["coverage"] == 1 else row["coverage"]} for row in rows]
    shown = [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]
    cells = [[row.get(key) for key in shown] for row in rows]
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    console.print(
        Table(title, [COLUMNS[key] for key in shown], cells, key_columns=shown.index("length") + 1)
    )
