"""The HTML report of an experiment."""

import shlex
from collections.abc import Iterable, Iterator

from posenc.report.experimental_setup import data_fingerprints, posenc_versions
from posenc.report.judge import Verdicts
from posenc.report.page import (
    Block,
    Bullets,
    Commands,
    Definitions,
    Links,
    Page,
    Paragraph,
    Section,
    paragraphs,
)
from posenc.report.report_results import Results
from posenc.report.runs_table import runs_table
from posenc.report.verdicts import summary, verdict_tables
from posenc.runs.plan_file import join_command, quoted_command

QUESTION = (
    "How does the positional encoding affect a Transformer language model, at its training length"
    " and beyond?"
)
NO_POSITIONS_TEXT = (
    "Loss by position was not evaluated. To add it, evaluate with"
    " `evaluation.protocols='[nonoverlapping, by_position]'`."
)
RUNS_TEXT = (
    "All numbers in this report, except published ones, were computed from the files of the runs,"
    " in the folders `{name}/<run>/` of the output directory."
)
NO_COMMAND_TEXT = (
    "No `posenc train` command was saved for these runs, or the saved command (see plan.json) is"
    " not shown because there is no record that it has been run in this folder. The settings of"
    " each run are in its config.yaml."
)
COMMANDS_TEXT = (
    "The first command trains missing runs and keeps finished ones; the second writes a report on"
    " all of them."
)
TABLE_DESCRIPTIONS = {
    "claims": "verdicts",
    "accuracy": "accuracy tables",
    "extrapolation": "perplexity tables",
    "runs": "every measurement of every run, unrounded, with perplexity per word and per byte",
    "ngrams": "losses of n-gram models",
    "blocks": "losses by block of text",
}
FORMAT_DESCRIPTIONS = {
    "csv": "as CSV",
    "md": "as Markdown",
    "tex": "as LaTeX (packages booktabs and, for claims, tabularx)",
    "png": "for screens",
    "svg": "for print",
}


def report_page(results: Results, files: Iterable[str]) -> Page:
    """Return the HTML report; `files` are the names of the report's other files."""
    experiment = results.experiment
    sections = (section for section in _sections(results, files) if section.blocks)
    return Page(
        experiment.about.get("title") or experiment.name,
        " ".join(paragraphs(experiment.about, keys=["question"])) or QUESTION,
        list(sections),
        results.missing,
        results.finding,
    )


def _sections(results: Results, files: Iterable[str]) -> Iterator[Section]:
    """Yield the main tables and figures, the verdicts, and then everything else."""
    figures: dict[str, list[Block]] = {}
    for figure in results.figures:
        figures.setdefault(figure.section, []).append(figure)
    count = results.num_main_tables
    perplexity = [*results.perplexity_tables[:count], *figures.get("results", [])]
    yield Section("results", "Perplexity by evaluation length", perplexity, "Results")
    tasks = [*results.accuracy_tables, *figures.get("tasks", [])]
    yield Section("tasks", "Accuracy by evaluation length", tasks, "Tasks")
    yield from _verdict_sections(results.verdicts)
    items_by_heading = {"Conclusions": results.conclusions, "Limitations": results.limitations}
    lists = [Bullets(items, heading) for heading, items in items_by_heading.items() if items]
    heading = "Conclusions and limitations"
    yield Section("conclusions", heading, lists, "Conclusions", columns=True)
    heading = "Perplexity relative to that at the training length"
    yield Section("relative", heading, figures.get("relative", []), "Relative perplexity")
    training = figures.get("training", [])
    yield Section("training", "Perplexity beyond L by training tokens", training, "Training tokens")
    yield Section("bases", "Perplexity by RoPE base", figures.get("bases", []), "RoPE base")
    others = results.perplexity_tables[count:]
    yield Section("tables", "Other measurements of perplexity", others, "Other measurements")
    fallback = [Paragraph(NO_POSITIONS_TEXT)] if results.losses else []
    positions = figures.get("positions", fallback)
    yield Section("positions", "Loss by position in the window", positions, "Loss by position")
    yield Section("setup", "Experimental setup", [Definitions(results.setup)])
    runs_text = RUNS_TEXT.format(name=results.experiment.name)
    yield Section("runs", "Runs", [Paragraph(runs_text), runs_table(results.experiment)])
    yield Section("reproduction", "Reproduction", _reproduction(results))
    links = Links([(name, name, _describe_file(name, results)) for name in files])
    yield Section("files", "Files", [links])


def _verdict_sections(verdicts: Verdicts) -> Iterator[Section]:
    groups = verdicts.by_heading.items()
    for (group, items), table in zip(groups, verdict_tables(verdicts), strict=True):
        name = "Verdicts" if group == "Claims" else group
        yield Section(name.lower(), f"{name}: {summary(items)}", [table], name)


def _reproduction(results: Results) -> list[Block]:
    experiment = results.experiment
    command = quoted_command(experiment.command)
    if command is None:
        return [Paragraph(NO_COMMAND_TEXT)]
    provenance = (
        f"Created with posenc {posenc_versions(experiment.runs)} from data with the fingerprint"
        f" {data_fingerprints(experiment.runs)}. A run's name ends with a hash of the settings that"
        " determine its training; its config.yaml lists them. The same hash means the same run on"
        " every machine."
    )
    words = shlex.split(command)
    outputs_dir_overrides = [word for word in words if word.startswith("outputs_dir=")]
    report_words = ["posenc", "report", f"name={experiment.name}", *outputs_dir_overrides]
    commands = Commands([join_command(words), join_command(report_words)])
    return [Paragraph(COMMANDS_TEXT), commands, Paragraph(provenance)]


def _describe_file(name: str, results: Results) -> str:
    stem, _, suffix = name.partition(".")
    figures = {figure.file_stem: f"figure “{figure.title}”" for figure in results.figures}
    return f"{(TABLE_DESCRIPTIONS | figures)[stem]}, {FORMAT_DESCRIPTIONS[suffix]}"
