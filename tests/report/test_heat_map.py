"""Heat maps in Vega-Lite: cells with their values, or one image if there are many cells."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from posenc.report.heat_map import MAX_CELLS, HeatMap, HeatPanel, heat_figure
from posenc.report.vega_figure import Figure


def draw(*panels: HeatPanel, **options: Any) -> Figure:
    texts = ("trial", "A title", "column", "row", "value")
    return heat_figure("s", HeatMap(*texts, panels, "Reading.", "", **options))


def cells(figure: Figure, index: int = 0) -> list[dict[str, Any]]:
    return [dict(row) for row in figure.panels[index].data[f"cells-{index}"]]


def test_a_cell_has_its_value_and_edges_and_a_missing_cell_is_left_out() -> None:
    values = np.array([[1.0, np.nan], [0.0, 4.0]])
    loss = {"loss": values + 3}
    panel = HeatPanel("p", values, ["alibi", "rope"], [2, 8], [1, 4, 16], 1, 4, loss)
    rows = cells(draw(panel))
    keys = ("row", "column", "value", "loss", "x", "x2")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        ("alibi", 2, 1.0, 4.0, 1, 4),
        ("rope", 2, 0.0, 3.0, 1, 4),
        ("rope", 8, 4.0, 7.0, 4, 16),
    ]


def test_numbered_rows_and_columns_are_centered_on_their_numbers() -> None:
    (first, *_, last) = cells(draw(HeatPanel("p", np.eye(3), range(3), range(0, 6, 2))))
    assert [first[key] for key in ("x", "x2", "y", "y2")] == [-1, 1, -0.5, 0.5]
    assert [last[key] for key in ("x", "x2", "y", "y2")] == [3, 5, 1.5, 2.5]


def test_panels_share_a_color_range_unless_the_scale_is_diverging() -> None:
    panels = [HeatPanel("p", np.full((2, 2), n), range(2), range(2)) for n in (1.0, -3.0, 2.0)]
    shared, diverging = draw(*panels), draw(*panels, diverging=True)
    domains = [
        [
            panel["charts"][0]["layer"][0]["encoding"]["color"]["scale"]["domain"]
            for panel in figure.page_data()
        ]
        for figure in (shared, diverging)
    ]
    assert [(d[0], d[-1]) for d in domains[0]] == [(0, 2)] * 3
    assert [(d[0], d[-1]) for d in domains[1]] == [(-1, 1), (-3, 3), (-2, 2)]


def test_many_cells_are_drawn_as_one_image_in_the_colors_of_the_scale() -> None:
    side = int(MAX_CELLS**0.5) + 1
    values = np.zeros((side, side))
    values[0, 0], values[-1, 0] = 1.0, -1.0
    (row,) = cells(draw(HeatPanel("p", values, range(side), range(side)), diverging=True))
    image = Image.open(io.BytesIO(base64.b64decode(row["url"].partition(",")[2])))
    width, height = image.size
    assert width % side == height % side == 0
    corners = [image.getpixel(at) for at in ((0, 0), (width - 1, 0), (0, height - 1))]
    assert corners == [(0x67, 0x00, 0x1F), (0xF7, 0xF6, 0xF6), (0x05, 0x30, 0x61)]


@pytest.mark.parametrize("missing", [False, True])
def test_a_panel_that_an_image_cannot_show_is_always_drawn_cell_by_cell(missing: bool) -> None:
    values = np.zeros((30, 50))
    values[0, 0] = np.nan if missing else 0
    rows = range(30) if missing else [f"row {i}" for i in range(30)]
    drawn = cells(draw(HeatPanel("p", values, rows, range(50))))
    assert len(drawn) == 30 * 50 - missing
    assert all("url" not in cell for cell in drawn)


def test_many_small_panels_are_also_drawn_as_images() -> None:
    panels = [HeatPanel(str(i), np.eye(25), range(25), range(25)) for i in range(4)]
    assert [len(data) for data in map(cells, map(draw, panels))] == [625] * 4
    combined = heat_figure("", HeatMap("many", "", "x", "y", "value", panels, "", ""))
    assert [len(rows) for panel in combined.panels for rows in panel.data.values()] == [1] * 4


@pytest.mark.parametrize("side", [3, 60])
def test_files_are_reproducible_and_show_the_titles(side: int) -> None:
    panel = HeatPanel("the panel", np.eye(side), range(side), range(side))
    first, second = (draw(panel, subtitle="a subtitle").files() for _ in range(2))
    assert first == second
    for text in ("A title", "a subtitle", "the panel", "column", "row", "value"):
        assert text in str(first["trial.svg"])
