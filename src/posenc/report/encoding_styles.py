"""The color, marker and dash pattern of each encoding.

Those of posenc's own encodings are the same in every figure and report. Other encodings have a dash
pattern that no built-in encoding has, and a color and a marker derived from their name; in a
report, these differ, if possible, from those of the other encodings. In a sweep over the settings
of one encoding, the lines have hues near that of the encoding, range from light to dark, and differ
in their markers.
"""

from collections.abc import Collection, Mapping, Sequence
from colorsys import hls_to_rgb, rgb_to_hls
from dataclasses import dataclass, replace
from zlib import crc32

from posenc.config.paths import NO_SWAP

COLORS = (  # Okabe and Ito's hues, gray, purple and brown; contrast 3:1 on white and in dark mode
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#808080",
    "#CC79A7",
    "#C28600",
    "#3A9BD0",
    "#7A5CC4",
    "#9C6B3C",
)
MARKERS = {  # SVG paths from -1 to 1, for Vega and the HTML legend
    "circle": "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "square": "M-.85,-.85L.85,-.85L.85,.85L-.85,.85Z",
    "triangle": "M0,-1L1,.75L-1,.75Z",
    "diamond": "M0,-1.15L.9,0L0,1.15L-.9,0Z",
    "triangle-down": "M0,1L1,-.75L-1,-.75Z",
    "plus": "M-.35,-1L.35,-1L.35,-.35L1,-.35L1,.35L.35,.35L.35,1L-.35,1L-.35,.35L-1,.35"
    "L-1,-.35L-.35,-.35Z",
    "cross": "M-1,-.55L-.55,-1L0,-.45L.55,-1L1,-.55L.45,0L1,.55L.55,1L0,.45L-.55,1L-1,.55L-.45,0Z",
    "star": "M0,-1.2L.3,-.42L1.14,-.37L.48,.16L.7,.97L0,.5L-.7,.97L-.48,.16L-1.14,-.37L-.3,-.42Z",
}
DASHES = ((), (9, 3), (9, 3, 2, 3), (9, 3, 2, 3, 2, 3))
PUBLISHED_DASH = (3, 3)
CUSTOM_DASH = (6, 2, 1.5, 2, 1.5, 2, 1.5, 2)
SWAP_DASH = (5, 2)
NUM_CUSTOM = len(COLORS) * len(MARKERS)  # distinct (color, marker) pairs: 9 and 8 are coprime
ENCODINGS = tuple(
    """
    sinusoidal rope alibi nope t5 learned kerple_log fire xpos sandwich shaw cope fox kerple_power
    cable transformer_xl pope window rnope untied drope longrope randomized log_n rnope_swa
    wavelet dape_alibi dape_fire dape_kerple cable_paper fox_fixed integers scaled_integers binary
    degree random_walk bam smollm3 command_a gemma4 olmo3 partial_key_offset inkling temperature
    wall grape_m selective_rope sinks gpt_oss streaming_llm chunked llama4 stick_breaking path
    path_fox self_extend rerope dual_chunk lm_infinite fope rope_plus_plus mla_rope grape_a
    grape_ap m_rope rope_mixed liere comrope alibi_pi dape_v2 k_cable carope darope
    """.split()
)
"""In the order of their styles: those compared most often come first and have solid lines."""
SWAPS = tuple(
    """
    none pi ntk yarn dynamic_ntk llama3 window log_n temperature streaming_llm self_extend rerope
    dual_chunk lm_infinite alibi_pi longrope
    """.split()
)
"""`none` is the encoding without a swap."""
LIGHTEST, DARKEST = 0.29, 0.135
"""The relative luminance (WCAG) of the first and last style of a sweep.

Both have a contrast of at least 3:1 with the page, in light and in dark mode (`page.css`).
"""
HUE_RANGE, SATURATION_FACTOR = 0.115, 0.85  # hue changes by 0.115 (of 1) from light to dark


@dataclass(frozen=True)
class Style:
    """A color, the name of a marker, and a dash pattern in pixels."""

    color: str
    marker: str
    dash: tuple[float, ...] = ()

    @property
    def marker_path(self) -> str:
        return MARKERS[self.marker]


REFERENCE_STYLE = Style("#6b6b6b", "plus", (2, 3))
"""The style of reference lines, such as n-gram models, chance and bounds."""
UNSWAPPED_STYLE = Style("#6b6b6b", "circle", (1, 2))
"""The style of the swap `none` if several encodings have swaps."""


def style_at(index: int) -> Style:
    """Return the style with this index (from 0); the first nine styles differ in color."""
    names = list(MARKERS)
    # Without the second term, style NUM_CUSTOM would be the same as style 0.
    dash_index = index // len(COLORS) + index // NUM_CUSTOM
    dash = DASHES[dash_index % len(DASHES)]
    return Style(COLORS[index % len(COLORS)], names[index % len(names)], dash)


def encoding_style(encoding: str) -> Style:
    """Return the style of an encoding; see `encoding_styles` for custom ones in a report."""
    if encoding in ENCODINGS:
        return style_at(ENCODINGS.index(encoding))
    return _custom_style(crc32(encoding.encode()))


def encoding_styles(names: Collection[str]) -> dict[str, Style]:
    """Return the styles of the encodings in a report.

    An encoding that is not part of posenc gets, if possible, a color and a marker that none of the
    others has.
    """
    built_in = {*names} & {*ENCODINGS}
    styles = {name: encoding_style(name) for name in sorted(built_in)}
    for name in sorted({*names} - built_in):
        styles[name] = _distinct_style(name, styles.values())
    return styles


def line_styles(encodings: Mapping[str, str]) -> dict[str, Style]:
    """Return a style for each label; `encodings` maps labels to encodings."""
    return _styles_by_label(encodings, encoding_styles(encodings.values()))


def _distinct_style(encoding: str, others: Collection[Style]) -> Style:
    """Return the first style of a custom encoding that differs most from those of the others."""
    first = crc32(encoding.encode())
    colors, markers = {s.color for s in others}, {s.marker for s in others}
    return min(
        (_custom_style(first + i) for i in range(NUM_CUSTOM)),
        key=lambda s: (s in others, s.color in colors, s.marker in markers),
    )


def swap_styles(names: Collection[str], unswapped: Style = UNSWAPPED_STYLE) -> dict[str, Style]:
    """Return a style for each swap, such as `yarn factor=4`; `unswapped` is that of `none`.

    A swap has the same hue in every report; several settings of it range from light to dark. The
    dash pattern is one that no encoding has.
    """
    options = {name: name.partition(" ")[0] for name in names}
    styles = {option: _swap_style(option, unswapped) for option in options.values()}
    return _styles_by_label(options, styles)


def _styles_by_label(groups: Mapping[str, str], styles: Mapping[str, Style]) -> dict[str, Style]:
    """Return a style for each label: a variation of the style of its group."""
    by_label = {}
    for group, style in styles.items():
        labels = [label for label in groups if groups[label] == group]
        by_label.update(zip(labels, sweep_styles(style, len(labels)), strict=True))
    return by_label


def _swap_style(option: str, unswapped: Style) -> Style:
    if option == NO_SWAP:
        return unswapped
    known = option in SWAPS
    # Without the + 1, pi would have the color and marker of rope.
    index = SWAPS.index(option) + 1 if known else crc32(option.encode())
    return replace(style_at(index % NUM_CUSTOM), dash=SWAP_DASH)


def sweep_styles(style: Style, count: int) -> Sequence[Style]:
    """Return `count` styles with hues near that of `style`, from light to dark."""
    if count == 1:
        return [style]
    names = list(MARKERS)
    first = names.index(style.marker)
    markers = [names[(first + i) % len(names)] for i in range(count)]
    return [
        replace(style, color=_shade(style.color, i / (count - 1)), marker=marker)
        for i, marker in enumerate(markers)
    ]


def _custom_style(index: int) -> Style:
    """Return one of the NUM_CUSTOM styles of encodings that are not part of posenc."""
    return replace(style_at(index % NUM_CUSTOM), dash=CUSTOM_DASH)


def _shade(color: str, position: float) -> str:
    """Return a shade of a color, light at `position` 0 and dark at 1, with a shifted hue."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, _, saturation = rgb_to_hls(red, green, blue)
    luminance = LIGHTEST + (DARKEST - LIGHTEST) * position
    shifted_hue = (hue + HUE_RANGE * (0.5 - position)) % 1
    low, high = 0.0, 1.0  # bisect the HLS lightness, which increases with the luminance
    shade = (0.0, 0.0, 0.0)
    for _ in range(16):
        lightness = (low + high) / 2
        shade = hls_to_rgb(shifted_hue, lightness, saturation * SATURATION_FACTOR)
        low, high = (lightness, high) if _luminance(shade) < luminance else (low, lightness)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in shade)


def _luminance(rgb: Sequence[float]) -> float:
    """Return the relative luminance of sRGB channels from 0 to 1, as WCAG defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
