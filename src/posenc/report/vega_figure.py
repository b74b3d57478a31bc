"""Figures made of Vega-Lite charts: their exported files and their data on an HTML page.

A figure has one or more panels. A panel is an Altair chart without a title, WIDTH pixels wide and
usually HEIGHT pixels high. `line_plot.py` and `heat_map.py` create the panels of most figures.

In the exported files, panels are in two columns. On a page, each panel fills its column, and the
legend shows and hides lines: charts filter out rows whose `line` is in the parameter HIDDEN. The
parameter END_LABELS is false on a page, because the page's legend names the lines.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from textwrap import wrap
from typing import Any
from urllib.parse import quote

import altair as alt
import vl_convert

from posenc.config.errors import one_line
from posenc.report.chart import Line
from posenc.report.encoding_styles import Style

PanelChart = alt.LayerChart | alt.FacetChart
WIDTH, HEIGHT = 400, 300
COLUMNS = 2
PIXELS_PER_INCH = 120
CHARACTER_WIDTH = 5.6  # average width of a character of the subtitle, in pixels
MAX_TITLE_CHARACTERS = int(WIDTH / CHARACTER_WIDTH)  # characters in a line of a panel's title
SAFE_IN_URLS = " !$()*+,-./:;=?@_~|"  # not escaped in data URLs in HTML attributes
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # vl-convert bundles the first one
OMITTED_IN_IMAGES = re.compile(
    r' ((class|role|aria-[a-z]+|pointer-events)="[^"]*"|(opacity|stroke-width)="1"|y2="0"'
    rf'|font-family="{FONT}")'
)  # attributes for screen readers and style sheets, defaults, and the font, set once in `data_url`
GRAY = "#767676"  # legible on white and on dark gray
HIDDEN = "hidden"
END_LABELS = "end_labels"
VEGALITE_VERSION = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
THEME: dict[str, Any] = {
    "font": FONT,
    "aria": False,  # labels for every mark would double the size of an SVG
    "view": {"stroke": None},
    "axis": {
        "gridColor": "#e6e6e6",
        "domainColor": "#888888",
        "tickColor": "#888888",
        "labelColor": "#222222",
        "titleColor": "#222222",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "title": {
        "anchor": "start",
        "fontSize": 12,
        "fontWeight": "normal",
        "offset": 8,
        "subtitleColor": GRAY,
    },
    "legend": {"titleFontWeight": "normal", "titleFontSize": 11, "labelFontSize": 11},
}
TEXT_COLOR = "currentColor"  # the text color of the page, in light or dark mode
PAGE_THEME: dict[str, Any] = {
    **THEME,
    "font": "inherit",
    "aria": True,
    "background": "transparent",
    "axis": {
        **THEME["axis"],
        "labelColor": TEXT_COLOR,
        "titleColor": TEXT_COLOR,
        "gridColor": "#80808038",
    },
    "legend": {**THEME["legend"], "labelColor": TEXT_COLOR, "titleColor": TEXT_COLOR},
}


@dataclass(frozen=True)
class Panel:
    """One chart under a title; `data` maps the names of its data sets to their rows.

    `charts` maps the name of a y scale to the chart with that scale. Exported files use the first.
    """

    title: str
    charts: Mapping[str, PanelChart]
    data: Mapping[str, Sequence[Mapping[str, Any]]]

    @cached_property
    def chart_specs(self) -> dict[str, dict[str, Any]]:
        """The charts as Vega-Lite specifications without data, schema and theme."""
        charts = {name: chart.to_dict(validate=False) for name, chart in self.charts.items()}
        specs = {name: _with_plain_titles(chart) for name, chart in charts.items()}
        for spec in specs.values():
            del spec["$schema"], spec["config"]
        return specs


@dataclass(frozen=True)
class Figure:
    """Panels under one title; `file_stem` names the files and `section` the section of the page.

    `subtitle` describes the data, `caption` explains how to read the figure, and `csv` contains the
    data.
    """

    section: str
    file_stem: str
    title: str
    subtitle: str
    caption: str
    csv: str
    panels: Sequence[Panel]
    legend: Sequence[Line] = ()

    @property
    def figcaption(self) -> str:
        """The text below the figure on a page."""
        return ". ".join(filter(None, (self.subtitle, self.caption)))

    @property
    def scales(self) -> list[str]:
        """The y scales that a page offers; exported files use the first one."""
        return list(self.panels[0].charts)

    @cached_property
    def specification(self) -> dict[str, Any]:
        """The Vega-Lite specification of the whole figure, including its data."""
        width = min(COLUMNS, len(self.panels)) * WIDTH * 1.2
        subtitle = wrap(self.subtitle, int(width / CHARACTER_WIDTH))
        title = {"text": self.title, "subtitle": subtitle, "fontSize": 15, "fontWeight": "bold"}
        return {
            "$schema": alt.SCHEMA_URL,
            "description": self.title,
            "title": title,
            "concat": [
                {**next(iter(panel.chart_specs.values())), "title": _wrap_title(panel.title)}
                for panel in self.panels
            ],
            "columns": COLUMNS,
            "spacing": 28,
            "padding": 12,
            "resolve": {"scale": {"color": "independent", "shape": "independent"}},
            "params": _parameters(end_labels=True),
            "datasets": {name: rows for panel in self.panels for name, rows in panel.data.items()},
            "config": THEME,
        }

    @cached_property
    def png(self) -> bytes:
        return vl_convert.svg_to_png(self.svg, ppi=PIXELS_PER_INCH)

    @cached_property
    def svg(self) -> str:
        """The figure as SVG, with element ids that do not depend on figures drawn earlier."""
        svg = vl_convert.vegalite_to_svg(self.specification, VEGALITE_VERSION)
        # Truncate coordinates to hundredths of a pixel; finer differences are invisible.
        coordinates = r' (d|transform)="[^"]*"'
        svg = re.sub(coordinates, lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), svg)
        ids = list(dict.fromkeys(re.findall(r'<[^>]* id="([^"]+)"', svg)))
        new_ids = {old: f"{self.file_stem}-{i}" for i, old in enumerate(ids)}
        # Labels may also contain `url(#`.
        return re.sub(r'( id="|="url\(#)([^")]+)', lambda m: m[1] + new_ids.get(m[2], m[2]), svg)

    @property
    def data_url(self) -> str:
        """The figure as a data URL for an image, without attributes that have no visible effect."""
        svg = OMITTED_IN_IMAGES.sub("", self.svg).replace("<svg ", f'<svg font-family="{FONT}" ', 1)
        return f"data:image/svg+xml,{quote(svg, safe=SAFE_IN_URLS)}"

    def page_data(self) -> list[dict[str, Any]]:
        """Return the data of each panel for `page.js`, and its charts in the order of `scales`."""
        shared = {"width": "container", "params": _parameters(end_labels=False)}
        return [
            {
                "data": panel.data,
                "charts": [
                    {**panel.chart_specs[scale], **shared, "description": self.describe(panel)}
                    for scale in self.scales
                ],
            }
            for panel in self.panels
        ]

    def describe(self, panel: Panel) -> str:
        """Return the alt text of a panel."""
        return ": ".join(filter(None, (self.title, " ".join(panel.title.split()))))

    def files(self) -> dict[str, str | bytes]:
        """Return the exported files as a mapping from names to contents."""
        contents = {"csv": self.csv, "png": self.png, "svg": self.svg}
        return {f"{self.file_stem}.{suffix}": content for suffix, content in contents.items()}


def rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with floats rounded to six significant digits, which keeps pages small."""
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}


def style_channel(channel: Any, field: str, styles: Mapping[str, Style], attribute: str) -> Any:
    """Return an Altair channel that maps each name in `field` to an attribute of its style."""
    values: list[Any] = [getattr(style, attribute) for style in styles.values()]
    values = [list(value) if isinstance(value, tuple) else value for value in values]
    return channel(f"{field}:N", scale=alt.Scale(domain=list(styles), range=values), legend=None)


def _with_plain_titles(spec: Any) -> Any:
    """Return a specification without backslashes and line breaks in titles of axes.

    Vega-Lite puts these titles, which may contain values of a run's settings, into the code of
    tooltips and descriptions without escaping them.
    """
    if isinstance(spec, list):
        return [_with_plain_titles(item) for item in spec]
    if not isinstance(spec, dict):
        return spec
    plain = {key: _with_plain_titles(value) for key, value in spec.items()}
    if isinstance(title := plain.get("title"), str):
        plain["title"] = one_line(title).replace("\\", "/")
    return plain


def _wrap_title(title: str) -> list[str]:
    """Return the title of a panel, wrapped to the width of the panel."""
    return [part for line in title.split("\n") for part in wrap(line, MAX_TITLE_CHARACTERS) or [""]]


def _parameters(end_labels: bool) -> list[dict[str, Any]]:
    return [{"name": HIDDEN, "value": []}, {"name": END_LABELS, "value": end_labels}]


@cache
def javascript() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that loads nothing from the network."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGALITE_VERSION)
