"""Encodings that modify other encodings, compared with plain computations."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention.choice import kernel_function
from posenc.config.errors import ConfigError
from posenc.encodings.alibi import Alibi
from posenc.encodings.alibi_pi import AlibiPi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cable import Cable
from posenc.encodings.cope import Cope
from posenc.encodings.dape import Dape
from posenc.encodings.drope import Drope
from posenc.encodings.fire import Fire
from posenc.encodings.fox import Fox
from posenc.encodings.graph import Degree
from posenc.encodings.interleave import Interleave
from posenc.encodings.learned import Learned
from posenc.encodings.nope import NoPE
from posenc.encodings.randomized import Randomized
from posenc.encodings.rope import Rope
from posenc.encodings.shaw import Shaw
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import geometric
from posenc.encodings.t5 import T5
from posenc.encodings.temperature import Temperature
from posenc.encodings.transformer_xl import TransformerXL
from posenc.encodings.untied import Untied
from posenc.encodings.window import Window
from posenc.encodings.wrapper import EncodingFactory
from posenc.model.build import build_encoding, build_model

GEOMETRY = Geometry(width=32, heads=4, layers=6, train_length=16)
ROPE: EncodingFactory = partial(Rope, spectrum=geometric)
SINUSOIDAL: EncodingFactory = partial(Sinusoidal, spectrum=geometric)
Configured = Callable[..., DictConfig]
LOG_N = partial(Temperature, rule="log_n")
EvalPositions = Literal["random", "spaced", "arange"]


def random_inputs(length: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 2, 4, length, 8, generator=generator, dtype=torch.float64).unbind(0)
    return torch.randn(2, length, 32, generator=generator, dtype=torch.float64), q, k, v


def attention_output(encoding: Encoding, length: int, name: str = "reference") -> Tensor:
    """Return attention's output in one layer, computed as in the model."""
    x, q, k, v = random_inputs(length)
    pos = encoding.positions(length, x.device)
    x = encoding.embed(x, pos)
    return kernel_function(name)(encoding, x, *encoding.rotate(x, q, k, pos), v, pos)


# Interleave and Untied


@pytest.mark.parametrize("every", [2, 3, 6])
def test_every_nth_layer_has_the_second_encoding(every: int) -> None:
    encoding = Interleave(GEOMETRY, first=ROPE, second=Alibi, every=every)
    classes = [type(encoding.at_layer(index)) for index in range(6)]
    assert classes == [Alibi if index % every == every - 1 else Rope for index in range(6)]


def test_rnope_rotates_in_every_other_layer(
    configured: Configured,
) -> None:
    """The whole model is compared with one that has NoPE in its odd layers."""
    config = configured("encoding=rnope", "model.layers=4")
    model, plain = (build_model(config, 50).double() for _ in range(2))

    class EveryOtherLayer(Rope):
        def at_layer(self, index: int) -> Encoding:
            return self if index % 2 == 0 else NoPE(self.geometry)

    plain.encoding = EveryOtherLayer(model.encoding.geometry, spectrum=geometric)
    tokens = torch.randint(0, 50, (2, 12))
    torch.testing.assert_close(model(tokens), plain(tokens))


@pytest.mark.parametrize(("every", "message"), [(1, "at least 2"), (7, "layers=6 .* without")])
def test_interleave_rejects_an_encoding_without_a_layer(every: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"every={every} .*{message}"):
        Interleave(GEOMETRY, first=ROPE, second=NoPE, every=every)


def test_a_huge_value_of_every_is_rejected_without_using_much_memory() -> None:
    with pytest.raises(ValueError, match=r"every=1000000000000 .* without a layer"):
        Interleave(GEOMETRY, first=ROPE, second=Alibi, every=10**12)


def test_the_last_layer_can_be_the_only_one_with_the_second_encoding() -> None:
    encoding = Interleave(GEOMETRY, first=ROPE, second=Alibi, every=7, last="L")
    assert [type(encoding.at_layer(i)) for i in range(6)] == [Rope] * 5 + [Alibi]


def test_interleave_rejects_two_encodings_without_positions() -> None:
    with pytest.raises(ValueError, match="choice of layers has no effect"):
        Interleave(GEOMETRY, first=NoPE, second=NoPE)


@pytest.mark.parametrize(
    ("pattern", "last", "layers", "expected"),
    [
        ("SSSSSL", None, 6, "SSSSSL"),
        ("SSSSSL", "L", 8, "SSSSSLSL"),
        ("SSSSSL", "L", 4, "SSSL"),
        ("SSL", None, 7, "SSLSSLS"),
        ("SL", "S", 6, "SLSLSS"),
        (["L", "S"], None, 5, "LSLSL"),
    ],
)
def test_a_pattern_is_repeated_over_the_layers(
    pattern: str | list[str], last: Literal["S", "L"] | None, layers: int, expected: str
) -> None:
    geometry = replace(GEOMETRY, layers=layers)
    encoding = Interleave(geometry, first=ROPE, second=Alibi, pattern=pattern, last=last)
    classes = [type(encoding.at_layer(index)) for index in range(layers)]
    assert classes == [Rope if letter == "S" else Alibi for letter in expected]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pattern": "SSSSSSL"}, "pattern=SSSSSSL .* layers=6 .* without a layer"),
        ({"pattern": "SSS"}, "without a layer"),
        ({"pattern": "SSXL"}, "pattern=SSXL .* letters S and L"),
        ({"pattern": ""}, "letters S and L"),
        ({"pattern": "SL", "last": "X"}, "last=X must consist"),
        ({"pattern": "SL", "every": 2}, "every=2 and pattern are mutually exclusive"),
    ],
)
def test_invalid_patterns_are_rejected(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Interleave(GEOMETRY, first=ROPE, second=NoPE, **parameters)


def test_position_embeddings_cannot_differ_by_layer() -> None:
    with pytest.raises(ValueError, match=r"Sinusoidal .* before the first layer"):
        Interleave(GEOMETRY, first=SINUSOIDAL, second=NoPE)
    with pytest.raises(ValueError, match=r"Learned .* before the first layer"):
        Untied(GEOMETRY, inner=Learned)


def test_positions_that_an_encoding_generates_cannot_differ_by_layer() -> None:
    rescaled = partial(AlibiPi, inner=Alibi)
    with pytest.raises(ValueError, match="AlibiPi generates the positions of all layers"):
        Interleave(GEOMETRY, first=rescaled, second=NoPE)
    Interleave(GEOMETRY, first=partial(rescaled, factor=2.0), second=NoPE)


def test_untied_parameters_differ_by_layer() -> None:
    encoding = Untied(GEOMETRY, inner=T5)
    assert sum(p.numel() for p in encoding.parameters()) == 6 * 32 * 4
    first, second = encoding.at_layer(0), encoding.at_layer(1)
    assert isinstance(first, T5) and isinstance(second, T5)
    assert not torch.equal(first.table, second.table)
    with pytest.raises(ValueError, match=r"inner=Rope has no learnable parameters.*such as t5"):
        Untied(GEOMETRY, inner=ROPE)


# Window


@pytest.mark.parametrize("name", ["reference", "auto"])
@pytest.mark.parametrize("inner", [NoPE, ROPE, Alibi])
@pytest.mark.parametrize("size", [1, 5, 40])
def test_a_window_is_a_softmax_over_the_last_keys(
    name: str, inner: EncodingFactory, size: int
) -> None:
    encoding = Window(GEOMETRY, inner=inner, size=size)
    x, q, k, v = random_inputs(20)
    pos = torch.arange(20)
    rotated_q, rotated_k = inner(GEOMETRY).rotate(x, q, k, pos)
    actual = kernel_function(name)(encoding, x, rotated_q, rotated_k, v, pos)
    for h in range(4):
        slope = 2.0 ** (-2 * (h + 1)) if inner is Alibi else 0.0
        for i in range(20):
            first = max(0, i - size + 1)
            scores = rotated_k[:, h, first : i + 1] @ rotated_q[:, h, i, :, None] / math.sqrt(8)
            scores = scores[..., 0] - slope * (i - torch.arange(first, i + 1))
            expected = (scores.softmax(-1)[..., None] * v[:, h, first : i + 1]).sum(1)
            torch.testing.assert_close(actual[:, h, i], expected)


def test_the_smaller_of_two_windows_applies() -> None:
    inner = partial(Window, inner=ROPE, size=4)
    assert Window(GEOMETRY, inner=inner, size=3).window() == 3
    in_even_layers = partial(Interleave, first=inner, second=NoPE)
    encoding = Window(GEOMETRY, inner=in_even_layers, size=9)
    assert [encoding.at_layer(index).window() for index in range(4)] == [4, 9, 4, 9]
    with pytest.raises(ValueError, match="size=0"):
        Window(GEOMETRY, inner=ROPE, size=0)


@pytest.mark.parametrize("size", [4, 9])
def test_a_window_that_is_not_smaller_than_the_inner_one_is_rejected(size: int) -> None:
    with pytest.raises(
        ValueError, match=rf"size={size} has no effect: inner=Window .* of 4 tokens"
    ):
        Window(GEOMETRY, inner=partial(Window, inner=ROPE, size=4), size=size)


# DroPE


def test_drope_is_its_inner_encoding_until_dropped_and_then_nope() -> None:
    encoding = Drope(GEOMETRY, inner=Alibi, dropped_fraction=0.25)
    for fraction, inner in [(0.0, Alibi), (0.75, Alibi), (0.76, NoPE), (1.0, NoPE), (0.5, Alibi)]:
        encoding.set_training_progress(fraction)
        for name in ("reference", "auto"):
            actual = attention_output(encoding.at_layer(3), 16, name)
            torch.testing.assert_close(
                actual, attention_output(inner(GEOMETRY), 16), msg=f"{fraction} {name}"
            )


@pytest.mark.parametrize(
    ("scale", "factor", "expected"),
    [(0.412, 2, 1.285576638), (0.412, 8, 1.856729915), (0.103, 4, 1.142788319)],
)
def test_drope_scales_logits_past_the_training_length_after_dropping(
    scale: float, factor: int, expected: float
) -> None:
    encoding = Drope(GEOMETRY, inner=ROPE, scale=scale)
    x, q, k, _ = random_inputs(16 * factor)
    encoding.set_training_progress(1.0)
    scaled, rotated_k = encoding.rotate(x, q, k, torch.arange(16 * factor))
    torch.testing.assert_close(scaled / q, torch.full_like(q, expected), rtol=1e-8, atol=0)
    assert torch.equal(rotated_k, k)


def test_drope_has_no_maximum_length_once_a_table_of_positions_is_dropped() -> None:
    encoding = Drope(GEOMETRY, inner=Learned)
    assert encoding.max_length() == GEOMETRY.train_length and "any_length" in encoding.limitations
    encoding.set_training_progress(1.0)
    assert encoding.max_length() is None and [*encoding.limitations] == ["prefix_consistent"]
    x = torch.zeros(1, 100, GEOMETRY.width)
    assert torch.equal(encoding.embed(x, torch.arange(100)), x)


def test_drope_rejects_an_inner_encoding_with_nothing_to_drop() -> None:
    with pytest.raises(ValueError, match=r"inner=NoPE .* dropping it has no effect"):
        Drope(GEOMETRY, inner=NoPE)


def test_saved_weights_record_that_the_encoding_was_dropped() -> None:
    trained, loaded = (Drope(GEOMETRY, inner=Fire) for _ in range(2))
    trained.set_training_progress(1.0)
    loaded.load_state_dict(trained.state_dict(), strict=True)
    assert isinstance(loaded.active, Encoding) and not loaded.overrides("bias")


# Randomized positions


def test_draws_are_sorted_distinct_and_uniform() -> None:
    """Compare with the expected minimum, gap and maximum of 40 draws from 2048."""
    geometry = Geometry(width=32, heads=4, layers=1, train_length=40)
    encoding = Randomized(geometry, inner=SINUSOIDAL, max_length=2048)
    torch.manual_seed(0)
    draws = torch.stack([encoding.sampler.draw(40, 0, True, 0) for _ in range(4000)]).double()
    assert (draws.diff() >= 1).all() and draws.min() >= 0 and draws.max() < 2048
    assert draws[:, 0].mean().item() == pytest.approx(48.97561, abs=3)
    assert draws.diff().mean().item() == pytest.approx(49.97561, abs=0.3)
    assert draws[:, -1].mean().item() == pytest.approx(1998.0244, abs=3)


def test_position_embeddings_use_one_draw_for_the_whole_batch() -> None:
    encoding = Randomized(GEOMETRY, inner=SINUSOIDAL, max_length=64)
    embeddings = SINUSOIDAL(GEOMETRY).embed(torch.zeros(1, 64, 32), torch.arange(64))[0]
    draws = set()
    for _ in range(20):
        embedded = encoding.embed(torch.zeros(2, 8, 32), torch.arange(8))
        assert torch.equal(embedded[0], embedded[1])
        rows = (embedded[0][:, None] == embeddings[None]).all(-1).long().argmax(-1)
        assert torch.equal(embeddings[rows], embedded[0]) and (rows.diff() > 0).all()
        draws.add(tuple(rows.tolist()))
    assert len(draws) > 15


def test_rotary_encodings_use_a_new_draw_in_every_layer() -> None:
    encoding = Randomized(GEOMETRY, inner=ROPE, max_length=64)
    x, q, _, _ = random_inputs(8)
    for mode in (True, False):
        encoding.train(mode)
        draws = []
        for layer in range(3):
            rotated_q, rotated_k = encoding.at_layer(layer).rotate(x, q, q, torch.arange(8))
            assert torch.equal(rotated_q, rotated_k)
            draws.append(rotated_q)
        assert not torch.equal(draws[0], draws[1]) and not torch.equal(draws[1], draws[2])


@pytest.mark.parametrize("name", ["reference", "auto"])
def test_distances_become_offsets_of_one_draw_and_stay_toeplitz(name: str) -> None:
    encoding = Randomized(GEOMETRY, inner=Alibi, max_length=64)
    x, q, k, v = random_inputs(8)
    torch.manual_seed(3)
    encoding.embed(x, torch.arange(8))
    assert encoding.sampler.offsets is not None
    offsets = encoding.sampler.offsets.tolist()
    assert offsets[0] == 0 and sorted(set(offsets)) == offsets and offsets != list(range(8))
    actual = kernel_function(name)(encoding.at_layer(1), x, q, k, v, torch.arange(8))
    for h in range(4):
        for i in range(8):
            distances = torch.tensor([offsets[i - j] for j in range(i + 1)])
            scores = (k[:, h, : i + 1] @ q[:, h, i, :, None])[..., 0] / math.sqrt(8)
            weights = (scores - 2.0 ** (-2 * (h + 1)) * distances).softmax(-1)
            torch.testing.assert_close(
                actual[:, h, i], (weights[..., None] * v[:, h, : i + 1]).sum(1)
            )


@pytest.mark.parametrize(
    ("eval_positions", "expected"), [("spaced", [0, 16, 32, 48]), ("arange", [0, 1, 2, 3])]
)
def test_positions_in_evaluation_can_be_spaced_or_arange(
    eval_positions: EvalPositions, expected: list[int]
) -> None:
    encoding = Randomized(
        GEOMETRY, inner=SINUSOIDAL, max_length=64, eval_positions=eval_positions
    ).eval()
    plain = SINUSOIDAL(GEOMETRY)
    x = torch.zeros(1, 4, 32)
    actual = encoding.embed(x, torch.arange(4))
    torch.testing.assert_close(actual, plain.embed(x, torch.tensor(expected)))


def test_evaluation_uses_one_draw_per_length() -> None:
    encoding = Randomized(GEOMETRY, inner=SINUSOIDAL, max_length=64).eval()
    x = torch.zeros(1, 8, 32)
    first = encoding.embed(x, torch.arange(8))
    torch.rand(7)
    assert torch.equal(first, encoding.embed(x, torch.arange(8)))
    assert not torch.equal(first[:, :7], encoding.embed(x[:, :7], torch.arange(7)))


def test_a_range_that_is_too_short_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"max_length=8.*train_length=16"):
        Randomized(GEOMETRY, inner=ROPE, max_length=8)
    with pytest.raises(
        ValueError, match=r"max_length=64 exceeds the 16 positions of inner=Learned"
    ):
        Randomized(GEOMETRY, inner=Learned, max_length=64)
    encoding = Randomized(GEOMETRY, inner=ROPE, max_length=64)
    assert encoding.max_length() == 64
    with pytest.raises(ValueError, match=r"65 positions.*max_length=64"):
        encoding.embed(torch.zeros(1, 65, 32), torch.arange(65))
    assert (
        Randomized(GEOMETRY, inner=ROPE, max_length=64, eval_positions="arange").max_length()
        is None
    )


WRAPPERS = [partial(Window, size=99), LOG_N, partial(Drope, dropped_fraction=0.5)]


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=["window", "log_n", "drope"])
@pytest.mark.parametrize("name", ["reference", "auto"])
def test_a_draw_is_shared_by_the_layers_inside_other_wrappers(
    wrapper: Callable[..., Encoding], name: str
) -> None:
    randomized = partial(Randomized, inner=Alibi, max_length=64)
    plain, outer = randomized(GEOMETRY).eval(), wrapper(GEOMETRY, inner=randomized).eval()
    expected = attention_output(plain.at_layer(2), 16, name)
    torch.testing.assert_close(attention_output(outer.at_layer(2), 16, name), expected)
    assert not torch.allclose(expected, attention_output(Alibi(GEOMETRY), 16, name))
    (x, q, k, v), pos = random_inputs(16), torch.arange(16)
    outer.train().embed(x, pos)
    first, last = (kernel_function(name)(outer.at_layer(i), x, q, k, v, pos) for i in (0, 5))
    assert torch.equal(first, last)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (NoPE, "inner=NoPE does not use positions"),
        (
            partial(Randomized, inner=ROPE, max_length=64),
            "inner=Randomized defines its own positions",
        ),
        (Cope, r"inner=Cope does not use positions \(its content_bias ignores"),
        (Fox, "inner=Fox does not use positions"),
        (partial(Fox, gate="forget"), "inner=Fox does not use positions"),
        (Cable, "inner=Cable does not use positions"),
        (partial(LOG_N, inner=Fox), "inner=Temperature does not use positions"),
        (partial(Window, inner=NoPE, size=4), "inner=Window does not use positions"),
        (Degree, "inner=Degree defines its own positions"),
    ],
)
def test_randomized_rejects_encodings_without_positions_to_replace(
    inner: EncodingFactory, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Randomized(GEOMETRY, inner=inner, max_length=64)
    randomized = partial(Randomized, inner=Alibi, max_length=64)
    for make in (
        partial(Interleave, first=randomized, second=NoPE),
        partial(Untied, inner=randomized),
    ):
        with pytest.raises(ValueError, match=r"Randomized .* before the first layer"):
            make(GEOMETRY)


@pytest.mark.parametrize(
    ("inner", "per_layer"),
    [(partial(Window, inner=T5, size=4), 32 * 4), (TransformerXL, 32 * 32 + 2 * 32)],
)
def test_every_parameter_of_untied_is_used_by_a_layer(
    inner: EncodingFactory, per_layer: int
) -> None:
    encoding = Untied(GEOMETRY, inner=inner)
    used = [p for i in range(6) for p in encoding.at_layer(i).parameters()]
    assert len(list(encoding.parameters())) == len({id(p) for p in used})
    assert sum(p.numel() for p in encoding.parameters()) == 6 * per_layer


@pytest.mark.parametrize(
    "inner", [Cope, Fox, partial(Dape, inner=Alibi), partial(LOG_N, inner=Cable)]
)
def test_untied_rejects_encodings_with_separate_parameters_in_every_layer(
    inner: EncodingFactory,
) -> None:
    with pytest.raises(ValueError, match="already has separate parameters in every layer"):
        Untied(GEOMETRY, inner=inner)
    with pytest.raises(ValueError, match="only one layer"):
        Untied(replace(GEOMETRY, layers=1), inner=T5)


def test_checks_of_the_inner_encoding_do_not_change_random_draws() -> None:
    torch.manual_seed(0)
    tables = [T5(replace(GEOMETRY, layers=1)).table for _ in range(6)]
    after = torch.rand(1)
    torch.manual_seed(0)
    untied = Untied(GEOMETRY, inner=T5)
    assert torch.equal(torch.rand(1), after)
    for index, table in enumerate(tables):
        inner = untied.at_layer(index)
        assert isinstance(inner, T5) and torch.equal(inner.table, table)


@pytest.mark.parametrize("inner", [Alibi, Shaw, TransformerXL, Learned, partial(Dape, inner=Fire)])
def test_randomized_accepts_encodings_that_use_positions(inner: EncodingFactory) -> None:
    Randomized(GEOMETRY, inner=inner, max_length=16)
    interleaved = partial(Interleave, first=Fox, second=inner)
    if inner is not Learned:
        Randomized(GEOMETRY, inner=interleaved, max_length=16)


def test_wrappers_override_no_hook_that_the_inner_encoding_does_not() -> None:
    for make in (
        partial(LOG_N, inner=ROPE),
        partial(Randomized, inner=ROPE),
        partial(Drope, inner=ROPE),
    ):
        encoding = make(GEOMETRY)
        assert not any(encoding.overrides(hook) for hook in ("bias", "content_bias", "value_bias"))
        assert encoding.overrides("rotate")


# From the command line


def test_inner_encodings_and_their_parameters_are_chosen_by_overrides(
    configured: Configured,
) -> None:
    config = configured(
        "encoding=rnope",
        "model.layers=4",
        "encoding@encoding.first=window",
        "encoding@encoding.first.inner=alibi",
        "encoding.first.size=7",
        "encoding@encoding.second=rope",
        "encoding/spectrum@encoding.second.spectrum=yarn",
        "encoding.every=4",
    )
    encoding = build_encoding(config)
    first, second = encoding.at_layer(0), encoding.at_layer(3)
    assert first.window() == 7 and first.overrides("bias") and isinstance(second, Rope)
    with pytest.raises(ConfigError, match=r"encoding.first.siz.*did you mean size"):
        build_encoding(configured("encoding=rnope_swa", "+encoding.first.siz=7"))
