"""The sections of the page, in the order in which a reader asks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from posenc.claims.verdict import Verdict
from posenc.report import html
from posenc.report.cautions import cautions
from posenc.report.collect import Experiment
from posenc.report.files import told
from posenc.report.layout import Section
from posenc.report.measured import measured, once
from posenc.report.reading import conclusions
from posenc.report.results import Results
from posenc.report.verdict_formats import verdicts_html
from posenc.report.verdicts import lines_of, summary

NO_POSITIONS = (
    "<p>Loss by position was not measured; <code>evaluation.protocols='[nonoverlapping,"
    " by_position]'</code> measures it.</p>"
)
VERDICTS = (
    "Left and right are means over seeds; the difference is taken seed by seed, with Student's t"
    " interval of its mean. A claim holds where the whole interval lies on the claimed side of its"
    " margin, fails where it lies on the other, and is undecided where it lies across, or where"
    " there are fewer than three seeds."
)
RUNS = (
    "<p>Each name opens the run's own folder; the files beside it are what every number on this"
    " page was made from.</p>"
)


def sections(results: Results, figures: Mapping[str, str], made: Iterable[str]) -> list[Section]:
    """Every section that has something to show; `figures` are HTML by section, `made` the names of
    the other files of the report."""
    return [section for section in _all(results, figures, made) if section.body]


def _all(results: Results, figures: Mapping[str, str], made: Iterable[str]) -> Iterator[Section]:
    experiment = results.experiment
    said = f"Verdicts: {summary(results.experiment.verdicts)}"
    yield Section("verdicts", "Verdicts", said, _verdicts(results.experiment.verdicts))
    tasks = "\n".join(map(html.extrapolation_table, results.task_tables))
    yield Section("tasks", "Tasks", "Accuracy by evaluation length", tasks + figures["tasks"])
    tables = "\n".join(map(html.extrapolation_table, results.length_tables))
    body = tables + figures["results"]
    yield Section("results", "Results", "Perplexity by evaluation length", body)
    yield Section("bases", "RoPE's base", "Perplexity by RoPE's base", figures["bases"])
    yield Section("reading", "How to read it", "How to read it", _reading(results))
    positions = figures["positions"] or (NO_POSITIONS if results.lengths else "")
    heading = "Loss by position in the window"
    yield Section("positions", "Loss by position", heading, positions)
    yield Section("cost", "Cost", "Cost against quality", figures["cost"])
    facts = f"<dl>\n{html.definitions(measured(experiment, results.panels))}\n</dl>"
    yield Section("measured", "What was measured", "What was measured", facts)
    runs = f'{RUNS}\n<div class="scroll">\n{html.runs_table(experiment)}\n</div>'
    yield Section("runs", "Runs", "Runs", runs)
    yield Section("again", "Run it again", "Run it again", _again(experiment))
    files = (f"<li>{html.link(name, name)}: {escape(told(name, results))}</li>" for name in made)
    yield Section("files", "Files", "Files", "<ul>\n{}\n</ul>".format("\n".join(files)))


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    return f'{verdicts_html(lines_of(verdicts))}\n<p class="note">{VERDICTS}</p>'


def _reading(results: Results) -> str:
    columns = {
        "What to conclude": conclusions(results.experiment, results.lengths),
        "What not to conclude": cautions(results.experiment, results.lengths, results.tasks),
    }
    lists = (
        f"<div><h3>{name}</h3>\n{html.bullets(of)}</div>" for name, of in columns.items() if of
    )
    return '<div class="columns">\n{}\n</div>'.format("\n".join(lists))


def _again(experiment: Experiment) -> str:
    if not experiment.command:
        return "<p>The plan of these runs is not on record; each run's config.yaml is.</p>"
    frozen = [run.config["frozen"] for run in experiment.runs]
    versions = once(str(of["posenc"]) for of in frozen)
    data = once(of["fingerprint"] for of in frozen)
    return (
        "<p>What is finished is kept and what is missing is run. The second command writes this"
        " report again.</p>"
        f"<pre><code>{escape(experiment.command)}\n"
        f"posenc report name={escape(experiment.name)}</code></pre>"
        f"<p>Made with posenc {escape(versions)} from data {escape(data)}. A run's name ends in"
        " the hash of everything that makes it what it is; its config.yaml holds all of it. The"
        " same hash means the same run, whatever machine it is on.</p>"
    )
