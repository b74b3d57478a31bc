"""The length-dependent part exchanged at evaluation only, on the same weights."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from posenc.attention import kernel
from posenc.config.components import build
from posenc.config.paths import conf_dir, options
from posenc.encodings.base import Geometry
from posenc.encodings.rope import Rope
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import (
    Spectrum,
    by_parts,
    dynamic_ntk,
    dynamic_ntk_hf,
    geometric,
    highest,
    interpolated,
    longrope,
    ntk,
    yarn,
    yarn_paper,
)
from posenc.encodings.spectra.yarn import temperature
from posenc.model.build import build_model
from posenc.model.layers import Attention
from posenc.model.transformer import Transformer, initialise

Configured = Callable[..., DictConfig]
Scaled = Callable[..., tuple[Tensor, float]]

LENGTH = 24  # of training, in `configured`
FACTORS: list[Scaled] = [interpolated, ntk, by_parts, yarn, yarn_paper, longrope]
LLAMA3 = partial(by_parts, slow=1.0, fast=4.0)


@pytest.fixture(scope="module")
def trained() -> Transformer:
    """A model as of `configured`, which stands for a trained one; others start elsewhere."""
    return of_encoding(Rope)


def of_encoding(
    make: type[Rope] | type[Sinusoidal], spectrum: Spectrum = geometric, seed: int = 11
) -> Transformer:
    geometry = Geometry(width=32, heads=4, layers=2, train_length=LENGTH)
    encoding = make(geometry, spectrum=spectrum)
    sizes = {"width": 32, "layers": 2, "heads": 4, "feed_forward": 64}
    model = Transformer(50, encoding, kernel("sdpa"), **sizes)
    initialise(model, seed)
    return model.double().eval()


def exchanged(model: Transformer, spectrum: Spectrum) -> Transformer:
    """The same weights with another spectrum."""
    other = copy.deepcopy(model)
    kind = Rope if isinstance(model.encoding, Rope) else Sinusoidal
    other.encoding = kind(model.encoding.geometry, spectrum=spectrum)
    return other


def tokens(length: int) -> Tensor:
    return torch.randint(0, 50, (2, length), generator=torch.Generator().manual_seed(length))


def apart(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


@pytest.mark.parametrize(
    ("name", "knob"),
    [
        ("dynamic_ntk", "base=10000"),
        ("dynamic_ntk_hf", "base=10000"),
        ("interpolated", "factor=null"),
        ("ntk", "factor=null"),
        ("by_parts", "factor=null"),
        ("llama3", "factor=null"),
        ("yarn", "factor=null"),
        ("yarn_paper", "factor=null"),
        ("longrope", "factor=null"),
    ],
)
def test_what_goes_by_the_length_changes_nothing_up_to_that_of_training(
    name: str, knob: str, trained: Transformer, configured: Configured
) -> None:
    """The weights load strictly into the model of that configuration."""
    config = configured("encoding=rope", f"encoding/spectrum={name}", f"encoding.spectrum.{knob}")
    model = build_model(config, 50).double().eval()
    assert apart(model(tokens(5)), trained(tokens(5))) > 0.1
    model.load_state_dict(trained.state_dict(), strict=True)
    for length in (1, 3, LENGTH):
        assert apart(model(tokens(length)), trained(tokens(length))) < 1e-12
    for length in (LENGTH + 1, 4 * LENGTH):
        assert apart(model(tokens(length)), trained(tokens(length))) > 1e-6


@pytest.mark.parametrize("name", sorted(options("encoding/spectrum")))
def test_every_other_spectrum_changes_the_output_of_the_same_weights(
    name: str, trained: Transformer
) -> None:
    node = OmegaConf.load(conf_dir() / f"encoding/spectrum/{name}.yaml")
    assert isinstance(node, DictConfig)
    model = of_encoding(Rope, build(node, name="encoding.spectrum"), seed=3)
    model.load_state_dict(trained.state_dict(), strict=True)
    by_length = name in ("dynamic_ntk", "dynamic_ntk_hf")
    for length in (3, LENGTH, 4 * LENGTH):
        difference = apart(model(tokens(length)), trained(tokens(length)))
        equal = name == "geometric" or (by_length and length <= LENGTH)
        assert difference < 1e-12 if equal else difference > 1e-6, length


def test_what_was_trained_besides_is_missed_by_name(configured: Configured) -> None:
    """Trained frequencies load into trained ones of any spectrum, and into no fixed ones."""
    config = configured("encoding=rope", "encoding.trainable=true")
    state = build_model(config, 50).state_dict()
    other = configured("encoding=rope", "encoding.trainable=true", "encoding/spectrum=ntk")
    build_model(other, 50).load_state_dict(state, strict=True)
    fixed = build_model(configured("encoding=rope", "encoding/spectrum=ntk"), 50)
    with pytest.raises(RuntimeError, match=r"encoding\.waves\.offset"):
        fixed.load_state_dict(state, strict=True)


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0, 10.0])
@pytest.mark.parametrize("spectrum", [*FACTORS, LLAMA3])
def test_a_factor_of_the_length_is_that_factor(
    spectrum: Scaled, factor: float, trained: Transformer
) -> None:
    """At T = s L, and at any shorter length 1 at least."""
    length = int(factor * LENGTH)
    dynamic = exchanged(trained, partial(spectrum, factor=None))
    told = exchanged(trained, partial(spectrum, factor=factor))
    assert apart(dynamic(tokens(length)), told(tokens(length))) < 1e-12
    assert apart(dynamic(tokens(length - 1)), told(tokens(length - 1))) > 1e-9
    assert apart(dynamic(tokens(7)), trained(tokens(7))) < 1e-12


@pytest.mark.parametrize("times", [1.5, 2.0, 4.0, 10.0])
def test_dynamic_ntk_is_ntk_with_the_factor_of_the_length(
    times: float, trained: Transformer
) -> None:
    """Hugging Face's, for its own factor f, is NTK with f T / L - (f - 1)."""
    sequence = tokens(int(times * LENGTH))
    wanted = exchanged(trained, partial(ntk, factor=times))(sequence)
    assert apart(exchanged(trained, dynamic_ntk)(sequence), wanted) < 1e-12
    assert apart(exchanged(trained, partial(dynamic_ntk_hf, factor=1.0))(sequence), wanted) < 1e-12
    for f in (2.0, 4.0):
        found = exchanged(trained, partial(dynamic_ntk_hf, factor=f))(sequence)
        other = exchanged(trained, partial(ntk, factor=f * times - (f - 1)))(sequence)
        assert apart(found, other) < 1e-12
        assert apart(found, wanted) > 1e-6


@pytest.mark.parametrize("make", [Rope, Sinusoidal])
@pytest.mark.parametrize("factor", [1.5, 2.0, 8.0])
def test_interpolation_by_s_stands_at_m_where_s_m_is(
    factor: float, make: type[Rope] | type[Sinusoidal]
) -> None:
    model = of_encoding(make)
    slowed = exchanged(model, partial(interpolated, factor=factor))
    pos = torch.arange(LENGTH, dtype=torch.float64)
    assert apart(slowed(tokens(LENGTH), factor * pos), model(tokens(LENGTH), pos)) < 1e-9
    assert apart(slowed(tokens(LENGTH), pos), model(tokens(LENGTH), pos / factor)) < 1e-9
    assert apart(slowed(tokens(LENGTH), pos), model(tokens(LENGTH), pos)) > 1e-3
    other = exchanged(model, partial(ntk, factor=factor))
    assert apart(other(tokens(LENGTH), factor * pos), model(tokens(LENGTH), pos)) > 1e-3


def test_far_extrapolation_interpolated_by_the_length_stays_within_it(
    trained: Transformer,
) -> None:
    """Interpolation by T / L leaves the angles of T tokens below those of L."""
    found = exchanged(trained, partial(interpolated, factor=None))
    pos = torch.arange(10 * LENGTH, dtype=torch.float64)
    within = trained(tokens(10 * LENGTH), pos / 10)
    assert pos.max() / 10 < LENGTH
    assert apart(found(tokens(10 * LENGTH)), within) < 1e-9


@pytest.mark.parametrize("factor", [2.0, 16.0])
def test_yarn_is_by_parts_with_longer_queries_and_keys(factor: float, trained: Transformer) -> None:
    """0.1 ln s + 1 on each of them: its square on the scores, and nothing else."""
    found = exchanged(trained, partial(yarn_paper, factor=factor))
    wanted = exchanged(trained, partial(by_parts, factor=factor))
    for block in wanted.blocks:
        attention = block.attention
        assert isinstance(attention, Attention)
        attention.qkv.weight.data[: 2 * 32] *= temperature(factor)
    assert apart(found(tokens(60)), wanted(tokens(60))) < 1e-10
    plain = exchanged(trained, partial(by_parts, factor=factor))
    assert apart(found(tokens(60)), plain(tokens(60))) > 1e-3


def test_llama3_by_name_is_by_parts(trained: Transformer, configured: Configured) -> None:
    named = build_model(configured("encoding=rope", "encoding/spectrum=llama3"), 50).double()
    named.load_state_dict(trained.state_dict(), strict=True)
    wanted = exchanged(trained, partial(LLAMA3, factor=8.0))
    assert torch.equal(named(tokens(50)), wanted(tokens(50)))


DYNAMIC: list[Spectrum] = [
    dynamic_ntk,
    dynamic_ntk_hf,
    *(partial(spectrum, factor=None) for spectrum in FACTORS),
]


@pytest.mark.parametrize("spectrum", DYNAMIC)
def test_dynamic_spectra_keep_no_memory_of_other_lengths(
    spectrum: Spectrum, trained: Transformer
) -> None:
    model = exchanged(trained, spectrum)
    short, long = model(tokens(LENGTH)), model(tokens(4 * LENGTH))
    assert torch.equal(model(tokens(LENGTH)), short)
    assert torch.equal(model(tokens(4 * LENGTH)), long)
    again = exchanged(trained, spectrum)
    assert torch.equal(again(tokens(4 * LENGTH)), long)


@pytest.mark.parametrize("spectrum", DYNAMIC)
def test_dynamic_spectra_look_at_how_many_tokens_there_are(
    spectrum: Spectrum, trained: Transformer
) -> None:
    """Not at where they stand; and past the training length each new token moves all before."""
    model = exchanged(trained, spectrum)
    pos = torch.arange(LENGTH)
    assert apart(model(tokens(LENGTH), pos + 5000), trained(tokens(LENGTH), pos)) < 1e-9
    sequence = tokens(2 * LENGTH)
    pos = torch.arange(2 * LENGTH)
    assert apart(model(sequence, pos + 5000), model(sequence)) < 1e-9
    assert apart(model(sequence[:, :-1]), model(sequence)[:, :-1]) > 1e-9
    assert apart(trained(sequence[:, :-1]), trained(sequence)[:, :-1]) < 1e-12


@pytest.mark.parametrize(
    ("wrapper", "changes"),
    [
        ("log_n", slice(LENGTH, None)),  # a query past the training length, and no other
        ("window", slice(10, None)),  # a query that no longer sees the first token
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


def test_p_rope_at_evaluation_drops_the_lowest_of_the_same_weights(trained: Transformer) -> None:
    """Four pairs a head: as many steps from RoPE to none, by the frequencies left."""
    shares = [exchanged(trained, partial(highest, share=share)) for share in (0, 0.25, 0.5, 0.75)]
    outs = [model(tokens(LENGTH)) for model in [*shares, exchanged(trained, geometric)]]
    for fewer, more in pairwise(outs):
        assert apart(fewer, more) > 1e-4
    assert torch.equal(outs[-1], trained(tokens(LENGTH)))
