"""Measured properties against closed forms derived here, for L = 64, D = 32, H = 4, d = 8."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from posenc.inspect.encoding import codes, linear
from posenc.inspect.encoding.beyond import beyond
from posenc.inspect.encoding.decay import curve, effective_windows
from posenc.inspect.encoding.ideal import ideal
from posenc.inspect.encoding.matrix import PROPERTIES, Found
from posenc.inspect.encoding.precision import errors
from posenc.inspect.encoding.subject import Subject

Of = Callable[..., Subject]
L, WIDTH, HEADS, HEAD = 64, 32, 4, 8
FREQUENCIES = [10_000.0 ** (-2 * i / HEAD) for i in range(HEAD // 2)]
SLOPES = [2.0 ** (-8 * h / HEADS) for h in range(1, HEADS + 1)]


def value(found: Found, name: str) -> float:
    number = found[name].value
    assert isinstance(number, float | int), found[name]
    return float(number)


@pytest.mark.parametrize("digits", [4, 8])
def test_binary_digits_repeat_at_their_power_of_two(subject: Of, digits: int) -> None:
    found = codes.repeats(subject("binary", f"encoding.digits={digits}"))
    assert found[0].value == 2**digits


def test_other_codes_repeat_where_they_must(found: Callable[[str], Found]) -> None:
    assert found("nope")[codes.REPEATS].value == 1  # every position is told nothing
    assert found("t5")[codes.REPEATS].value == 17  # 16 and 17 are the first to share a bucket
    for name in ("sinusoidal", "rope", "alibi", "learned", "integers"):
        assert str(found(name)[codes.REPEATS].value).startswith("none to ")
    assert found("learned")[codes.REPEATS].value == f"none to {L - 1}"


def test_a_repeat_is_found_wherever_it_is() -> None:
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(500, 6, generator=generator, dtype=torch.float64)
    assert codes.first_repeat(rows) is None
    rows[433], rows[301] = rows[20], rows[77]
    assert codes.first_repeat(rows) == (77, 301)


def test_only_shares_of_a_sequence_change_with_its_length(found: Callable[[str], Found]) -> None:
    # position 63 is 1 in 64 tokens, 63/255 in 256
    assert value(found("scaled_integers"), codes.LENGTH) == pytest.approx(1 - 63 / 255)
    for name in ("sinusoidal", "binary", "learned", "rope", "alibi", "nope", "fire"):
        assert value(found(name), codes.LENGTH) < 1e-12


def test_sizes(found: Callable[[str], Found]) -> None:
    assert value(found("sinusoidal"), codes.SIZE) == pytest.approx(math.sqrt(0.5))  # |p|^2 = D/2
    assert value(found("rope"), codes.SIZE) == pytest.approx(1)  # a rotation keeps the norm
    assert value(found("integers"), codes.FARTHEST) == 100_000
    assert value(found("alibi"), codes.LARGEST) == pytest.approx(SLOPES[0] * (L - 1))
    assert value(found("alibi"), codes.FARTHEST) == pytest.approx(SLOPES[0] * 100_000)
    assert value(found("nope"), codes.SIZE) == 0
    assert found("learned")[codes.FARTHEST].value is None


def test_seeds_change_what_is_drawn_alone(found: Callable[[str], Found]) -> None:
    assert value(found("learned"), codes.SEED) > 0.02
    assert value(found("randomized"), codes.SEED) > 0.02
    for name in ("sinusoidal", "binary", "rope", "alibi", "nope"):
        assert value(found(name), codes.SEED) == 0


def test_a_fixed_linear_map_moves_sinusoids_and_rotations_but_no_digits(
    found: Callable[[str], Found],
) -> None:
    for name in linear.NAMES:
        assert value(found("sinusoidal"), name) < 1e-9
        assert value(found("rope"), name) < 1e-9
        assert value(found("binary"), name) > 0.4
        assert found("alibi")[name].value is None
    assert value(found("learned"), "map by 1") > 0.1
    assert "too few" in found("learned")["map by 64"].said


def test_what_a_map_leaves_of_integers(found: Callable[[str], Found]) -> None:
    # all channels are m: the best map is m -> c m, which leaves |k + m - c m| of k
    m, k = np.arange(2048 - 16.0), 16
    c = (m @ (m + k)) / (m @ m)
    left = np.linalg.norm(m + k - c * m) / (k * math.sqrt(len(m)))
    assert value(found("integers"), "map by 16") == pytest.approx(left)


def test_still_channels_of_sinusoids(subject: Of) -> None:
    # a channel moves by 2 |sin(f / 2)| / sqrt 2 on average over a turn, its size is 1 / sqrt 2
    at_width = dict(zip(linear.WIDTHS, linear.neighbours(subject("sinusoidal")), strict=True))
    for width, measured in at_width.items():
        frequencies = [10_000.0 ** (-2 * i / width) for i in range(width // 2)]
        below = sum(2 * math.sin(f / 2) < 0.005 for f in frequencies) / (width / 2)
        above = sum(2 * math.sin(f / 2) < 0.015 for f in frequencies) / (width / 2)
        assert isinstance(measured.value, float) and below <= measured.value <= above


def test_scores_go_by_differences_where_they_should(found: Callable[[str], Found]) -> None:
    for name in ("rope", "alibi", "nope", "t5", "kerple_log"):
        assert value(found(name), "scores shifted") < 1e-11
    for name in ("sinusoidal", "binary", "learned", "integers"):
        assert value(found(name), "scores shifted") > 0.05
    assert value(found("sinusoidal"), "codes shifted") < 1e-11
    assert value(found("binary"), "codes shifted") > 0.1


def test_expected_scores_in_closed_form(subject: Of) -> None:
    root = math.sqrt(HEAD)
    rope = curve(subject("rope"), 100, equal=True)
    alibi = curve(subject("alibi"), 100, equal=True)
    none = curve(subject("nope"), 100, equal=True)
    for n in (0, 1, 7, 99):
        turned = 2 * sum(math.cos(n * f) for f in FREQUENCIES) / root
        assert rope[:, n].tolist() == pytest.approx([turned] * HEADS)
        assert alibi[:, n].tolist() == pytest.approx([root - slope * n for slope in SLOPES])
        assert none[:, n].tolist() == pytest.approx([root] * HEADS)


def test_expected_scores_of_sinusoids_add_their_inner_product(subject: Of) -> None:
    found = curve(subject("sinusoidal"), 100, equal=True).sum(0)
    apart = curve(subject("sinusoidal"), 100, equal=False).sum(0)
    frequencies = [10_000.0 ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]
    for n in (0, 1, 7, 99):
        product = sum(math.cos(n * f) for f in frequencies) / math.sqrt(HEAD)
        assert found[n].item() == pytest.approx(HEADS * math.sqrt(HEAD) + product)
        assert apart[n].item() == pytest.approx(product)


def test_windows_of_alibi_and_of_none(found: Callable[[str], Found]) -> None:
    longest = 4 * L

    def window(slope: float) -> int:  # of a geometric series, cut off at 4 L
        reached = 0.9 * (1 - math.exp(-slope * longest))
        return math.ceil(-math.log(1 - reached) / slope)

    assert value(found("alibi"), "narrowest window") == window(SLOPES[0])
    assert value(found("alibi"), "widest window") == window(SLOPES[-1])
    assert value(found("nope"), "widest window") == math.ceil(0.9 * longest)
    assert effective_windows(torch.zeros(1, 100, dtype=torch.float64), 10) == [9]


def test_past_the_training_length(found: Callable[[str], Found], subject: Of) -> None:
    assert value(found("learned"), "longest") == L
    assert "65 tokens are refused" in found("learned")["finite at 4L"].said
    new = sum(2 * math.pi / f > L - 1 for f in FREQUENCIES) / len(FREQUENCIES)
    assert value(found("rope"), "out of range at 4L") == new == 0.5
    assert value(found("alibi"), "out of range at 4L") == 1
    assert value(found("binary"), "out of range at 4L") == 2 / WIDTH  # the digits of 64 and of 128
    for name in ("nope", "scaled_integers"):
        assert value(found(name), "out of range at 4L") == 0
        assert value(found(name), "finite at 4L") == 1
    last_bucket_at_113 = {m.name: m.value for m in beyond(subject("t5", "train_length=128"))}
    assert last_bucket_at_113["out of range at 4L"] == 0


def test_low_precision_in_closed_form(subject: Of) -> None:
    values, positions = errors(subject("alibi"), 100_000)
    # bfloat16 has 8 bits: at 100,000 all 64 positions become 99,840, and all distances 0
    assert positions["bfloat16"] == pytest.approx(SLOPES[0] * 63)
    assert math.isinf(positions["float16"])  # which ends at 65,504
    assert values["float16"] < values["bfloat16"] < 0.1 < values["int8"]
    near, _ = errors(subject("alibi"), 100)
    assert near["int8"] < values["int8"]  # its scale is that of the largest bias
    _, none = errors(subject("nope"), 100_000)
    assert set(none.values()) == {0.0}


def test_axes(found: Callable[[str], Found]) -> None:
    taken = {name: value(found(name), "axes") for name in ("rope", "sinusoidal", "alibi", "nope")}
    assert taken == {"rope": 2, "sinusoidal": 2, "alibi": 2, "nope": 1}
    assert "refused" in found("learned")["axes"].said and "refused" in found("binary")["axes"].said


def test_cost(found: Callable[[str], Found]) -> None:
    assert value(found("learned"), "parameters") == L * WIDTH
    assert value(found("t5"), "parameters") == 32 * HEADS
    assert value(found("rope"), "parameters") == value(found("rope"), "buffers") == 0
    assert (
        found("rope")["kernel"].value == "causal" and found("alibi")["kernel"].value == "toeplitz"
    )
    assert value(found("nope"), "time") > 0


def test_ideal_properties(found: Callable[[str], Found]) -> None:
    def answers(name: str) -> list[str | None]:
        cells = ideal(found(name))
        return [None if cell is None else str(cell).split()[0].strip(",") for cell in cells]

    assert answers("rope") == ["yes", "yes", "no", "yes", "yes"]
    assert answers("sinusoidal") == ["yes", "yes", "no", "yes", "yes"]
    assert answers("binary") == ["yes", "no", "no", "yes", "no"]
    assert answers("learned") == ["yes", "no", "no", "no", "no"]
    assert answers("nope") == ["no", None, "yes", "yes", "no"]
    assert answers("alibi") == ["yes", None, "no", "yes", "yes"]
    assert answers("scaled_integers")[0] == "no"


def test_every_property_says_what_it_is_of(found: Callable[[str], Found]) -> None:
    names = [name for group in PROPERTIES for name in group.names]
    assert len(set(names)) == len(names)
    for encoding in ("rope", "learned", "random_walk"):
        assert list(found(encoding)) == names
        assert all(measured.said for measured in found(encoding).values())
