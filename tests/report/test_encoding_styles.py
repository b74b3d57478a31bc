"""An encoding has the same style in every figure; its settings in a sweep share its hue."""

import itertools
import re
from colorsys import rgb_to_hls
from pathlib import Path
from types import SimpleNamespace

from posenc.report import encoding_styles
from posenc.report.curves import loss_curves
from posenc.report.encoding_styles import (
    COLORS,
    CUSTOM_DASH,
    ENCODINGS,
    MARKERS,
    REFERENCE_STYLE,
    UNSWAPPED_STYLE,
    Style,
    encoding_style,
    line_styles,
    style_at,
    sweep_styles,
)
from posenc.report.experiment import read_experiment
from posenc.report.experiment_figures import perplexity_by_base
from posenc.report.report_results import read_results

STYLESHEET = Path(encoding_styles.__file__).parent / "templates" / "page.css"
OPTIONS = Path(__file__).parents[2] / "conf" / "encoding"


def hue_and_lightness(style: Style) -> tuple[float, float]:
    parts = [int(style.color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    hue, lightness, _ = rgb_to_hls(*parts)
    return hue, lightness


def test_the_style_of_an_encoding_does_not_depend_on_the_others() -> None:
    alone = line_styles({"rope": "rope"})["rope"]
    with_others = line_styles({"mine": "mine", "alibi": "alibi", "rope": "rope"})["rope"]
    assert alone == with_others == encoding_style("rope")


def test_every_shipped_encoding_has_a_style_of_its_own() -> None:
    shipped = [file.stem for file in OPTIONS.glob("*.yaml")]
    assert set(shipped) <= set(ENCODINGS), "add it to ENCODINGS in report/encoding_styles.py"
    assert len({encoding_style(name) for name in shipped}) == len(shipped)


def test_the_most_compared_encodings_have_solid_lines_in_different_colors() -> None:
    styles = [encoding_style(name) for name in ENCODINGS[: len(COLORS)]]
    assert len({style.color for style in styles}) == len(COLORS)
    assert not any(style.dash for style in styles)


def test_the_most_compared_encodings_differ_even_without_color() -> None:
    styles = [encoding_style(name) for name in ENCODINGS[: len(MARKERS)]]
    assert len({(style.marker, style.dash) for style in styles}) == len(MARKERS)


def test_a_custom_encoding_has_a_style_that_no_shipped_encoding_has() -> None:
    shipped = {encoding_style(name) for name in ENCODINGS}
    assert not shipped & {encoding_style(f"mine_{i}") for i in range(500)}


def test_a_style_is_the_same_in_every_process() -> None:
    """A hash of the name that Python seeds per process would differ."""
    assert encoding_style("square_root") == Style("#C28600", "square", CUSTOM_DASH)


def test_custom_encodings_differ_within_a_figure() -> None:
    names = [f"mine_{i}" for i in range(40)]
    assert len({encoding_style(name) for name in names}) < len(names)
    styles = line_styles({name: name for name in [*names, *ENCODINGS]})
    assert len(set(styles.values())) == len(styles)
    assert styles == line_styles({name: name for name in reversed([*names, *ENCODINGS])})


def test_the_figures_of_a_report_have_the_styles_of_its_encodings(
    three_seed_report: SimpleNamespace,
) -> None:
    figures = read_results(three_seed_report.folder).figures
    lines = [line for figure in figures for line in figure.legend]
    assert {line.label for line in lines} == {"rope", "alibi"} and len(lines) > 4
    assert all(line.style == encoding_style(line.label) for line in lines)


def test_the_lines_of_the_figure_by_base_have_the_hue_of_rope(base_report: SimpleNamespace) -> None:
    experiment = read_experiment(base_report.folder)
    chart = perplexity_by_base(loss_curves(experiment), experiment)
    assert chart is not None
    rope_hue, _ = hue_and_lightness(encoding_style("rope"))
    hues = [hue_and_lightness(line.style)[0] for plot in chart.subplots for line in plot.lines]
    assert len(hues) == 2 and all(abs(hue - rope_hue) < 0.06 for hue in hues)


def test_every_line_has_a_contrast_of_at_least_3_with_the_page_in_light_and_dark_mode() -> None:
    styles = [style_at(i) for i in range(9)]
    shades = [shade for style in styles for shade in sweep_styles(style, 12)]
    pages = re.findall(r"--page: (#\w{6})", STYLESHEET.read_text())
    assert len(pages) == 2
    for style in [*styles, *shades, REFERENCE_STYLE, UNSWAPPED_STYLE]:
        for page in pages:
            dark, light = sorted((luminance(style.color), luminance(page)))
            assert (light + 0.05) / (dark + 0.05) >= 3, (style, page)


def luminance(color: str) -> float:
    """Return the relative luminance as defined by WCAG 2."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_sweep_runs_from_light_to_dark_near_the_hue_of_its_encoding() -> None:
    sweep = [f"rope base={10**n}" for n in range(2, 8)]
    styles = line_styles({**dict.fromkeys(sweep, "rope"), "alibi": "alibi"})
    hues = [hue_and_lightness(styles[label])[0] for label in sweep]
    luminances = [luminance(styles[label].color) for label in sweep]
    assert luminances == sorted(luminances, reverse=True)
    rope_hue, _ = hue_and_lightness(encoding_style("rope"))
    assert all(abs(hue - rope_hue) < 0.06 for hue in hues)
    assert len({styles[label].marker for label in sweep}) == len(sweep)
    assert styles["alibi"] == encoding_style("alibi")


def test_custom_encodings_have_other_colors_and_markers_than_the_encodings_beside_them() -> None:
    built_in = ["alibi", "rope", "nope"]
    for custom in itertools.combinations(("learned_log", "my_bias", "a", "b", "c", "d"), 2):
        styles = line_styles({name: name for name in [*custom, *built_in]})
        assert len({style.color for style in styles.values()}) == len(styles)
        assert len({style.marker for style in styles.values()}) == len(styles)
