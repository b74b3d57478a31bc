"""A page: one HTML file with tables and interactive figures that needs no network.

    page = Page(
        title="Benchmark",
        question="How long does a step take?",
        sections=[Section("cost", "Time and memory", [Paragraph("One GPU."), table, figure])],
    )
    page.html()

Its parts are a `Table`, a `Figure` or one of the classes below. `templates/` has their HTML, in
which every value is escaped and text between backticks is shown as code.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from posenc.report.table import Table
from posenc.report.vega_figure import PAGE_THEME, Figure, javascript


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]
    heading: str = ""


@dataclass(frozen=True)
class Links:
    """A list of (name, address, description)."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Definitions:
    """A list of (term, description)."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Commands:
    lines: Sequence[str]


Block = Table | Figure | Paragraph | Bullets | Links | Definitions | Commands


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; `id` ends its address, `link` is its name in the navigation."""

    id: str
    heading: str
    blocks: Sequence[Block]
    link: str = ""
    columns: bool = False


@dataclass(frozen=True)
class Page:
    """Sections that have blocks, in order; the first line of `notice` introduces the others."""

    title: str
    question: str
    sections: Sequence[Section]
    notice: Sequence[str] = ()

    @property
    def has_figures(self) -> bool:
        return any(isinstance(block, Figure) for part in self.sections for block in part.blocks)

    def html(self) -> str:
        vega = Markup(javascript()) if self.has_figures else ""
        template = ENVIRONMENT.get_template("page.html.j2")
        return template.render(page=self, vega=vega, theme=PAGE_THEME)


def render_block(block: Block) -> Markup:
    """Return a part of a page by the macro of blocks.html.j2 that has the name of its class."""
    macros = ENVIRONMENT.get_template("blocks.html.j2").module
    return Markup(getattr(macros, type(block).__name__.lower())(block))


def _code(text: str) -> Markup:
    """Return `text` as HTML in which what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


ENVIRONMENT = Environment(
    loader=PackageLoader("posenc.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {"code": _code, "path": quote, "html": render_block}
