"""The kernel that `kernel=auto` chooses and why; errors of kernels requested by name."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.attention import UnsupportedKernelError, flex
from posenc.attention.choice import (
    choose,
    describe_choices,
    kernel_function,
    layer_choices,
)
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cable import Cable
from posenc.encodings.fire import Fire
from posenc.encodings.fox import Fox
from posenc.encodings.interleave import Interleave
from posenc.encodings.kerple import KerpleLog
from posenc.encodings.nope import NoPE
from posenc.encodings.randomized import Randomized
from posenc.encodings.rope import Rope
from posenc.encodings.sandwich import Sandwich
from posenc.encodings.self_extend import SelfExtend
from posenc.encodings.shaw import Shaw
from posenc.encodings.sinks import Sinks
from posenc.encodings.spectra import geometric
from posenc.encodings.stick_breaking import StickBreaking
from posenc.encodings.t5 import T5
from posenc.encodings.window import Window
from posenc.encodings.wrapper import Wrapper

GEOMETRY = Geometry(width=64, heads=4, layers=4, train_length=16)  # flex needs heads of at least 16
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16
Make = Callable[[Geometry], Encoding]
ROPE: Make = partial(Rope, spectrum=geometric)
SELF_EXTEND: Make = partial(SelfExtend, inner=ROPE)


class Undeclared(NoPE):
    """Its bias depends on the position of the query, which its limitations do not declare."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance / (1 + pos_q)


@pytest.mark.parametrize(
    ("make", "cpu_float32", "cpu_bfloat16", "cuda_float32", "cuda_bfloat16"),
    [
        (NoPE, "causal", "causal", "causal", "causal"),
        (ROPE, "causal", "causal", "causal", "causal"),
        (Alibi, "toeplitz", "key_bias", "blocks", "factored"),
        (T5, "toeplitz", "toeplitz", "blocks", "blocks"),
        (KerpleLog, "toeplitz", "toeplitz", "blocks", "blocks"),
        (partial(Window, inner=NoPE, size=7), "toeplitz", "toeplitz", "blocks", "blocks"),
        (Fox, "factored", "factored", "blocks", "factored"),
        (Cable, "factored", "factored", "blocks", "factored"),
        (Fire, "blocks", "blocks", "blocks", "blocks"),
        (Shaw, "blocks", "blocks", "blocks", "blocks"),
        (Undeclared, "blocks", "blocks", "blocks", "blocks"),
        (SELF_EXTEND, "blocks", "blocks", "blocks", "blocks"),
        (StickBreaking, "blocks", "blocks", "blocks", "blocks"),
        (partial(Sinks, inner=NoPE), "toeplitz", "toeplitz", "causal", "causal"),
        (partial(Sinks, inner=Alibi), "toeplitz", "toeplitz", "blocks", "blocks"),
        (partial(Sinks, inner=Fox), "blocks", "blocks", "blocks", "blocks"),
        (partial(Window, inner=NoPE, size=7, start_size=2), "blocks", "blocks", "blocks", "blocks"),
    ],
)
def test_auto_chooses_a_kernel_by_encoding_device_and_dtype(
    make: Make, cpu_float32: str, cpu_bfloat16: str, cuda_float32: str, cuda_bfloat16: str
) -> None:
    encoding = make(GEOMETRY).at_layer(0)
    for device, dtype, expected in [
        (CPU, FLOAT32, cpu_float32),
        (CPU, BFLOAT16, cpu_bfloat16),
        (CUDA, FLOAT32, cuda_float32),
        (CUDA, BFLOAT16, cuda_bfloat16),
    ]:
        assert choose(encoding, device, dtype, encoding.positions(16, CPU)).name == expected


def test_reasons_say_why_other_kernels_were_rejected() -> None:
    reason = choose(Fire(GEOMETRY), CPU, FLOAT32, torch.arange(16)).reason
    reasons = ["causal not used", "toeplitz not used", "query's position", "factored not used"]
    for part in (*reasons, "does not factorize"):
        assert part in reason
    assert "head" in choose(Sandwich(GEOMETRY), CPU, FLOAT32, torch.arange(16) * 2).reason


def test_the_choice_depends_on_positions() -> None:
    """Positions with gaps have no Toeplitz bias; a bias on coordinates has no factors."""
    alibi = Alibi(GEOMETRY)
    assert choose(alibi, CPU, FLOAT32, torch.arange(9)).name == "toeplitz"
    assert choose(alibi, CPU, FLOAT32, torch.arange(9) + 100).name == "toeplitz"
    assert choose(alibi, CPU, FLOAT32, torch.arange(9) * 2).name == "factored"
    assert choose(alibi, CPU, FLOAT32, torch.ones(2, 9, 2)).name == "blocks"
    sandwich = Sandwich(Geometry(width=512, heads=4, layers=1, train_length=16))
    assert choose(sandwich, CPU, FLOAT32, torch.arange(9) * 2).name == "factored"


def test_randomized_distances_have_no_factors() -> None:
    encoding, pos = Randomized(GEOMETRY, inner=Alibi), torch.arange(16) * 2
    assert choose(encoding.at_layer(0), CPU, FLOAT32, pos).name == "factored"
    encoding.embed(torch.zeros(1, 16, 64), pos)
    assert choose(encoding.at_layer(0), CPU, FLOAT32, pos).name == "blocks"


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("causal", Alibi, "overrides bias"),
        ("causal", partial(Window, inner=NoPE, size=7), "has a window"),
        ("causal", SELF_EXTEND, "overrides rotation_index"),
        ("key_bias", Alibi, "only in bfloat16"),
        ("toeplitz", SELF_EXTEND, "overrides rotation_index"),
        ("toeplitz", Fire, "does not depend only on distance"),
        ("toeplitz", Fox, "overrides content_bias"),
        ("toeplitz", Undeclared, "depends on the position of the query"),
        ("factored", T5, "does not factorize"),
        ("factored", partial(Window, inner=Alibi, size=7), "has a window"),
        ("factored", partial(Sinks, inner=Fox), "has a sink"),
        ("toeplitz", partial(Window, inner=NoPE, size=7, start_size=2), "overrides mask"),
        ("flex", Alibi, "CUDA"),
    ],
)
def test_a_kernel_requested_by_name_never_falls_back(name: str, make: Make, reason: str) -> None:
    encoding = make(GEOMETRY)
    q = torch.zeros(1, 4, 16, 16)
    message = f"kernel={name} does not support {type(encoding).__name__}: .*{reason}"
    with pytest.raises(UnsupportedKernelError, match=message):
        kernel_function(name)(encoding, torch.zeros(1, 16, 64), q, q, q, torch.arange(16))
    with pytest.raises(UnsupportedKernelError, match=message):
        layer_choices(name, encoding, CPU, FLOAT32)


def test_toeplitz_does_not_support_positions_with_gaps() -> None:
    q = torch.zeros(1, 4, 9, 16)
    with pytest.raises(UnsupportedKernelError, match="not consecutive"):
        kernel_function("toeplitz")(
            Alibi(GEOMETRY), torch.zeros(1, 9, 64), q, q, q, torch.arange(9) * 2
        )


def test_factored_on_a_gpu_needs_bfloat16() -> None:
    with pytest.raises(UnsupportedKernelError, match="bfloat16"):
        layer_choices("factored", Alibi(GEOMETRY), CUDA, FLOAT32)
    assert layer_choices("factored", Alibi(GEOMETRY), CUDA, BFLOAT16)[0].name == "factored"


def test_auto_detects_an_undeclared_dependence_on_the_query() -> None:
    encoding, pos = Undeclared(GEOMETRY), torch.arange(30)
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 30, 16, generator=generator).double().unbind(0)
    x = torch.zeros(1, 30, 64).double()
    expected = kernel_function("reference")(encoding, x, q, k, v, pos)
    torch.testing.assert_close(kernel_function("auto")(encoding, x, q, k, v, pos), expected)


def test_the_bias_is_computed_once_for_the_choice_and_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    bias = T5.bias

    def counting_bias(self: T5, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        calls.append(distance.shape)
        return bias(self, head, distance, pos_q)

    monkeypatch.setattr(T5, "bias", counting_bias)
    q = torch.zeros(1, 4, 16, 16)
    kernel_function("auto")(T5(GEOMETRY), torch.zeros(1, 16, 64), q, q, q, torch.arange(16))
    assert len(calls) == 1


def test_the_choices_of_all_layers_are_described_in_one_line() -> None:
    hybrid = Interleave(GEOMETRY, first=NoPE, second=Alibi, every=2)
    assert describe_choices(layer_choices("auto", hybrid, CPU, FLOAT32)) == (
        "layers 0, 2: causal (no bias and no window);"
        " layers 1, 3: toeplitz (a bias that depends only on distance, a window, or a sink)"
    )
    assert describe_choices(layer_choices("auto", NoPE(GEOMETRY), CPU, FLOAT32)).startswith(
        "causal ("
    )
    assert describe_choices(layer_choices("blocks", hybrid, CPU, FLOAT32)) == "blocks (requested)"


class SteeperFox(Fox):
    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        return 2 * super().content_bias(x, q, k, distance, pos_q)


class SteeperAround(Wrapper):
    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        bias = super().content_bias(x, q, k, distance, pos_q)
        return None if bias is None else 2 * bias


class SteeperAlibi(Alibi):
    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return 2 * super().bias(head, distance, pos_q)


@pytest.mark.parametrize(
    ("make", "hook"),
    [
        (SteeperFox, "content_bias"),
        (partial(SteeperAround, inner=Fox), "content_bias"),
        (SteeperAlibi, "bias"),
    ],
)
def test_inherited_factors_are_not_used_for_an_overridden_bias(make: Make, hook: str) -> None:
    encoding = make(GEOMETRY).at_layer(0)
    assert choose(encoding, CUDA, BFLOAT16, torch.arange(16)).name == "blocks"
    with pytest.raises(UnsupportedKernelError, match=f"overrides `{hook}`"):
        layer_choices("factored", make(GEOMETRY), CPU, FLOAT32)


def test_flex_does_not_use_the_formula_of_an_overridden_bias() -> None:
    assert not flex.needs_bias_by_distance(Alibi(GEOMETRY))
    assert flex.needs_bias_by_distance(SteeperAlibi(GEOMETRY))
