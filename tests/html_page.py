"""Parses HTML pages in tests: what they load, link to and show."""

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class HtmlCell:
    """A table cell: its text, the text in its <small> elements, and its attributes."""

    attributes: dict[str, str | None]
    text: str = ""
    details: str = ""


@dataclass
class HtmlTable:
    caption: str = ""
    rows: list[list[HtmlCell]] = field(default_factory=list)


class HtmlPage(HTMLParser):
    """What a page loads and links to, its tags, headings and tables, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.tables: list[HtmlTable] = []
        self.words: list[str] = []
        self.ids: set[str] = set()
        self.open_tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            if name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "href", "srcset", "data", "poster"):
                self.loads.append(value or "")
        if tag == "table":
            self.tables.append(HtmlTable())
        elif tag == "tr":
            self.tables[-1].rows.append([])
        elif tag in ("td", "th"):
            self.tables[-1].rows[-1].append(HtmlCell(dict(attrs)))
        if tag in ("td", "th", "small", "caption", "h2"):
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open_tags and self.open_tags[-1] == tag:
            self.open_tags.pop()

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] not in ("script", "style"):
            self.words.append(data)
        match self.open_tags:
            case [_, "small"]:
                self.tables[-1].rows[-1][-1].details += data
            case ["td" | "th"]:
                self.tables[-1].rows[-1][-1].text += data
            case ["caption"]:
                self.tables[-1].caption += data
            case ["h2"]:
                self.headings.append(data)

    def table(self, caption: str) -> HtmlTable:
        return next(table for table in self.tables if table.caption == caption)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())
