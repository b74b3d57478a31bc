"""A static page: one file that needs no network, and no JavaScript for its text and tables."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from posenc.report.picture import Picture
from posenc.report.plot import to_html


@dataclass(frozen=True)
class Section:
    """A part of the page: the end of its address, its name in the list, its heading, its HTML."""

    id: str
    name: str
    heading: str
    body: str


def document(title: str, question: str, sections: Sequence[Section], notice: str = "") -> str:
    """The page; `notice` is HTML that stands above everything else."""
    template = Template(files("posenc.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        question=escape(question),
        missing=notice,
        plotly=get_plotlyjs(),
        links="".join(f'<a href="#{part.id}">{escape(part.name)}</a>' for part in sections),
        sections="\n".join(map(_section, sections)),
    )


def figure(picture: Picture, made: Mapping[str, str | bytes]) -> str:
    """The interactive figure, with the drawn one in its place without scripts and in print."""
    still = made[f"{picture.file}.svg"]
    assert isinstance(still, bytes)
    image = f"data:image/svg+xml;base64,{b64encode(still).decode()}"
    return (
        f'<figure><div class="plot">{to_html(picture.plot(), picture.file)}</div>'
        f'<img class="still" alt="{escape(picture.title)}" src="{image}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>\n"
    )


def _section(part: Section) -> str:
    heading = f"<h2>{escape(part.heading)}</h2>"
    return f'<section id="{part.id}">\n{heading}\n{part.body}\n</section>'
