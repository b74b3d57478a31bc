"""The static page: one file that needs no network, and no JavaScript for its text and tables."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from posenc.report import html
from posenc.report.pictures import Picture
from posenc.report.plot import to_html
from posenc.report.reading import missing
from posenc.report.results import Results
from posenc.report.sections import Section, sections

QUESTION = (
    "What does a positional encoding do to a Transformer language model, at the length that it was"
    " trained on and beyond it?"
)


def page(results: Results, made: Mapping[str, str | bytes]) -> str:
    """The page of an experiment; `made` are the other files of the report, by name."""
    figures: defaultdict[str, str] = defaultdict(str)
    for picture in results.pictures:
        title = f"<h3>{escape(picture.title)}</h3>\n" if figures[picture.section] else ""
        figures[picture.section] += title + _figure(picture, made)
    parts = sections(results, figures, made)
    experiment = results.experiment
    template = Template(files("posenc.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(experiment.about.get("title") or experiment.name),
        question=escape(experiment.about.get("question") or QUESTION),
        missing=_notice(missing(experiment)),
        plotly=get_plotlyjs(),
        links="".join(f'<a href="#{part.id}">{escape(part.name)}</a>' for part in parts),
        sections="\n".join(map(_section, parts)),
    )


def _section(part: Section) -> str:
    heading = f"<h2>{escape(part.heading)}</h2>"
    return f'<section id="{part.id}">\n{heading}\n{part.body}\n</section>'


def _figure(picture: Picture, made: Mapping[str, str | bytes]) -> str:
    """The interactive figure, with the drawn one in its place without scripts and in print."""
    still = made[f"{picture.file}.svg"]
    assert isinstance(still, bytes)
    image = f"data:image/svg+xml;base64,{b64encode(still).decode()}"
    return (
        f'<figure><div class="plot">{to_html(picture.plot(), picture.file)}</div>'
        f'<img class="still" alt="{escape(picture.title)}" src="{image}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>\n"
    )


def _notice(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f'<div class="notice"><p>{escape(lines[0])}</p>{html.bullets(lines[1:])}</div>'
