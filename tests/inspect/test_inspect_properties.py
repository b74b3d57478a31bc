"""Measured properties compared with closed forms, for L = 64, D = 32, H = 4, d = 8."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from posenc.encodings.base import Geometry
from posenc.encodings.nope import NoPE
from posenc.encodings.window import Window
from posenc.inspect.encoding import vector_properties as vectors
from posenc.inspect.encoding.encoding_page import GROUPS, PropertyValues, ideal_properties
from posenc.inspect.encoding.extrapolation import measure_extrapolation
from posenc.inspect.encoding.frequency_figures import draw_base_bound
from posenc.inspect.encoding.inspected_encoding import InspectedEncoding
from posenc.inspect.encoding.low_precision import score_errors
from posenc.inspect.encoding.score_properties import (
    effective_windows,
    expected_scores,
    measure_decay,
)

Build = Callable[..., InspectedEncoding]
Measured = Callable[[str], PropertyValues]
L, WIDTH, HEADS, HEAD_DIM = 64, 32, 4, 8
FREQUENCIES = [10_000.0 ** (-2 * i / HEAD_DIM) for i in range(HEAD_DIM // 2)]
SLOPES = [2.0 ** (-8 * h / HEADS) for h in range(1, HEADS + 1)]


def value(measurements: PropertyValues, name: str) -> float:
    number = measurements[name].value
    assert isinstance(number, float | int), measurements[name]
    return float(number)


@pytest.mark.parametrize("digits", [4, 8])
def test_binary_digits_repeat_at_their_power_of_two(inspected: Build, digits: int) -> None:
    (measurement,) = vectors.measure_first_repeat(inspected("binary", f"encoding.digits={digits}"))
    assert measurement.value == 2**digits


@pytest.mark.slow
def test_nope_and_t5_repeat_a_vector_and_other_encodings_do_not(measured: Measured) -> None:
    # NoPE has neither vectors nor biases; in T5, 17 is the first distance in the bucket of 16
    assert measured("nope")[vectors.FIRST_REPEAT].value == 1
    assert measured("t5")[vectors.FIRST_REPEAT].value == 17
    for name in ("sinusoidal", "rope", "alibi", "learned", "integers"):
        assert str(measured(name)[vectors.FIRST_REPEAT].value).startswith("none up to ")
    assert measured("learned")[vectors.FIRST_REPEAT].value == f"none up to {L - 1}"


def test_the_earliest_repeat_is_found() -> None:
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(500, 6, generator=generator, dtype=torch.float64)
    assert vectors.first_repeat(rows) is None
    rows[433], rows[301] = rows[20], rows[77]
    assert vectors.first_repeat(rows) == (77, 301)


@pytest.mark.parametrize(
    "name", ["randomized", "rerope", "self_extend", "dual_chunk", "lm_infinite"]
)
def test_the_trained_range_is_not_measured_if_tokens_are_rotated_to_other_positions(
    measured: Measured, name: str
) -> None:
    assert measured(name)["out of range at 4L"].value is None


def test_randomized_positions_have_the_vectors_or_biases_of_the_inner_encoding(
    inspected: Build, measured: Measured
) -> None:
    assert value(measured("randomized"), vectors.RMS) == pytest.approx(1)
    assert measured("randomized")["product shift error"].value is None
    alibi = inspected("randomized", "encoding@encoding.inner=alibi")
    (repeat,) = vectors.measure_first_repeat(alibi)
    assert str(repeat.value).startswith("none up to ")
    assert vectors.measure_magnitude(alibi)[-1].value != 0


def test_only_scaled_positions_change_with_the_length_of_the_sequence(measured: Measured) -> None:
    # position 63 is 1 in 64 tokens, 63/255 in 256
    assert value(measured("scaled_integers"), vectors.LENGTH_CHANGE) == pytest.approx(1 - 63 / 255)
    for name in ("sinusoidal", "binary", "learned", "rope", "alibi", "nope", "fire"):
        assert value(measured(name), vectors.LENGTH_CHANGE) < 1e-12


def test_magnitudes_equal_their_closed_forms(measured: Measured) -> None:
    # sinusoids: |p|^2 = D/2; a rotation keeps the norm of the all-ones vector
    assert value(measured("sinusoidal"), vectors.RMS) == pytest.approx(math.sqrt(0.5))
    assert value(measured("rope"), vectors.RMS) == pytest.approx(1)
    assert value(measured("integers"), vectors.MAX_FAR) == 100_000
    assert value(measured("alibi"), vectors.MAX_WITHIN_L) == pytest.approx(SLOPES[0] * (L - 1))
    assert value(measured("alibi"), vectors.MAX_FAR) == pytest.approx(SLOPES[0] * 100_000)
    assert value(measured("nope"), vectors.RMS) == 0
    assert measured("learned")[vectors.MAX_FAR].value is None


def test_seeds_change_only_random_encodings(measured: Measured) -> None:
    assert value(measured("learned"), vectors.SEED_CHANGE) > 0.02
    assert value(measured("randomized"), vectors.SEED_CHANGE) > 0.02
    for name in ("sinusoidal", "binary", "rope", "alibi", "nope"):
        assert value(measured(name), vectors.SEED_CHANGE) == 0


def test_sinusoids_and_rotations_have_a_linear_relation_and_digits_do_not(
    measured: Measured,
) -> None:
    for name in vectors.LINEAR_NAMES:
        assert value(measured("sinusoidal"), name) < 1e-9
        assert value(measured("rope"), name) < 1e-9
        assert value(measured("binary"), name) > 0.4
        assert measured("alibi")[name].value is None
    assert value(measured("learned"), "linear residual k=1") > 0.1
    assert "too few" in measured("learned")["linear residual k=64"].description


def test_the_linear_residual_of_integers_equals_its_closed_form(measured: Measured) -> None:
    # all channels are m: the best map is m -> c m, with residual |m + k - c m| relative to k
    m, k = np.arange(2048 - 16.0), 16
    c = (m @ (m + k)) / (m @ m)
    residual = np.linalg.norm(m + k - c * m) / (k * math.sqrt(len(m)))
    assert value(measured("integers"), "linear residual k=16") == pytest.approx(residual)


def test_the_near_constant_channels_of_sinusoids_follow_from_their_frequencies(
    inspected: Build,
) -> None:
    # over a period, the RMS change per token is 2 |sin(f / 2)| / sqrt 2, and the RMS is 1 / sqrt 2
    at_width = dict(
        zip(vectors.WIDTHS, vectors.measure_constant_channels(inspected("sinusoidal")), strict=True)
    )
    for width, measurement in at_width.items():
        frequencies = [10_000.0 ** (-2 * i / width) for i in range(width // 2)]
        below = sum(2 * math.sin(f / 2) < 0.005 for f in frequencies) / (width / 2)
        above = sum(2 * math.sin(f / 2) < 0.015 for f in frequencies) / (width / 2)
        assert isinstance(measurement.value, float) and below <= measurement.value <= above


def test_scores_of_relative_encodings_do_not_change_under_shifts(measured: Measured) -> None:
    for name in ("rope", "alibi", "nope", "t5", "kerple_log"):
        assert value(measured(name), "score shift error") < 1e-11
    for name in ("sinusoidal", "binary", "learned", "integers"):
        assert value(measured(name), "score shift error") > 0.05
    assert value(measured("sinusoidal"), "product shift error") < 1e-11
    assert value(measured("binary"), "product shift error") > 0.1


def test_expected_scores_equal_their_closed_forms(inspected: Build) -> None:
    root = math.sqrt(HEAD_DIM)
    rope = expected_scores(inspected("rope"), 100, identical=True)
    alibi = expected_scores(inspected("alibi"), 100, identical=True)
    nope = expected_scores(inspected("nope"), 100, identical=True)
    for n in (0, 1, 7, 99):
        rotated = 2 * sum(math.cos(n * f) for f in FREQUENCIES) / root
        assert rope[:, n].tolist() == pytest.approx([rotated] * HEADS)
        assert alibi[:, n].tolist() == pytest.approx([root - slope * n for slope in SLOPES])
        assert nope[:, n].tolist() == pytest.approx([root] * HEADS)


def test_sinusoids_add_their_inner_product_to_expected_scores(inspected: Build) -> None:
    equal = expected_scores(inspected("sinusoidal"), 100, identical=True).sum(0)
    random = expected_scores(inspected("sinusoidal"), 100, identical=False).sum(0)
    frequencies = [10_000.0 ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]
    for n in (0, 1, 7, 99):
        product = sum(math.cos(n * f) for f in frequencies) / math.sqrt(HEAD_DIM)
        assert equal[n].item() == pytest.approx(HEADS * math.sqrt(HEAD_DIM) + product)
        assert random[n].item() == pytest.approx(product)


def test_distances_beyond_the_maximum_length_have_no_expected_score(inspected: Build) -> None:
    results = measure_decay(inspected("learned", "train_length=16"))
    _, _, at_16, at_train_length, at_4_train_lengths = (result.value for result in results[:5])
    assert at_16 is None and at_train_length == at_4_train_lengths


def test_effective_windows_of_alibi_and_nope_equal_their_closed_forms(measured: Measured) -> None:
    longest = 4 * L

    def window(slope: float) -> int:  # of a geometric series, cut off at 4 L
        reached = 0.9 * (1 - math.exp(-slope * longest))
        return math.ceil(-math.log(1 - reached) / slope)

    assert value(measured("alibi"), "narrowest window") == window(SLOPES[0])
    assert value(measured("alibi"), "widest window") == window(SLOPES[-1])
    assert value(measured("nope"), "widest window") == math.ceil(0.9 * longest)


def test_effective_windows_are_limited_by_a_window_and_extended_by_kept_tokens() -> None:
    geometry, bias = Geometry(8, 1, 1, 100), torch.zeros(1, 100, dtype=torch.float64)
    assert effective_windows(Window(geometry, inner=NoPE, size=10), bias) == [9]
    assert effective_windows(Window(geometry, inner=NoPE, size=10, start_size=10), bias) == [98]


def test_the_fraction_out_of_range_at_4l_equals_its_closed_form(
    measured: Measured, inspected: Build
) -> None:
    assert value(measured("learned"), "max length") == L
    assert str(L) in measured("learned")["finite at 4L"].description
    longer_than_l = sum(2 * math.pi / f > L - 1 for f in FREQUENCIES) / len(FREQUENCIES)
    assert value(measured("rope"), "out of range at 4L") == longer_than_l == 0.5
    assert value(measured("alibi"), "out of range at 4L") == 1
    assert value(measured("binary"), "out of range at 4L") == 2 / WIDTH  # digits of 64 and 128
    for name in ("nope", "scaled_integers"):
        assert value(measured(name), "out of range at 4L") == 0
        assert value(measured(name), "finite at 4L") == 1
    *_, out_of_range = measure_extrapolation(inspected("t5", "train_length=128"))
    assert out_of_range.value == 0  # the last bucket begins at a distance of 113


def test_low_precision_errors_equal_their_closed_forms(inspected: Build) -> None:
    values, positions = score_errors(inspected("alibi"), 100_000)
    # bfloat16 has 8 significant bits: the last 64 positions are rounded to 99,840, all distances 0
    assert positions["bfloat16"] == pytest.approx(SLOPES[0] * 63)
    assert math.isinf(positions["float16"])  # whose maximum is 65,504
    assert values["float16"] < values["bfloat16"] < 0.1 < values["int8"]
    near, _ = score_errors(inspected("alibi"), 100)
    assert near["int8"] < values["int8"]  # the largest bias sets its scale
    _, nope = score_errors(inspected("nope"), 100_000)
    assert set(nope.values()) == {0.0}


def test_contexts_for_which_no_base_qualifies_are_left_out_of_the_bound(inspected: Build) -> None:
    """With two channels per head, cos(m) is negative at a distance of two tokens."""
    figure = draw_base_bound([inspected("rope", "model.heads=16")])
    assert figure is not None and "bound at head dimension 2" not in figure.csv


def test_the_number_of_axes_is_two_if_both_coordinates_affect_scores(measured: Measured) -> None:
    counts = {
        name: value(measured(name), "axes") for name in ("rope", "sinusoidal", "alibi", "nope")
    }
    assert counts == {"rope": 2, "sinusoidal": 2, "alibi": 2, "nope": 1}
    assert all(
        "not supported" in measured(name)["axes"].description for name in ("learned", "binary")
    )


def test_the_cost_includes_parameters_buffers_kernel_and_time(measured: Measured) -> None:
    assert value(measured("learned"), "parameters") == L * WIDTH
    assert value(measured("t5"), "parameters") == 32 * HEADS
    assert value(measured("rope"), "parameters") == value(measured("rope"), "buffers") == 0
    assert (
        measured("rope")["kernel"].value == "causal"
        and measured("alibi")["kernel"].value == "toeplitz"
    )
    assert value(measured("nope"), "time") > 0


def test_ideal_properties_follow_from_the_measurements(measured: Measured) -> None:
    def answers(name: str) -> list[str | None]:
        cells = ideal_properties(measured(name))
        return [None if cell is None else str(cell).split()[0].strip(",") for cell in cells]

    assert answers("rope") == ["yes", "yes", "no", "yes", "yes"]
    assert answers("sinusoidal") == ["yes", "yes", "no", "yes", "yes"]
    assert answers("binary") == ["yes", "no", "no", "yes", "no"]
    assert answers("learned") == ["yes", "no", "no", "no", "no"]
    assert answers("nope") == ["no", None, "yes", "yes", "no"]
    assert answers("alibi") == ["yes", None, "no", "yes", "yes"]
    assert answers("scaled_integers")[0] == "no"


def test_every_property_has_a_description(measured: Measured) -> None:
    names = [name for group in GROUPS for name in group.names]
    assert len(set(names)) == len(names)
    for encoding in ("rope", "learned", "random_walk"):
        assert list(measured(encoding)) == names
        assert all(measurement.description for measurement in measured(encoding).values())
