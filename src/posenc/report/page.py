"""The static page: one file that needs no network, and no JavaScript for its text and tables."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from posenc.claims.verdict import Verdict
from posenc.report import html
from posenc.report.charts import Chart
from posenc.report.collect import Experiment
from posenc.report.curves import Panel
from posenc.report.interactive import figure_html
from posenc.report.measured import measured
from posenc.report.reading import cautions, conclusions, missing
from posenc.report.style import Style
from posenc.report.tables import Table
from posenc.report.verdict_formats import verdicts_html
from posenc.report.verdicts import lines_of, summary

READING = {
    "perplexity_by_length": (
        "Lower is better. Right of the dashed line windows are longer than any that the model was"
        " trained on: a flat or falling line extrapolates, a rising one does not."
    ),
    "loss_by_position": (
        "Lower is better. Each point averages the loss over the positions around it, at the"
        " longest windows that were measured. Right of the dashed line stand positions that the"
        " model never saw in training."
    ),
}

QUESTION = (
    "What does a positional encoding do to a Transformer language model, at the length that it was"
    " trained on and beyond it?"
)
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
FILES = {
    "claims.csv": "the verdicts, unrounded, a line for each comparison",
    "claims.md": "the verdicts, for a README or a note",
    "claims.tex": "the verdicts, for LaTeX with booktabs and tabularx",
    "extrapolation.csv": "the tables above, as one",
    "extrapolation.md": "the tables above, for a README or a note",
    "extrapolation.tex": "the tables above, for LaTeX with booktabs",
    "runs.csv": "every evaluation of every run, unrounded, with perplexity per word and per byte",
    "perplexity_by_length.csv": "the numbers of the first figure",
    "perplexity_by_length.png": "the first figure, for screens",
    "perplexity_by_length.svg": "the first figure, for print",
    "loss_by_position.csv": "the numbers of the second figure",
    "loss_by_position.png": "the second figure, for screens",
    "loss_by_position.svg": "the second figure, for print",
}


def page(
    experiment: Experiment,
    verdicts: Sequence[Verdict],
    panels: Sequence[Panel],
    tables: Sequence[Table],
    charts: Sequence[Chart],
    styles: dict[str, Style],
    made: Mapping[str, str | bytes],
) -> str:
    """The page of an experiment; `made` are the other files of the report, by name."""
    figures = {chart.file: _figure(chart, styles, made) for chart in charts}
    template = Template(files("posenc.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(experiment.about.get("title") or experiment.name),
        question=escape(experiment.about.get("question") or QUESTION),
        verdicts=_verdicts(verdicts),
        verdicts_link='<a href="#verdicts">Verdicts</a>' if verdicts else "",
        missing=_notice(missing(experiment)),
        plotly=get_plotlyjs(),
        tables="\n".join(html.extrapolation_table(table) for table in tables),
        lengths=figures["perplexity_by_length"],
        positions=figures.get("loss_by_position", NO_POSITIONS),
        conclusions=html.bullets(conclusions(experiment, panels)),
        cautions=html.bullets(cautions(experiment, panels)),
        measured=html.definitions(measured(experiment, panels)),
        runs=html.runs_table(experiment),
        again=_again(experiment),
        files="\n".join(f"<li>{html.link(name, name)}: {FILES[name]}</li>" for name in made),
    )


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    """The section of an experiment that makes claims, which stands before all others."""
    if not verdicts:
        return ""
    return (
        f'<section id="verdicts">\n<h2>Verdicts: {summary(verdicts)}</h2>\n'
        f'{verdicts_html(lines_of(verdicts))}\n<p class="note">{VERDICTS}</p>\n</section>'
    )


def _figure(chart: Chart, styles: dict[str, Style], made: Mapping[str, str | bytes]) -> str:
    """The interactive figure, with the drawn one in its place without scripts and in print."""
    still = made[f"{chart.file}.svg"]
    assert isinstance(still, bytes)
    image = f"data:image/svg+xml;base64,{b64encode(still).decode()}"
    return (
        f'<figure><div class="plot">{figure_html(chart, styles)}</div>'
        f'<img class="still" alt="{escape(chart.title)}" src="{image}">'
        f"<figcaption>{escape(chart.subtitle)}. {READING[chart.file]}</figcaption></figure>"
    )


def _notice(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f'<div class="notice"><p>{escape(lines[0])}</p>{html.bullets(lines[1:])}</div>'


def _again(experiment: Experiment) -> str:
    if not experiment.command:
        return "<p>The plan of these runs is not on record; each run's config.yaml is.</p>"
    return (
        "<p>What is finished is kept and what is missing is run.</p>"
        f"<pre><code>{escape(experiment.command)}</code></pre>"
    )
