"""The page of an experiment."""

from collections.abc import Iterable, Iterator

from posenc.report.conclusions import conclusions, limitations, missing_runs
from posenc.report.experimental_setup import (
    data_fingerprints,
    experimental_setup,
    posenc_versions,
)
from posenc.report.page import (
    Block,
    Bullets,
    Commands,
    Definitions,
    Links,
    Page,
    Paragraph,
    Section,
)
from posenc.report.report_results import Results
from posenc.report.result_tables import runs_table
from posenc.report.verdict_table import summary, verdict_table

QUESTION = (
    "What does a positional encoding do to a Transformer language model, at the length that it was"
    " trained on and beyond it?"
)
NO_POSITIONS = (
    "Loss by position was not evaluated. To add it, evaluate with"
    " `evaluation.protocols='[nonoverlapping, by_position]'`."
)
RUNS = (
    "Each name opens the run's folder. Every number on this page was computed from the files listed"
    " beside it."
)
NO_COMMAND = "There is no plan.json for these runs; their settings are in each run's config.yaml."
COMMANDS = (
    "Finished runs are kept and missing ones are run. The second command writes this report again."
)
TABLES = {
    "claims": "verdicts",
    "accuracy": "tables of accuracy",
    "extrapolation": "tables of perplexity",
    "runs": "every evaluation of every run, unrounded, with perplexity per word and per byte",
}
FORMATS = {
    "csv": "as numbers",
    "md": "as Markdown",
    "tex": "as LaTeX, for booktabs",
    "png": "for screens",
    "svg": "for print",
}


def report_page(results: Results, files: Iterable[str]) -> Page:
    """Return the page; `files` are the names of the other files of the report."""
    experiment = results.experiment
    sections = (section for section in _sections(results, files) if section.blocks)
    return Page(
        experiment.about.get("title") or experiment.name,
        experiment.about.get("question") or QUESTION,
        list(sections),
        missing_runs(experiment),
    )


def _sections(results: Results, files: Iterable[str]) -> Iterator[Section]:
    experiment, verdicts = results.experiment, results.verdicts
    figures: dict[str, list[Block]] = {}
    for figure in results.figures:
        figures.setdefault(figure.section, []).append(figure)
    claims = [verdict_table(verdicts)] if verdicts else []
    yield Section("verdicts", f"Verdicts: {summary(verdicts)}", claims, "Verdicts")
    tasks = [*results.accuracy_tables, *figures.get("tasks", [])]
    yield Section("tasks", "Accuracy by evaluation length", tasks, "Tasks")
    perplexity = [*results.perplexity_tables, *figures.get("results", [])]
    yield Section("results", "Perplexity by evaluation length", perplexity, "Results")
    yield Section("bases", "Perplexity by RoPE's base", figures.get("bases", []), "RoPE's base")
    reading = {
        "Conclusions": conclusions(experiment, results.losses),
        "Limitations": limitations(experiment, results.losses, results.accuracies),
    }
    lists = [Bullets(items, heading) for heading, items in reading.items() if items]
    heading = "Conclusions and limitations"
    yield Section("conclusions", heading, lists, "Conclusions", columns=True)
    missing = [Paragraph(NO_POSITIONS)] if results.losses else []
    positions = figures.get("positions", missing)
    yield Section("positions", "Loss by position in the window", positions, "Loss by position")
    yield Section("cost", "Cost against quality", figures.get("cost", []), "Cost")
    setup = experimental_setup(experiment, [*results.losses, *results.accuracies])
    yield Section("setup", "Experimental setup", [Definitions(setup)])
    yield Section("runs", "Runs", [Paragraph(RUNS), runs_table(experiment)])
    yield Section("reproduction", "Reproduction", _reproduction(results))
    links = Links([(name, name, _describe_file(name, results)) for name in files])
    yield Section("files", "Files", [links])


def _reproduction(results: Results) -> list[Block]:
    experiment = results.experiment
    if not experiment.command:
        return [Paragraph(NO_COMMAND)]
    identity = (
        f"Made with posenc {posenc_versions(experiment.runs)} from data"
        f" {data_fingerprints(experiment.runs)}. A run's name ends in the hash of everything that"
        " determines its result; its config.yaml has all of it. The same hash means the same run on"
        " every machine."
    )
    commands = Commands([experiment.command, f"posenc report name={experiment.name}"])
    return [Paragraph(COMMANDS), commands, Paragraph(identity)]


def _describe_file(name: str, results: Results) -> str:
    stem, _, suffix = name.partition(".")
    figures = {figure.file: f"figure “{figure.title}”" for figure in results.figures}
    return f"{(TABLES | figures)[stem]}, {FORMATS[suffix]}"
