"""Golden values of the spectra, and identities between them."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from compositions import composed
from posenc.config.components import build
from posenc.config.paths import options
from posenc.encodings.spectra import (
    Spectrum,
    dynamic_ntk,
    dynamic_ntk_hf,
    geometric,
    geometric_d1,
    geometric_t2t,
    half_truncated,
    hope,
    longrope,
    ntk,
    ntk_by_parts,
    p_rope,
    p_rope_reversed,
    position_interpolation,
    power,
    powers_of_two,
    resonance,
    yarn,
    yarn_paper,
)

NAMES = sorted(options("encoding/spectrum"))


def frequencies(spectrum: Spectrum, width: int = 64, length: int = 512) -> Tensor:
    return spectrum(width, 512, length)[0]


def configured_spectrum(name: str, *overrides: str) -> Spectrum:
    config = composed("encoding=rope", f"encoding/spectrum={name}", *overrides)
    return build(config.encoding.spectrum, name="encoding.spectrum")


@pytest.mark.parametrize("name", NAMES)
def test_every_yaml_gives_finite_float64_frequencies(name: str) -> None:
    actual, magnitude = configured_spectrum(name)(32, 512, 1024)
    assert actual.shape == (16,) and actual.dtype == torch.float64
    assert actual.isfinite().all() and (actual >= 0).all()
    assert magnitude >= 1


@pytest.mark.parametrize("name", NAMES)
def test_every_numeric_parameter_changes_the_spectrum(name: str) -> None:
    config = composed("encoding=rope", f"encoding/spectrum={name}").encoding.spectrum
    before = configured_spectrum(name)(64, 512, 1024)
    for key, value in config.items():
        if type(value) in (int, float):
            changed = value * (2 if key == "factor" else 0.5)
            after = configured_spectrum(name, f"encoding.spectrum.{key}={changed}")(64, 512, 1024)
            assert not torch.equal(before[0], after[0]) or before[1] != after[1], key


@pytest.mark.parametrize(
    ("p", "code", "paper", "llama3"),
    [
        (0, 1.0, 1.0, 1.0),
        (3, 0.4216965034, 0.4216965034, 0.4216965034),
        (4, 0.2979838564, 0.268553038, 0.316227766),
        (6, 0.1470500281, 0.1024979784, 0.177827941),
        (8, 0.07115384615, 0.04229532198, 0.1),
        (10, 0.03352419439, 0.01893235813, 0.05623413252),
        (12, 0.01520325798, 0.009112094657, 0.02037183272),
        (14, 0.006497559383, 0.004638902456, 0.006442139149),
        (15, 0.004103142868, 0.003361759466, 0.003622681066),
        (16, 0.0025, 0.0025, 0.0025),
        (31, 3.33380358e-05, 3.33380358e-05, 3.33380358e-05),
    ],
)
def test_yarn_and_llama3_match_golden_values(
    p: int, code: float, paper: float, llama3: float
) -> None:
    """d=64, base 1e4, L=512, s=4."""
    assert frequencies(partial(yarn, factor=4))[p].item() == pytest.approx(code, rel=1e-8)
    assert frequencies(partial(yarn_paper, factor=4))[p].item() == pytest.approx(paper, rel=1e-8)
    llama3_actual = frequencies(partial(ntk_by_parts, factor=4, beta_slow=1, beta_fast=4))[p].item()
    assert llama3_actual == pytest.approx(llama3, rel=1e-8)


def test_yarn_at_a_short_training_length_matches_golden_values() -> None:
    assert yarn_paper(64, 128, 128, factor=4)[0][0].item() == pytest.approx(0.7186733722)
    assert yarn_paper(64, 128, 128, factor=4)[0][1].item() == pytest.approx(0.4464903877)
    assert yarn(64, 128, 128, factor=4)[0][0].item() == 1.0
    assert yarn(64, 128, 128, factor=4)[0][1].item() == pytest.approx(0.6987650587)


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (1, 0.8146172339),
        (28, 0.003211445995),
        (29, 0.002166570764),
        (30, 0.001371893568),
        (32, 0.000524846161),
        (34, 0.0001785078128),
        (35, 9.556212354e-05),
        (63, 3.068925989e-07),
    ],
)
def test_ntk_by_parts_of_llama_3_1_matches_golden_values(p: int, expected: float) -> None:
    actual, _ = ntk_by_parts(128, 8192, 8192, base=5e5, factor=8, beta_slow=1, beta_fast=4)
    assert actual[p].item() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("factor", "base", "magnitude"),
    [(2, 20452.22871, 1.069314718), (4, 41829.36593, 1.138629436), (8, 85550.37589, 1.207944154)],
)
def test_the_base_of_ntk_and_the_magnitude_of_yarn_match_golden_values(
    factor: float, base: float, magnitude: float
) -> None:
    expected = geometric(64, 512, 512, base=base)[0]
    torch.testing.assert_close(
        frequencies(partial(ntk, factor=factor)), expected, rtol=1e-8, atol=0
    )
    assert yarn(64, 512, 512, factor=factor)[1] == pytest.approx(magnitude)
    plain = geometric(64, 512, 512)[0]
    assert expected[0] == plain[0]
    assert expected[-1].item() == pytest.approx(plain[-1].item() / factor, rel=1e-8)


@pytest.mark.parametrize(
    ("factor", "length", "base"),
    [
        (1, 512, 10000),
        (1, 513, 10020.16193),
        (1, 2048, 41829.36593),
        (2, 513, 10040.32512),
        (2, 2048, 74534.83032),
        (4, 1024, 52664.43434),
    ],
)
def test_dynamic_ntk_matches_golden_values(factor: float, length: int, base: float) -> None:
    expected = geometric(64, 512, 512, base=base)[0]
    actual = frequencies(partial(dynamic_ntk_hf, factor=factor), length=length)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=0)
    if factor == 1:
        torch.testing.assert_close(
            frequencies(dynamic_ntk, length=length), expected, rtol=1e-8, atol=0
        )


def test_p_rope_keeps_the_highest_frequencies_and_their_spacing() -> None:
    actual = frequencies(partial(p_rope, fraction=0.25))
    assert actual[0] == 1.0
    assert actual[7].item() == pytest.approx(0.1333521432)
    assert (actual[8:] == 0).all()
    assert torch.equal(frequencies(partial(p_rope, fraction=1.0)), frequencies(geometric))
    assert (frequencies(partial(p_rope, fraction=0.0)) == 0).all()
    both = frequencies(partial(p_rope, fraction=0.25)) + frequencies(
        partial(p_rope_reversed, fraction=0.75)
    )
    assert torch.equal(both, frequencies(geometric))


@pytest.mark.parametrize(
    ("width", "base", "length", "num_kept"),
    [
        (64, 1e4, 128, 11),
        (64, 1e4, 512, 16),
        (64, 1e4, 1024, 18),
        (32, 1e4, 512, 8),
        (128, 1e4, 4096, 46),
        (128, 5e5, 4096, 32),
    ],
)
def test_hope_keeps_frequencies_with_a_full_rotation(
    width: int, base: float, length: int, num_kept: int
) -> None:
    actual, _ = hope(width, length, length, base=base)
    assert int((actual > 0).sum()) == num_kept


def test_resonance_has_integer_wavelengths() -> None:
    wavelengths = (2 * math.pi / frequencies(resonance)).round().long().tolist()
    assert [wavelengths[p] for p in (0, 1, 2, 3, 8, 16, 31)] == [6, 8, 11, 15, 63, 628, 47117]
    actual = frequencies(resonance)
    expected = {0: 1.0471975512, 1: 0.785398163397, 2: 0.571198664289, 8: 0.099733100114}
    for p, value in expected.items():
        assert actual[p].item() == pytest.approx(value, rel=1e-10)


def test_position_interpolation_divides_every_frequency() -> None:
    actual = frequencies(partial(position_interpolation, factor=4))
    torch.testing.assert_close(actual * 4, frequencies(geometric), rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "spectrum", [position_interpolation, ntk, ntk_by_parts, yarn, yarn_paper, dynamic_ntk_hf]
)
def test_a_factor_of_one_changes_nothing(spectrum: Spectrum) -> None:
    actual, magnitude = spectrum(64, 512, 512, factor=1)  # type: ignore[call-arg]
    torch.testing.assert_close(actual, frequencies(geometric), rtol=1e-12, atol=0)
    assert magnitude == 1.0


def test_powers_match_golden_values() -> None:
    assert powers_of_two(8, 1, 1)[0].tolist() == [1.0, 0.5, 0.25, 0.125]
    assert power(8, 1, 1, exponent=1.0)[0].tolist() == [1.0, 0.75, 0.5, 0.25]
    assert power(8, 1, 1, exponent=2.0)[0].tolist() == [1.0, 0.5625, 0.25, 0.0625]


@pytest.mark.parametrize(
    ("spectrum", "message"),
    [
        (partial(geometric, base=0.0), "base=0.0"),
        (partial(p_rope, fraction=1.5), "fraction=1.5"),
        (partial(position_interpolation, factor=0.5), "factor=0.5"),
        (partial(ntk_by_parts, beta_slow=5.0, beta_fast=4.0), "beta_slow=5.0"),
        (partial(yarn, beta_slow=5.0, beta_fast=4.0), "beta_slow=5.0 .* beta_fast=4.0"),
        (partial(yarn, beta_slow=0.0), "beta_slow=0.0"),
        (partial(yarn, beta_fast=math.inf), "beta_fast=inf"),
        (partial(ntk, factor=1e300), r"factor=1e\+300 must be from 1 to 1000000"),
        (partial(ntk_by_parts, factor=math.inf), "factor=inf"),
        (partial(position_interpolation, factor=math.nan), "factor=nan"),
        (partial(resonance, base=1e-3), "base=0.001, a wavelength rounds to 0"),
    ],
)
def test_invalid_parameters_are_rejected(spectrum: Spectrum, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spectrum(64, 512, 512)
    with pytest.raises(ValueError, match="even number of channels, not 7"):
        geometric(7, 512, 512)
    with pytest.raises(ValueError, match=r"train_length=1 .* 2"):
        longrope(64, 1, 1)


@pytest.mark.parametrize(
    "spectrum", [position_interpolation, ntk, ntk_by_parts, yarn, dynamic_ntk_hf, longrope]
)
def test_the_largest_factor_gives_finite_frequencies(spectrum: Spectrum) -> None:
    actual, magnitude = spectrum(4, 512, 1024, factor=1e6)  # type: ignore[call-arg]
    assert actual.isfinite().all() and (actual > 0).all() and math.isfinite(magnitude)


@pytest.mark.parametrize(("beta_slow", "beta_fast"), [(5e-324, 1.0), (1.0, 1e308)])
def test_yarn_is_finite_for_extreme_betas(beta_slow: float, beta_fast: float) -> None:
    assert yarn(64, 512, 512, beta_slow=beta_slow, beta_fast=beta_fast)[0].isfinite().all()


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (4, 0.3014064785),
        (6, 0.1473408823),
        (8, 0.07039863663),
        (10, 0.03258284719),
        (14, 0.005873113728),
        (15, 0.003573614792),
        (16, 0.0025),
    ],
)
def test_yarn_without_truncation_matches_golden_values(p: int, expected: float) -> None:
    actual = frequencies(partial(yarn, factor=4, truncate=False))
    assert actual[p].item() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("spectrum", [position_interpolation, ntk, ntk_by_parts, yarn, yarn_paper])
@pytest.mark.parametrize("length", [100, 512, 513, 3000])
def test_a_factor_of_null_is_the_ratio_of_the_lengths(spectrum: Spectrum, length: int) -> None:
    actual = spectrum(64, 512, length, factor=None)  # type: ignore[call-arg]
    expected = spectrum(64, 512, 512, factor=max(1.0, length / 512))  # type: ignore[call-arg]
    assert torch.equal(actual[0], expected[0]) and actual[1] == expected[1]


def test_geometric_spectra_differ_in_their_exponents() -> None:
    """The exponents are 2i/d, i/(d-1) and i/(d/2-1), at d=8 and base 100."""
    kwargs = {"base": 100.0}
    for spectrum, step in ((geometric, 2 / 8), (geometric_d1, 1 / 7), (geometric_t2t, 1 / 3)):
        expected = [math.pow(100.0, -step * i) for i in range(4)]
        assert spectrum(8, 1, 1, **kwargs)[0].tolist() == pytest.approx(expected, rel=1e-12)
        with pytest.raises(ValueError, match="base=0"):
            spectrum(8, 1, 1, base=0.0)
    assert geometric_t2t(8, 1, 1, **kwargs)[0][-1].item() == pytest.approx(1 / 100)


def test_half_truncated_sets_half_of_the_frequencies_to_zero() -> None:
    actual = half_truncated(16, 1, 1)[0].tolist()
    assert actual[:4] == pytest.approx([1, 1024 ** (-1 / 3), 1024 ** (-2 / 3), 1 / 1024])
    assert actual[4:] == [0.0] * 4
    with pytest.raises(ValueError, match="rotary channels, 6, must be a multiple of 4"):
        half_truncated(6, 1, 1)
