"""Cached generation equals the uncached computation, also beyond the training length."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from compositions import composed, encoding_params
from posenc.check.encoding_under_test import EncodingUnderTest, random_tokens
from posenc.cli.check import SMALL_MODEL
from posenc.config.paths import options
from posenc.encodings.base import Encoding
from posenc.encodings.drope import Drope
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.spectra import geometric
from posenc.model.generation import IncrementalDecoder, cache_unsupported_reason, generate
from posenc.model.transformer import Decoder, Transformer

TRAIN_LENGTH = 24  # of SMALL_MODEL
RECOMPUTED = {
    "alibi_pi",
    "degree",
    "dual_chunk",
    "gpt_oss",
    "olmo3",
    "random_walk",
    "randomized",
    "scaled_integers",
}
LENGTH_DEPENDENT_SPECTRA = {"dynamic_ntk", "dynamic_ntk_hf", "longrope"}


def build(*overrides: str) -> Decoder:
    """Return a float64 model of four layers in evaluation mode."""
    config = composed(*SMALL_MODEL, *overrides)
    config.modules = []
    return EncodingUnderTest(config, "").build_model({})


@torch.no_grad()
def largest_difference(model: Decoder) -> float:
    """Return the largest difference from the uncached logits, for a prompt and up to 4L tokens."""
    length = min(4 * TRAIN_LENGTH, model.encoding.max_length() or 4 * TRAIN_LENGTH)
    tokens, sequence, largest, start = random_tokens(length), IncrementalDecoder(model), 0.0, 0
    ends = {5, 6, TRAIN_LENGTH + 1, TRAIN_LENGTH + 2, length - 1, length}
    for end in sorted(end for end in ends if end <= length):
        logits = sequence.append(tokens[:, start:end])
        expected = model(tokens[:, :end])[:, -1]
        largest = max(largest, (logits - expected).abs().max().item())
        start = end
    return largest


@pytest.mark.parametrize("name", encoding_params())
def test_every_encoding_predicts_the_same_with_and_without_a_cache(name: str) -> None:
    model = build(f"encoding={name}")
    assert (cache_unsupported_reason(model) is not None) == (name in RECOMPUTED)
    assert largest_difference(model) < 1e-9


@pytest.mark.parametrize("name", sorted(options("encoding/spectrum")))
def test_every_spectrum_predicts_the_same_with_and_without_a_cache(name: str) -> None:
    config = composed(*SMALL_MODEL, "encoding=window")
    rope = composed("encoding=rope", f"encoding/spectrum={name}")
    config.encoding.inner.spectrum = rope.encoding.spectrum
    config.modules = []
    model = EncodingUnderTest(config, "").build_model({})
    reason = cache_unsupported_reason(model)
    assert (reason is not None) == (name in LENGTH_DEPENDENT_SPECTRA)
    assert largest_difference(model) < 1e-9


def test_a_cache_would_be_wrong_where_none_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posenc.model.generation.cache_unsupported_reason", lambda encoding: None)
    # In olmo3 only the last layer depends on the length, and no cached value depends on that layer.
    for name in RECOMPUTED - {"olmo3"}:
        assert largest_difference(build(f"encoding={name}")) > 1e-6, name


def test_drope_is_recomputed_after_it_is_dropped() -> None:
    model = build("encoding=drope")
    assert cache_unsupported_reason(model) is None
    model.encoding.set_training_progress(1.0)
    assert "length" in str(cache_unsupported_reason(model))
    assert largest_difference(model) < 1e-9
    restored = build("encoding=drope")
    restored.load_state_dict(model.state_dict())
    assert cache_unsupported_reason(restored) == cache_unsupported_reason(model)


def test_drope_without_scaling_keeps_its_cache_after_it_is_dropped() -> None:
    model = build("encoding=drope", "encoding.scale=0")
    model.encoding.set_training_progress(1.0)
    assert isinstance(model.encoding, Drope) and model.encoding.dropped
    assert cache_unsupported_reason(model) is None
    assert largest_difference(model) < 1e-9


def test_encodings_and_spectra_outside_posenc_are_recomputed() -> None:
    class Mine(Encoding):
        """Defined outside the package."""

    def spectrum(width: int, train_length: int, length: int) -> tuple[torch.Tensor, float]:
        return geometric(width, train_length, length)

    rope = build("encoding=rope").encoding
    assert "Mine is not part of posenc" in str(cache_unsupported_reason(Mine(rope.geometry)))
    frequencies = rope.get_submodule("sinusoids")
    assert isinstance(frequencies, SinusoidalFrequencies)
    frequencies.spectrum = partial(spectrum)
    assert "not part of posenc" in str(cache_unsupported_reason(rope))


def test_a_model_outside_posenc_is_recomputed() -> None:
    class Centered(Transformer):
        """Subtracts the mean of each final hidden state."""

        def hidden_states(self, *args: Any, **kwargs: Any) -> Tensor:
            hidden = super().hidden_states(*args, **kwargs)
            return hidden - hidden.mean(dim=-1, keepdim=True)

    model = build("encoding=alibi")
    model.__class__ = Centered
    with torch.no_grad():
        model.get_parameter("norm.weight").uniform_()
    assert "Centered is not part of posenc" in str(cache_unsupported_reason(model))
    assert largest_difference(model) < 1e-9


def test_the_same_seed_draws_the_same_tokens() -> None:
    model, prompt = build("encoding=rope"), torch.tensor([1, 2, 3])
    draw = partial(generate, model, prompt, 40)
    assert list(draw(1.0, 1)) == list(draw(1.0, 1)) != list(draw(1.0, 2))
    likely = list(draw(0.0, 1))
    assert likely == list(draw(0.0, 2)) == list(draw(1e-6, 3))
    assert likely[0] == model(prompt[None])[0, -1].argmax()


def test_draws_have_the_probabilities_of_the_model() -> None:
    model, prompt = build("encoding=alibi"), torch.tensor([4, 5])
    draws = torch.tensor([next(generate(model, prompt, 1, 0.5, seed)) for seed in range(400)])
    expected = (model(prompt[None])[0, -1] / 0.5).softmax(dim=-1)
    frequency = draws.bincount(minlength=len(expected)) / len(draws)
    assert (frequency - expected).abs().max() < 5 * (0.25 / len(draws)) ** 0.5
