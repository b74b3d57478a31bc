"""What encodings around encodings do, against plain computations."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention import kernel
from posenc.config.errors import ConfigError
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cope import Cope
from posenc.encodings.drope import Drope
from posenc.encodings.fire import Fire
from posenc.encodings.interleave import Interleave
from posenc.encodings.learned import Learned
from posenc.encodings.log_n import LogN
from posenc.encodings.nope import NoPE
from posenc.encodings.randomized import Randomized
from posenc.encodings.rope import Rope
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import geometric
from posenc.encodings.structure import Degree
from posenc.encodings.t5 import T5
from posenc.encodings.untied import Untied
from posenc.encodings.window import Window
from posenc.encodings.wrapper import Inner
from posenc.model.build import build_encoding, build_model

GEOMETRY = Geometry(width=32, heads=4, layers=6, train_length=16)
ROPE: Inner = partial(Rope, spectrum=geometric)
SINUSOIDAL: Inner = partial(Sinusoidal, spectrum=geometric)
Configured = Callable[..., DictConfig]
AtEvaluation = Literal["random", "spaced", "arange"]


def drawn(length: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 2, 4, length, 8, generator=generator, dtype=torch.float64).unbind(0)
    return torch.randn(2, length, 32, generator=generator, dtype=torch.float64), q, k, v


def attended(encoding: Encoding, length: int, name: str = "reference") -> Tensor:
    """Attention's output in one layer, as the host computes it."""
    x, q, k, v = drawn(length)
    pos = encoding.positions(length, x.device)
    x = encoding.embed(x, pos)
    return kernel(name)(encoding, x, *encoding.rotate(x, q, k, pos), v, pos)


# Interleave and Untied


@pytest.mark.parametrize("every", [2, 3, 6])
def test_the_last_of_every_few_layers_has_the_second(every: int) -> None:
    encoding = Interleave(GEOMETRY, first=ROPE, second=Alibi, every=every)
    kinds = [type(encoding.at_layer(index)) for index in range(6)]
    assert kinds == [Alibi if index % every == every - 1 else Rope for index in range(6)]


def test_a_model_of_rope_and_none_in_turn_rotates_in_every_other_layer(
    configured: Configured,
) -> None:
    """The whole model against one whose odd layers see the position 0 alone."""
    config = configured("encoding=rnope", "model.layers=4")
    model, plain = (build_model(config, 50).double() for _ in range(2))

    class Standing(Rope):
        def at_layer(self, index: int) -> Encoding:
            return self if index % 2 == 0 else NoPE(self.geometry)

    plain.encoding = Standing(model.encoding.geometry, spectrum=geometric)
    tokens = torch.randint(0, 50, (2, 12))
    torch.testing.assert_close(model(tokens), plain(tokens))


@pytest.mark.parametrize("every", [1, 7])
def test_an_encoding_without_a_layer_is_refused(every: int) -> None:
    with pytest.raises(ValueError, match=f"every={every} of 6 layers.*2 to 6"):
        Interleave(GEOMETRY, first=ROPE, second=NoPE, every=every)


def test_what_adds_to_the_stream_cannot_vary_by_layer() -> None:
    with pytest.raises(ValueError, match="Sinusoidal acts before the first layer"):
        Interleave(GEOMETRY, first=SINUSOIDAL, second=NoPE)
    with pytest.raises(ValueError, match="Learned acts before the first layer"):
        Untied(GEOMETRY, inner=Learned)


def test_untied_weights_differ_by_layer() -> None:
    encoding = Untied(GEOMETRY, inner=T5)
    assert sum(p.numel() for p in encoding.parameters()) == 6 * 32 * 4
    first, second = encoding.at_layer(0), encoding.at_layer(1)
    assert isinstance(first, T5) and isinstance(second, T5)
    assert not torch.equal(first.table, second.table)
    with pytest.raises(ValueError, match=r"inner=Rope has no weights.*such as t5"):
        Untied(GEOMETRY, inner=ROPE)


# Window


@pytest.mark.parametrize("name", ["reference", "sdpa"])
@pytest.mark.parametrize("inner", [NoPE, ROPE, Alibi])
@pytest.mark.parametrize("size", [1, 5, 40])
def test_a_window_is_a_softmax_over_the_last_keys(name: str, inner: Inner, size: int) -> None:
    encoding = Window(GEOMETRY, inner=inner, size=size)
    x, q, k, v = drawn(20)
    pos = torch.arange(20)
    turned_q, turned_k = inner(GEOMETRY).rotate(x, q, k, pos)
    found = kernel(name)(encoding, x, turned_q, turned_k, v, pos)
    for h in range(4):
        slope = 2.0 ** (-2 * (h + 1)) if inner is Alibi else 0.0
        for i in range(20):
            first = max(0, i - size + 1)
            scores = turned_k[:, h, first : i + 1] @ turned_q[:, h, i, :, None] / math.sqrt(8)
            scores = scores[..., 0] - slope * (i - torch.arange(first, i + 1))
            wanted = (scores.softmax(-1)[..., None] * v[:, h, first : i + 1]).sum(1)
            torch.testing.assert_close(found[:, h, i], wanted)


def test_the_smaller_of_two_windows_counts() -> None:
    inner = partial(Window, inner=ROPE, size=4)
    assert Window(GEOMETRY, inner=inner, size=9).window() == 4
    assert Window(GEOMETRY, inner=inner, size=3).window() == 3
    with pytest.raises(ValueError, match="size=0"):
        Window(GEOMETRY, inner=ROPE, size=0)


# Log-n


@pytest.mark.parametrize(
    ("position", "wanted"),
    [
        (1, 1.0),
        (512, 1.0),
        (513, 1.00031278),
        (1024, 1.111111111),
        (2048, 1.222222222),
        (4096, 1.333333333),
    ],
)
def test_log_n_golden_values(position: int, wanted: float) -> None:
    geometry = Geometry(width=4, heads=1, layers=1, train_length=512)
    q = torch.ones(1, 1, 4096, 4, dtype=torch.float64)
    scaled, k = LogN(geometry, inner=NoPE).rotate(q[:, 0], q, q, torch.arange(4096))
    assert scaled[0, 0, position - 1].tolist() == pytest.approx([wanted] * 4, rel=1e-8)
    assert torch.equal(k, q)


# DroPE


def test_drope_is_its_inner_encoding_and_then_none() -> None:
    encoding = Drope(GEOMETRY, inner=Alibi, dropped=0.25)
    for share, inner in [(0.0, Alibi), (0.75, Alibi), (0.76, NoPE), (1.0, NoPE), (0.5, Alibi)]:
        encoding.set_training_progress(share)
        for name in ("reference", "sdpa"):
            found = attended(encoding.at_layer(3), 16, name)
            torch.testing.assert_close(found, attended(inner(GEOMETRY), 16), msg=f"{share} {name}")


@pytest.mark.parametrize(
    ("scale", "factor", "wanted"),
    [(0.412, 2, 1.285576638), (0.412, 8, 1.856729915), (0.103, 4, 1.142788319)],
)
def test_drope_scales_logits_past_the_training_length_once_dropped(
    scale: float, factor: int, wanted: float
) -> None:
    encoding = Drope(GEOMETRY, inner=ROPE, scale=scale)
    x, q, k, _ = drawn(16 * factor)
    encoding.set_training_progress(1.0)
    scaled, same = encoding.rotate(x, q, k, torch.arange(16 * factor))
    torch.testing.assert_close(scaled / q, torch.full_like(q, wanted), rtol=1e-8, atol=0)
    assert torch.equal(same, k)


def test_what_was_dropped_stays_dropped_in_saved_weights() -> None:
    trained, loaded = (Drope(GEOMETRY, inner=Fire) for _ in range(2))
    trained.set_training_progress(1.0)
    loaded.load_state_dict(trained.state_dict(), strict=True)
    assert isinstance(loaded.here, Encoding) and not loaded.overrides("bias")


# Randomized positions


def test_draws_are_sorted_distinct_and_uniform() -> None:
    """The expected smallest, gap and largest of 40 of 2048 (formulas.md, section 7)."""
    geometry = Geometry(width=32, heads=4, layers=1, train_length=40)
    encoding = Randomized(geometry, inner=SINUSOIDAL, longest=2048)
    torch.manual_seed(0)
    draws = torch.stack([encoding.draws.chosen(40, 0, True, 0) for _ in range(4000)]).double()
    assert (draws.diff() >= 1).all() and draws.min() >= 0 and draws.max() < 2048
    assert draws[:, 0].mean().item() == pytest.approx(48.97561, abs=3)
    assert draws.diff().mean().item() == pytest.approx(49.97561, abs=0.3)
    assert draws[:, -1].mean().item() == pytest.approx(1998.0244, abs=3)


def test_the_stream_gets_codes_of_one_draw_for_the_whole_batch() -> None:
    encoding = Randomized(GEOMETRY, inner=SINUSOIDAL, longest=64)
    codes = SINUSOIDAL(GEOMETRY).embed(torch.zeros(1, 64, 32), torch.arange(64))[0]
    seen = set()
    for _ in range(20):
        added = encoding.embed(torch.zeros(2, 8, 32), torch.arange(8))
        assert torch.equal(added[0], added[1])
        rows = (added[0][:, None] == codes[None]).all(-1).long().argmax(-1)
        assert torch.equal(codes[rows], added[0]) and (rows.diff() > 0).all()
        seen.add(tuple(rows.tolist()))
    assert len(seen) > 15


def test_a_rotation_gets_a_draw_of_its_own_in_every_layer() -> None:
    encoding = Randomized(GEOMETRY, inner=ROPE, longest=64)
    x, q, _, _ = drawn(8)
    for mode in (True, False):
        encoding.train(mode)
        draws = []
        for layer in range(3):
            turned_q, turned_k = encoding.at_layer(layer).rotate(x, q, q, torch.arange(8))
            assert torch.equal(turned_q, turned_k)
            draws.append(turned_q)
        assert not torch.equal(draws[0], draws[1]) and not torch.equal(draws[1], draws[2])


@pytest.mark.parametrize("name", ["reference", "sdpa"])
def test_distances_become_offsets_of_one_draw_and_stay_toeplitz(name: str) -> None:
    encoding = Randomized(GEOMETRY, inner=Alibi, longest=64)
    x, q, k, v = drawn(8)
    torch.manual_seed(3)
    encoding.embed(x, torch.arange(8))
    assert encoding.draws.offsets is not None
    offsets = encoding.draws.offsets.tolist()
    assert offsets[0] == 0 and sorted(set(offsets)) == offsets and offsets != list(range(8))
    found = kernel(name)(encoding.at_layer(1), x, q, k, v, torch.arange(8))
    for h in range(4):
        for i in range(8):
            back = torch.tensor([offsets[i - j] for j in range(i + 1)])
            scores = (k[:, h, : i + 1] @ q[:, h, i, :, None])[..., 0] / math.sqrt(8)
            weights = (scores - 2.0 ** (-2 * (h + 1)) * back).softmax(-1)
            torch.testing.assert_close(
                found[:, h, i], (weights[..., None] * v[:, h, : i + 1]).sum(1)
            )


@pytest.mark.parametrize(
    ("evaluation", "wanted"), [("spaced", [0, 16, 32, 48]), ("arange", [0, 1, 2, 3])]
)
def test_at_evaluation_positions_can_be_spaced_or_plain(
    evaluation: AtEvaluation, wanted: list[int]
) -> None:
    encoding = Randomized(GEOMETRY, inner=SINUSOIDAL, longest=64, evaluation=evaluation).eval()
    plain = SINUSOIDAL(GEOMETRY)
    x = torch.zeros(1, 4, 32)
    found = encoding.embed(x, torch.arange(4))
    torch.testing.assert_close(found, plain.embed(x, torch.tensor(wanted)))


def test_at_evaluation_one_draw_stands_for_a_length() -> None:
    encoding = Randomized(GEOMETRY, inner=SINUSOIDAL, longest=64).eval()
    x = torch.zeros(1, 8, 32)
    first = encoding.embed(x, torch.arange(8))
    torch.rand(7)
    assert torch.equal(first, encoding.embed(x, torch.arange(8)))
    assert not torch.equal(first[:, :7], encoding.embed(x[:, :7], torch.arange(7)))


def test_a_range_too_short_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"longest=8.*train_length=16"):
        Randomized(GEOMETRY, inner=ROPE, longest=8)
    with pytest.raises(ValueError, match=r"longest=64 is past the 16 positions of inner=Learned"):
        Randomized(GEOMETRY, inner=Learned, longest=64)
    encoding = Randomized(GEOMETRY, inner=ROPE, longest=64)
    assert encoding.max_length() == 64
    with pytest.raises(ValueError, match=r"65 positions.*longest=64"):
        encoding.embed(torch.zeros(1, 65, 32), torch.arange(65))
    assert Randomized(GEOMETRY, inner=ROPE, longest=64, evaluation="arange").max_length() is None


AROUND = [partial(Window, size=99), LogN, partial(Drope, dropped=0.5)]


@pytest.mark.parametrize("around", AROUND, ids=["window", "log_n", "drope"])
@pytest.mark.parametrize("name", ["reference", "sdpa"])
def test_a_draw_reaches_every_layer_through_other_wrappers(
    around: Callable[..., Encoding], name: str
) -> None:
    randomized = partial(Randomized, inner=Alibi, longest=64)
    plain, outer = randomized(GEOMETRY).eval(), around(GEOMETRY, inner=randomized).eval()
    wanted = attended(plain.at_layer(2), 16, name)
    x = drawn(16)[0]
    for encoding in (plain, outer):
        encoding.embed(x, torch.arange(16))
    torch.testing.assert_close(attended(outer.at_layer(2), 16, name), wanted)
    assert not torch.allclose(wanted, attended(Alibi(GEOMETRY), 16, name))


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (NoPE, "inner=NoPE has no positions to draw"),
        (partial(Randomized, inner=ROPE, longest=64), "inner=Randomized has positions of its own"),
        (Degree, "inner=Degree has positions of its own"),
    ],
)
def test_what_has_nothing_to_randomize_is_refused(inner: Inner, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Randomized(GEOMETRY, inner=inner, longest=64)
    inside = partial(Randomized, inner=Alibi, longest=64)
    for make in (partial(Interleave, first=inside, second=NoPE), partial(Untied, inner=inside)):
        with pytest.raises(ValueError, match="Randomized acts before the first layer"):
            make(GEOMETRY)


def test_untied_makes_no_weights_that_nothing_uses() -> None:
    for inner in (Cope, partial(Untied, inner=T5)):
        encoding = Untied(GEOMETRY, inner=inner)
        used = [p for i in range(6) for p in encoding.at_layer(i).parameters()]
        assert len(list(encoding.parameters())) == len({id(p) for p in used}) == 6
        assert sum(p.numel() for p in encoding.parameters()) == 6 * (
            8 * 64 if inner is Cope else 32 * 4
        )


def test_fast_kernels_are_not_lost_to_a_wrapper() -> None:
    for make in (
        partial(LogN, inner=ROPE),
        partial(Randomized, inner=ROPE),
        partial(Drope, inner=ROPE),
    ):
        encoding = make(GEOMETRY)
        assert not any(encoding.overrides(hook) for hook in ("bias", "content_bias", "value_bias"))
        assert encoding.overrides("rotate")


# From the command line


def test_inner_encodings_and_their_knobs_are_chosen_by_override(configured: Configured) -> None:
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
    encoding = build_encoding(config, [])
    first, second = encoding.at_layer(0), encoding.at_layer(3)
    assert first.window() == 7 and first.overrides("bias") and isinstance(second, Rope)
    with pytest.raises(ConfigError, match=r"encoding.first.siz.*nearest: size"):
        build_encoding(configured("encoding=rnope_swa", "+encoding.first.siz=7"), [])
