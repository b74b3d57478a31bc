"""Spectra, windows and log-n scaling swapped in at evaluation, with the same weights."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from posenc.attention.choice import kernel_function
from posenc.config.components import build
from posenc.config.paths import conf_dir, options
from posenc.encodings.base import Geometry
from posenc.encodings.rope import Rope
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import (
    Spectrum,
    dynamic_ntk,
    dynamic_ntk_hf,
    geometric,
    longrope,
    ntk,
    ntk_by_parts,
    p_rope,
    position_interpolation,
    yarn,
    yarn_paper,
)
from posenc.encodings.spectra.yarn import yarn_attention_factor
from posenc.model.block import Attention
from posenc.model.build import build_model
from posenc.model.transformer import Transformer, initialize

Configured = Callable[..., DictConfig]
ScaledSpectrum = Callable[..., tuple[Tensor, float]]

LENGTH = 24  # the training length of `configured`
SPECTRA_WITH_FACTOR: list[ScaledSpectrum] = [
    position_interpolation,
    ntk,
    ntk_by_parts,
    yarn,
    yarn_paper,
    longrope,
]
LLAMA3 = partial(ntk_by_parts, beta_slow=1.0, beta_fast=4.0)


@pytest.fixture(scope="module")
def trained() -> Transformer:
    """Return a model whose weights stand in for trained ones."""
    return model_with(Rope)


def model_with(
    make: type[Rope] | type[Sinusoidal], spectrum: Spectrum = geometric, seed: int = 11
) -> Transformer:
    geometry = Geometry(width=32, heads=4, layers=2, train_length=LENGTH)
    encoding = make(geometry, spectrum=spectrum)
    sizes = {"width": 32, "layers": 2, "heads": 4, "feed_forward": 64}
    model = Transformer(50, encoding, kernel_function("auto"), **sizes)
    initialize(model, seed)
    return model.double().eval()


def with_spectrum(model: Transformer, spectrum: Spectrum) -> Transformer:
    """Return the model with another spectrum and the same weights."""
    other = copy.deepcopy(model)
    encoding_class = Rope if isinstance(model.encoding, Rope) else Sinusoidal
    other.encoding = encoding_class(model.encoding.geometry, spectrum=spectrum)
    return other


def tokens(length: int) -> Tensor:
    return torch.randint(0, 50, (2, length), generator=torch.Generator().manual_seed(length))


def difference_of(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("dynamic_ntk", "base=10000"),
        ("dynamic_ntk_hf", "base=10000"),
        ("position_interpolation", "factor=null"),
        ("ntk", "factor=null"),
        ("ntk_by_parts", "factor=null"),
        ("llama3", "factor=null"),
        ("yarn", "factor=null"),
        ("yarn_paper", "factor=null"),
        ("longrope", "factor=null"),
    ],
)
def test_length_dependent_spectra_change_nothing_up_to_the_training_length(
    name: str, parameter: str, trained: Transformer, configured: Configured
) -> None:
    """The weights load strictly into the model with that spectrum."""
    config = configured(
        "encoding=rope", f"encoding/spectrum={name}", f"encoding.spectrum.{parameter}"
    )
    model = build_model(config, 50).double().eval()
    assert difference_of(model(tokens(5)), trained(tokens(5))) > 0.1
    model.load_state_dict(trained.state_dict(), strict=True)
    for length in (1, 3, LENGTH):
        assert difference_of(model(tokens(length)), trained(tokens(length))) < 1e-12
    for length in (LENGTH + 1, 4 * LENGTH):
        assert difference_of(model(tokens(length)), trained(tokens(length))) > 1e-6


@pytest.mark.parametrize("spectrum", [partial(yarn, factor=4.0), partial(longrope, factor=4.0)])
def test_attention_factors_do_not_scale_sinusoidal_embeddings(spectrum: Spectrum) -> None:
    encoding = model_with(Sinusoidal, spectrum).encoding
    assert isinstance(encoding, Sinusoidal)
    embedding = encoding.position_embedding(torch.arange(4 * LENGTH), torch.float64)
    assert embedding.square().mean(-1).sub(0.5).abs().max() < 1e-12


@pytest.mark.parametrize("name", sorted(options("encoding/spectrum")))
def test_every_spectrum_but_geometric_changes_the_output_of_the_same_weights(
    name: str, trained: Transformer
) -> None:
    node = OmegaConf.load(conf_dir() / f"encoding/spectrum/{name}.yaml")
    assert isinstance(node, DictConfig)
    model = model_with(Rope, build(node, name="encoding.spectrum"), seed=3)
    model.load_state_dict(trained.state_dict(), strict=True)
    length_dependent = name in ("dynamic_ntk", "dynamic_ntk_hf")
    for length in (3, LENGTH, 4 * LENGTH):
        difference = difference_of(model(tokens(length)), trained(tokens(length)))
        equal = name == "geometric" or (length_dependent and length <= LENGTH)
        assert difference < 1e-12 if equal else difference > 1e-6, length


def test_trained_frequencies_do_not_load_into_fixed_ones(configured: Configured) -> None:
    """Trained frequencies load into trainable ones of any spectrum."""
    config = configured("encoding=rope", "encoding.trainable=true")
    state = build_model(config, 50).state_dict()
    other = configured("encoding=rope", "encoding.trainable=true", "encoding/spectrum=ntk")
    build_model(other, 50).load_state_dict(state, strict=True)
    fixed = build_model(configured("encoding=rope", "encoding/spectrum=ntk"), 50)
    with pytest.raises(RuntimeError, match=r"encoding\.sinusoids\.offset"):
        fixed.load_state_dict(state, strict=True)


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0, 10.0])
@pytest.mark.parametrize("spectrum", [*SPECTRA_WITH_FACTOR, LLAMA3])
def test_a_factor_of_null_equals_the_ratio_of_the_lengths(
    spectrum: ScaledSpectrum, factor: float, trained: Transformer
) -> None:
    """At T = s L, null equals the factor s; the ratio is never below 1."""
    length = int(factor * LENGTH)
    dynamic = with_spectrum(trained, partial(spectrum, factor=None))
    fixed = with_spectrum(trained, partial(spectrum, factor=factor))
    assert difference_of(dynamic(tokens(length)), fixed(tokens(length))) < 1e-12
    assert difference_of(dynamic(tokens(length - 1)), fixed(tokens(length - 1))) > 1e-9
    assert difference_of(dynamic(tokens(7)), trained(tokens(7))) < 1e-12


@pytest.mark.parametrize("ratio", [1.5, 2.0, 4.0, 10.0])
def test_dynamic_ntk_equals_ntk_with_the_ratio_of_the_lengths(
    ratio: float, trained: Transformer
) -> None:
    """Hugging Face's variant with factor f equals NTK with factor f T / L - (f - 1)."""
    sequence = tokens(int(ratio * LENGTH))
    expected = with_spectrum(trained, partial(ntk, factor=ratio))(sequence)
    assert difference_of(with_spectrum(trained, dynamic_ntk)(sequence), expected) < 1e-12
    assert (
        difference_of(
            with_spectrum(trained, partial(dynamic_ntk_hf, factor=1.0))(sequence), expected
        )
        < 1e-12
    )
    for f in (2.0, 4.0):
        actual = with_spectrum(trained, partial(dynamic_ntk_hf, factor=f))(sequence)
        other = with_spectrum(trained, partial(ntk, factor=f * ratio - (f - 1)))(sequence)
        assert difference_of(actual, other) < 1e-12
        assert difference_of(actual, expected) > 1e-6


@pytest.mark.parametrize("make", [Rope, Sinusoidal])
@pytest.mark.parametrize("factor", [1.5, 2.0, 8.0])
def test_interpolation_by_s_at_position_s_m_equals_the_original_at_m(
    factor: float, make: type[Rope] | type[Sinusoidal]
) -> None:
    model = model_with(make)
    interpolated = with_spectrum(model, partial(position_interpolation, factor=factor))
    pos = torch.arange(LENGTH, dtype=torch.float64)
    assert (
        difference_of(interpolated(tokens(LENGTH), factor * pos), model(tokens(LENGTH), pos)) < 1e-9
    )
    assert (
        difference_of(interpolated(tokens(LENGTH), pos), model(tokens(LENGTH), pos / factor)) < 1e-9
    )
    assert difference_of(interpolated(tokens(LENGTH), pos), model(tokens(LENGTH), pos)) > 1e-3
    other = with_spectrum(model, partial(ntk, factor=factor))
    assert difference_of(other(tokens(LENGTH), factor * pos), model(tokens(LENGTH), pos)) > 1e-3


def test_interpolation_by_the_ratio_of_the_lengths_stays_within_trained_angles(
    trained: Transformer,
) -> None:
    """Interpolation by T / L keeps the angles of T tokens below those of L."""
    actual = with_spectrum(trained, partial(position_interpolation, factor=None))
    pos = torch.arange(10 * LENGTH, dtype=torch.float64)
    expected = trained(tokens(10 * LENGTH), pos / 10)
    assert pos.max() / 10 < LENGTH
    assert difference_of(actual(tokens(10 * LENGTH)), expected) < 1e-9


@pytest.mark.parametrize("factor", [2.0, 16.0])
def test_yarn_is_ntk_by_parts_with_scaled_queries_and_keys(
    factor: float, trained: Transformer
) -> None:
    """Queries and keys are multiplied by 0.1 ln s + 1, so scores are multiplied by its square."""
    actual = with_spectrum(trained, partial(yarn_paper, factor=factor))
    expected = with_spectrum(trained, partial(ntk_by_parts, factor=factor))
    for block in expected.blocks:
        attention = block.attention
        assert isinstance(attention, Attention)
        attention.qkv.weight.data[: 2 * 32] *= yarn_attention_factor(factor)
    assert difference_of(actual(tokens(60)), expected(tokens(60))) < 1e-10
    plain = with_spectrum(trained, partial(ntk_by_parts, factor=factor))
    assert difference_of(actual(tokens(60)), plain(tokens(60))) > 1e-3


def test_the_llama3_yaml_is_ntk_by_parts(trained: Transformer, configured: Configured) -> None:
    llama3 = build_model(configured("encoding=rope", "encoding/spectrum=llama3"), 50).double()
    llama3.load_state_dict(trained.state_dict(), strict=True)
    expected = with_spectrum(trained, partial(LLAMA3, factor=8.0))
    assert torch.equal(llama3(tokens(50)), expected(tokens(50)))


DYNAMIC_SPECTRA: list[Spectrum] = [
    dynamic_ntk,
    dynamic_ntk_hf,
    *(partial(spectrum, factor=None) for spectrum in SPECTRA_WITH_FACTOR),
]


@pytest.mark.parametrize("spectrum", DYNAMIC_SPECTRA)
def test_dynamic_spectra_do_not_depend_on_earlier_lengths(
    spectrum: Spectrum, trained: Transformer
) -> None:
    model = with_spectrum(trained, spectrum)
    short, long = model(tokens(LENGTH)), model(tokens(4 * LENGTH))
    assert torch.equal(model(tokens(LENGTH)), short)
    assert torch.equal(model(tokens(4 * LENGTH)), long)
    fresh = with_spectrum(trained, spectrum)
    assert torch.equal(fresh(tokens(4 * LENGTH)), long)


@pytest.mark.parametrize("spectrum", DYNAMIC_SPECTRA)
def test_dynamic_spectra_depend_on_the_number_of_tokens(
    spectrum: Spectrum, trained: Transformer
) -> None:
    """They ignore positions; past the training length, a new token changes earlier outputs."""
    model = with_spectrum(trained, spectrum)
    pos = torch.arange(LENGTH)
    assert difference_of(model(tokens(LENGTH), pos + 5000), trained(tokens(LENGTH), pos)) < 1e-9
    sequence = tokens(2 * LENGTH)
    pos = torch.arange(2 * LENGTH)
    assert difference_of(model(sequence, pos + 5000), model(sequence)) < 1e-9
    assert difference_of(model(sequence[:, :-1]), model(sequence)[:, :-1]) > 1e-9
    assert difference_of(trained(sequence[:, :-1]), trained(sequence)[:, :-1]) < 1e-12


@pytest.mark.parametrize(
    ("wrapper", "changes"),
    [
        ("log_n", slice(LENGTH, None)),  # only queries past the training length
        ("window", slice(10, None)),  # only queries that no longer see the first token
    ],
)
def test_log_n_and_windows_load_the_same_weights(
    wrapper: str, changes: slice, trained: Transformer, configured: Configured
) -> None:
    size = ["encoding.size=10"] if wrapper == "window" else []
    model = build_model(configured(f"encoding={wrapper}", *size), 50).double().eval()
    model.load_state_dict(trained.state_dict(), strict=True)
    sequence = tokens(3 * LENGTH)
    differences = (model(sequence) - trained(sequence)).abs().amax(dim=(0, 2))
    assert (differences[: changes.start] < 1e-12).all()
    assert (differences[changes] > 1e-6).all()


def test_each_fraction_of_p_rope_changes_the_output_of_the_same_weights(
    trained: Transformer,
) -> None:
    """With four pairs per head, the fraction takes four steps from NoPE to RoPE."""
    truncated = [
        with_spectrum(trained, partial(p_rope, fraction=fraction))
        for fraction in (0, 0.25, 0.5, 0.75)
    ]
    outputs = [model(tokens(LENGTH)) for model in [*truncated, with_spectrum(trained, geometric)]]
    for fewer, more in pairwise(outputs):
        assert difference_of(fewer, more) > 1e-4
    assert torch.equal(outputs[-1], trained(tokens(LENGTH)))
