"""Self-contained HTML pages with tables and interactive figures.

Vega and the figures' data are compressed. Without JavaScript, and in print, figures are shown as
images.

    sections = [Section("cost", "Time and memory", [Paragraph("One GPU."), table, figure])]
    Page("Benchmark", "How long does a step take?", sections).html()

A block of a section is a `Table`, a `Figure` or one of the classes below. The templates in
`templates/` escape every value; their filter `code` shows text between backticks as code.
"""

import gzip
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from posenc.report.table import Table
from posenc.report.vega_figure import PAGE_THEME, Figure, javascript
from posenc.runs.files import read_text, write_atomic

GENERATOR = '<meta name="generator" content="posenc">'
LINKED_FILE = re.compile(r'href="([\w-]+\.(?:csv|md|tex|png|svg))"')
"""Matches a link to a file that posenc wrote next to the page."""


def paragraphs(
    about: Mapping[str, Any], *, keys: Sequence[str] = ("question", "interpretation", "limitations")
) -> list[str]:
    """Return the texts under `keys` in an experiment's `about`; a value may be a list or null."""
    texts = [about.get(key) or [] for key in keys]
    parts = [part for text in texts for part in ([text] if isinstance(text, str) else text)]
    return [part.strip() for part in parts]


def write_page(index: Path, files: Mapping[str, str | bytes], page: "Page") -> None:
    """Write `files` (by name) next to a page, and the page last.

    Other files that an earlier version of the page links to are removed.
    """
    html = page.html()
    for name in _linked_files(index) - files.keys():
        index.with_name(name).unlink(missing_ok=True)
    for name, data in files.items():
        write_atomic(index.with_name(name), data)
    write_atomic(index, html)


def _linked_files(index: Path) -> set[str]:
    """Return the names of the files that an existing page from posenc links to, in its folder."""
    try:
        html = read_text(index)
    except (OSError, ValueError):  # there is none, or it is not from posenc
        return set()
    return {*LINKED_FILE.findall(html)} if GENERATOR in html else set()


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]
    heading: str = ""


@dataclass(frozen=True)
class Links:
    """A list of (name, URL, description)."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Definitions:
    """A list of (term, description)."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Commands:
    lines: Sequence[str]


def files_section(command: str, names: Sequence[str]) -> "Section":
    """Return a section with the command that wrote the page, and links to files next to it."""
    links = Links([(name, name, "") for name in names])
    return Section("files", "Command and files", [Commands([command]), links], "Files")


Block = Table | Figure | Paragraph | Bullets | Links | Definitions | Commands


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; `id` is the URL fragment and `link` the text in the navigation bar.

    If `columns`, the blocks are laid out side by side.
    """

    id: str
    heading: str
    blocks: Sequence[Block]
    link: str = ""
    columns: bool = False


@dataclass(frozen=True)
class Page:
    """A title, a question, the finding that answers it, and sections.

    The first line of `notice` introduces the others, which are shown as a list.
    """

    title: str
    question: str
    sections: Sequence[Section]
    notice: Sequence[str] = ()
    finding: str = ""

    def html(self) -> str:
        has_figures = any(isinstance(b, Figure) for s in self.sections for b in s.blocks)
        vega = _compress(javascript()) if has_figures else ""
        template = ENVIRONMENT.get_template("page.html.j2")
        return template.render(page=self, vega=vega, theme=PAGE_THEME)


def render_block(block: Block) -> Markup:
    """Return the HTML of a block; its macro in blocks.html.j2 is named after its class."""
    macros = ENVIRONMENT.get_template("blocks.html.j2").module
    return Markup(getattr(macros, type(block).__name__.lower())(block))


def _render_code(text: str) -> Markup:
    """Return `text` as HTML, with text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _compress(text: str) -> str:
    """Return `text` as base64-encoded gzip, which `decompress` in page.js reads."""
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


ENVIRONMENT = Environment(
    loader=PackageLoader("posenc.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {
    "code": _render_code,
    "compress": _compress,
    "html": render_block,
    "path": quote,
}
