"""Line charts in Vega-Lite: their rows, labels that do not overlap, reproducible files."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc.report.chart import Chart, Line, PlotPoint, Subplot, VerticalLine
from posenc.report.confidence import band
from posenc.report.encoding_styles import encoding_style
from posenc.report.line_plot import line_figure, spread_labels
from posenc.report.vega_figure import Figure, javascript

SVG = "{http://www.w3.org/2000/svg}"


def line(name: str, values: dict[int, list[float]], *, published: bool = False) -> Line:
    points = tuple(PlotPoint(float(x), band(y), note=f"at {x}") for x, y in values.items())
    return Line(name, encoding_style(name), points, published)


def chart(*lines: Line, **changes: Any) -> Chart:
    vertical_lines = (VerticalLine(64, "training length"),)
    subplot = Subplot("trained at L = 64", lines, "one", vertical_lines, tick_unit=64)
    base = Chart("trial", "A title", "Length", "Perplexity", (subplot,), "Lower is better.", "")
    return replace(base, **changes)


ALIBI = line("alibi", {64: [30.0, 31.0, 32.0], 128: [29.0, 30.0, 31.0], 256: [29.0]})
PUBLISHED = line("alibi", {64: [20.0], 256: [19.0]}, published=True)
ROPE = line("rope", {64: [30.0], 128: [200.0]})


def rows(figure: Figure) -> list[dict[str, Any]]:
    (panel,) = figure.panels
    return [dict(row) for row in panel.data["lines-0"]]


def test_a_row_has_the_mean_its_interval_and_a_description_of_the_interval() -> None:
    row, *_, last = rows(line_figure("s", chart(ALIBI)))
    assert (row["line"], row["x"], row["y"]) == ("alibi", 64, 31.0)
    assert row["low"] == pytest.approx(31 - 2.48414, rel=1e-5)  # t(0.975, 2) / sqrt(3)
    assert row["details"].endswith("95% t interval of 3 seeds. at 64")
    assert (last["low"], last["high"], last["details"]) == (29, 29, "at 256")


def test_a_published_line_is_labeled_as_published_and_has_no_band() -> None:
    figure = line_figure("s", chart(ALIBI, PUBLISHED))
    published = [row for row in rows(figure) if row["line"] == "alibi (published)"]
    assert [row["y"] for row in published] == [20, 19]
    assert all(row["published"] and "low" not in row for row in published)
    ours, theirs = figure.legend
    assert ours.style == theirs.style
    assert (ours.published, theirs.published) == (False, True)
    assert ours.dash != theirs.dash


@pytest.mark.parametrize(
    ("log_y", "lines", "scales"),
    [
        (False, (ROPE,), ["linear y"]),
        (True, (ALIBI,), ["linear y", "log y"]),
        (True, (ROPE,), ["log y", "linear y"]),  # from 30 to 200: the log axis comes first
    ],
)
def test_with_log_y_a_page_offers_a_log_and_a_linear_scale(
    log_y: bool, lines: tuple[Line, ...], scales: list[str]
) -> None:
    figure = line_figure("s", chart(*lines, log_y=log_y))
    assert figure.scales == scales
    (panel,) = figure.page_data()
    scale_types = [
        panel_chart["layer"][-1]["encoding"]["y"]["scale"]["type"]
        for panel_chart in panel["charts"]
    ]
    assert scale_types == [scale.split()[0] for scale in scales]


def test_the_same_chart_gives_the_same_files() -> None:
    first, second = (line_figure("s", chart(ALIBI, ROPE)).files() for _ in range(2))
    assert first == second
    png, svg = first["trial.png"], first["trial.svg"]
    assert isinstance(png, bytes) and png.startswith(b"\x89PNG")
    assert isinstance(svg, str) and ET.fromstring(svg).tag == f"{SVG}svg"
    for text in ("A title", "trained at L = 64", "training length", "alibi", "rope", "Perplexity"):
        assert text in svg


def test_a_label_may_look_like_a_reference_to_an_element() -> None:
    assert "url(#x)" in line_figure("s", chart(line("url(#x)", {64: [1.0], 128: [2.0]}))).svg


def test_labels_are_escaped() -> None:
    svg = line_figure("s", chart(line("<b>&", {64: [1.0], 128: [2.0]}))).svg
    assert "<b>" not in svg and "&lt;b&gt;&amp;" in svg


def test_the_script_of_a_page_loads_nothing_and_cannot_close_its_script_element() -> None:
    assert "vegaEmbed" in javascript() and "</script" not in javascript()
    assert "import(" not in javascript()


@given(st.lists(st.floats(0, 300), min_size=1, max_size=20))
def test_end_labels_never_overlap(heights: list[float]) -> None:
    placed = spread_labels(sorted(heights), 15, 300)
    assert all(b - a >= 15 - 1e-9 for a, b in pairwise(placed))
    assert max(placed) <= 300 + 1e-9


@pytest.mark.parametrize("name", ["a\\b", "a\\", "a\nb", "a\u2028b", 'a"b', "a${b}"])
def test_axis_titles_may_contain_any_characters(name: str) -> None:
    figure = line_figure("s", chart(ALIBI, y_title=f"Loss minus that of {name}"))
    assert figure.png.startswith(b"\x89PNG")
