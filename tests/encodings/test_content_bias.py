"""Content-dependent encodings, compared with the papers' formulas and with golden values."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention import reference
from posenc.attention.choice import attend
from posenc.config.errors import ConfigError
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Factors, Geometry, PerLayer
from posenc.encodings.cable import Cable
from posenc.encodings.cope import Cope
from posenc.encodings.dape import Dape
from posenc.encodings.fire import Fire
from posenc.encodings.fox import Fox, FoxFixed
from posenc.encodings.kerple import KerpleLog, KerplePower
from posenc.encodings.learned import Learned
from posenc.encodings.nope import NoPE
from posenc.encodings.t5 import T5
from posenc.model.build import build_encoding

Gate = Literal["keep", "forget"]
Inputs = tuple[Tensor, Tensor, Tensor]
Product = Callable[[Factors], Tensor]
PairScore = Callable[[int, int, int], Tensor]
GATE_LOGITS = [0.3, -1.2, 2.0, 0.5, -0.1]
LAYER, LAYERS = 1, 3


def geometry(heads: int = 4, head_dim: int = 8, layers: int = LAYERS) -> Geometry:
    return Geometry(width=heads * head_dim, heads=heads, layers=layers, train_length=32)


def random_inputs(shape: Geometry, length: int, batch: int = 2) -> Inputs:
    """Return random x, q and k of a layer in float64."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(batch, length, shape.width, generator=generator, dtype=torch.float64)
    size = (2, batch, shape.heads, length, shape.head_dim)
    q, k = torch.randn(size, generator=generator, dtype=torch.float64).unbind(0)
    return x, q, k


def perturbed(encoding: Encoding) -> Encoding:
    """Return the encoding in float64, with noise added to its parameters."""
    generator = torch.Generator().manual_seed(11)
    std = 0.3 * (32 / encoding.geometry.width) ** 0.5
    with torch.no_grad():
        for p in encoding.parameters():
            p += std * torch.randn(p.shape, generator=generator)
    return encoding.double()


def content_bias_of(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the content bias [B, H, R, K] of the middle layer; q has the last R of k's K rows."""
    pos = torch.arange(k.shape[2])
    pos_q = pos[-q.shape[2] :, None]
    dtype = torch.promote_types(q.dtype, torch.float32)
    actual = encoding.at_layer(LAYER).content_bias(x, q, k, (pos_q - pos).to(dtype), pos_q)
    assert actual is not None and actual.dtype == dtype
    assert actual.shape == (*q.shape[:3], k.shape[2]) and actual.isfinite().all()
    return actual


def build(make: Callable[[Geometry], Encoding], shape: Geometry) -> Encoding:
    torch.manual_seed(5)
    return perturbed(make(shape))


MAKERS: dict[str, Callable[[Geometry], Encoding]] = {
    "cope": partial(Cope, npos_max=5),
    "cope_scaled": partial(Cope, npos_max=64, scaled=True),
    "fox": partial(Fox, initial_bias=1.5),
    "cable": partial(Fox, gate="forget"),
    "cable_paper": Cable,
    "cable_nw": partial(Cable, weighted=False),
    "dape_alibi": partial(Dape, inner=Alibi, mlp_width=7),
    "dape_kerple": partial(Dape, inner=KerpleLog),
    "dape_fire": partial(Dape, inner=Fire),
}
EACH_ENCODING = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def sigmoid(z: Tensor) -> Tensor:
    return 1 / (1 + (-z).exp())


def cope_score(encoding: Cope, x: Tensor, q: Tensor, k: Tensor, h: int, scaled: bool) -> PairScore:
    """Interpolate between the vectors e[n] and e[n + 1]; add the gates one by one."""
    d, table = q.shape[-1], encoding.table[LAYER]

    def score(b: int, i: int, j: int) -> Tensor:
        query, last = q[b, h, i], torch.tensor(table.shape[1] - 1.0, dtype=torch.float64)
        gates = [sigmoid(query @ k[b, h, n] / math.sqrt(d)) for n in range(j, i + 1)]
        position = torch.minimum(torch.stack(gates).sum(), last)
        n = int(position)
        weight = position - n
        vector = (1 - weight) * table[:, n] + weight * table[:, min(n + 1, table.shape[1] - 1)]
        return query @ vector / (math.sqrt(d) if scaled else 1)

    return score


def fox_score(encoding: Fox, x: Tensor, h: int, gate: Gate) -> PairScore:
    """Compute the logarithm of the product of the gates after the key."""

    def score(b: int, i: int, j: int) -> Tensor:
        kept = torch.ones((), dtype=torch.float64)
        for n in range(j + 1, i + 1):
            sigma = sigmoid(encoding.weight[LAYER, h] @ x[b, n] + encoding.offset[LAYER, h])
            kept = kept * (sigma if gate == "keep" else 1 - sigma)
        return kept.log()

    return score


def cable_score(encoding: Cable, x: Tensor, h: int) -> PairScore:
    def score(b: int, i: int, j: int) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for n in range(j + 1, i + 1):
            step = encoding.steps[LAYER, h] @ x[b, n]
            total = total + torch.where(step > 0, step, 0.0)
        if encoding.weights is None:
            return -total
        return -(1 + (encoding.weights[LAYER, h] @ x[b, i]).exp()).log() * total

    return score


def static_bias(inner: Encoding, h: int, i: int, j: int) -> Tensor:
    """Compute ALiBi's or KERPLE's bias by formula; call FIRE's hook, which is tested elsewhere."""
    if isinstance(inner, Alibi):
        return torch.tensor(-(2.0 ** (-8 * (h + 1) / 4)) * (i - j), dtype=torch.float64)
    if isinstance(inner, KerpleLog):
        return -inner.r1[h] * (1 + inner.r2[h] * (i - j)).log()
    distance, pos_q = torch.tensor([[i - j]], dtype=torch.float64), torch.tensor([[i]])
    bias = inner.bias(torch.arange(4)[:, None, None], distance, pos_q)
    assert bias is not None
    return bias[h, 0, 0]


def dape_score(encoding: Dape, q: Tensor, k: Tensor, h: int) -> PairScore:
    """Apply the MLP to the logits and biases of a pair, in this order, as in the authors' code."""
    heads, d = q.shape[1], q.shape[-1]
    first = encoding.first_weight[LAYER], encoding.first_offset[LAYER]
    inner = encoding.static_encoding(LAYER)

    def score(b: int, i: int, j: int) -> Tensor:
        logits = [(q[b, n, i] * k[b, n, j]).sum() / math.sqrt(d) for n in range(heads)]
        biases = [static_bias(inner, n, i, j) for n in range(heads)]
        before = torch.nn.functional.linear(torch.stack(logits + biases), *first)
        after = torch.where(before < 0, 0.01 * before, before)
        correction = (encoding.second_weight[LAYER, h] * after).sum()
        return biases[h] + correction + encoding.second_offset[LAYER, h]

    return score


def expected_bias(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the bias by the paper's formula on and below the diagonal, zero above."""
    batch, heads, length, _ = q.shape
    out = torch.zeros(batch, heads, length, length, dtype=torch.float64)
    for h in range(heads):
        match encoding:
            case Cope():
                score = cope_score(encoding, x, q, k, h, encoding.scaled)
            case Fox():
                score = fox_score(encoding, x, h, "keep" if encoding.sign > 0 else "forget")
            case Cable():
                score = cable_score(encoding, x, h)
            case Dape():
                score = dape_score(encoding, q, k, h)
            case _:
                raise TypeError(type(encoding))
        for b in range(batch):
            for i in range(length):
                for j in range(i + 1):
                    out[b, h, i, j] = score(b, i, j)
    return out


def assert_equals_formula(encoding: Encoding, length: int, batch: int) -> None:
    """Compare values, and gradients with respect to inputs and parameters."""
    inputs = [t.requires_grad_() for t in random_inputs(encoding.geometry, length, batch)]
    actual, expected = content_bias_of(encoding, *inputs).tril(), expected_bias(encoding, *inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)
    grad_out = torch.randn(actual.shape, dtype=torch.float64)
    leaves = [*inputs, *encoding.parameters()]
    gradients = [
        torch.autograd.grad((out * grad_out).sum(), leaves, materialize_grads=True)
        for out in (actual, expected)
    ]
    for gradient, exact in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, exact, rtol=1e-8, atol=1e-10)
    reached = {id(p) for p, g in zip(leaves, gradients[0], strict=True) if g.abs().sum() > 0}
    inner = encoding.static_encoding(LAYER).parameters() if isinstance(encoding, Dape) else ()
    own = (p for name, p in encoding.named_parameters() if not name.startswith("inner."))
    assert {id(p) for p in (*own, *inner)} <= reached


@EACH_ENCODING
def test_bias_and_gradients_match_the_papers_formulas(
    make: Callable[[Geometry], Encoding],
) -> None:
    assert_equals_formula(build(make, geometry()), length=7, batch=2)


@pytest.mark.parametrize(("heads", "head_dim"), [(6, 16), (12, 64), (20, 256), (3, 10)])
@pytest.mark.parametrize("name", ["cope", "cope_scaled", "fox", "cable", "cable_paper"])
def test_formulas_hold_for_any_number_of_heads_and_channels(
    name: str, heads: int, head_dim: int
) -> None:
    assert_equals_formula(build(MAKERS[name], geometry(heads, head_dim)), length=4, batch=1)


@EACH_ENCODING
def test_float32_is_within_1e_5_of_float64(
    make: Callable[[Geometry], Encoding],
) -> None:
    encoding = build(make, geometry(head_dim=64))
    inputs = tuple(t.float() for t in random_inputs(encoding.geometry, 300, 1))
    expected = content_bias_of(encoding, *(t.double() for t in inputs)).tril()
    actual = content_bias_of(encoding.float(), *inputs).double().tril()
    assert (actual - expected).abs().max() < 1e-5 * expected.abs().max()


@EACH_ENCODING
def test_half_precision_inputs_are_upcast(make: Callable[[Geometry], Encoding]) -> None:
    encoding = build(make, geometry(head_dim=16)).bfloat16()
    inputs = tuple(t.bfloat16() for t in random_inputs(encoding.geometry, 40, 1))
    actual = content_bias_of(encoding, *inputs).double().tril()
    expected = content_bias_of(encoding.double(), *(t.double() for t in inputs)).tril()
    assert (actual - expected).abs().max() < 1e-5 * expected.abs().max()


@EACH_ENCODING
def test_a_block_of_rows_and_keys_equals_that_part_of_the_whole_bias(
    make: Callable[[Geometry], Encoding],
) -> None:
    """Keys begin at `start`, as in a window, or at 0 if the encoding is not shift invariant."""
    encoding = build(make, geometry())
    x, q, k = random_inputs(encoding.geometry, 20)
    whole = content_bias_of(encoding, x, q, k).tril()
    start = 0 if "shift_invariant" in encoding.limitations else 9
    block = content_bias_of(encoding, x[:, start:], q[:, :, 14:], k[:, :, start:])
    torch.testing.assert_close(block.tril(14 - start), whole[:, :, 14:, start:])


@EACH_ENCODING
def test_rows_do_not_depend_on_later_tokens(make: Callable[[Geometry], Encoding]) -> None:
    encoding = build(make, geometry())
    before, after = random_inputs(encoding.geometry, 20), random_inputs(encoding.geometry, 20)
    for tensor in after:
        tensor[..., 13:, :] += 1
    changed = content_bias_of(encoding, *after).tril() - content_bias_of(encoding, *before).tril()
    assert changed[:, :, :13].abs().max() == 0
    assert changed[:, :, 13:].abs().max() > 0


@EACH_ENCODING
def test_auto_equals_the_reference(make: Callable[[Geometry], Encoding]) -> None:
    encoding = build(make, geometry()).at_layer(LAYER)
    x, q, k = random_inputs(encoding.geometry, 300, 1)
    actual = attend("auto", encoding, x, q, k, k.sin(), torch.arange(300))
    expected = reference.attend(encoding, x, q, k, k.sin(), torch.arange(300))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-11)


@EACH_ENCODING
def test_layers_have_separate_parameters(make: Callable[[Geometry], Encoding]) -> None:
    encoding = build(make, geometry())
    x, q, k = random_inputs(encoding.geometry, 9)
    distance, pos_q = torch.zeros(9, 9, dtype=torch.float64), torch.arange(9)[:, None]
    actual = [
        encoding.at_layer(index).content_bias(x, q, k, distance, pos_q) for index in range(LAYERS)
    ]
    assert isinstance(encoding, PerLayer)
    for first, second in ((0, 1), (1, 2), (0, 2)):
        a, b = actual[first], actual[second]
        assert a is not None and b is not None and not torch.allclose(a, b)


def inputs_with_logits(logits: list[float], head_dim: int = 4) -> Inputs:
    """Return x of zeros, queries of ones, and keys whose scaled products with them are `logits`."""
    shape = geometry(1, head_dim)
    keys = torch.tensor(logits, dtype=torch.float64) / math.sqrt(head_dim)
    k = keys[:, None].expand(-1, head_dim)[None, None]
    return torch.zeros(1, len(logits), shape.width, dtype=torch.float64), torch.ones_like(k), k


def test_cope_positions_match_golden_values() -> None:
    """If q . e[n] = n, the bias is the position itself."""
    encoding = Cope(geometry(1, 4), npos_max=64).double()
    assert encoding.table.shape == (LAYERS, 4, 64) and encoding.table.abs().max() == 0
    encoding.table.data += torch.arange(64) / 4
    bias = content_bias_of(encoding, *inputs_with_logits([0.0] * 4))
    assert bias[0, 0, 3].tolist() == [2.0, 1.5, 1.0, 0.5]


def test_cope_interpolation_matches_golden_values() -> None:
    """Summed from the last key, the gates give the positions 0.5, 1, 1.5, 2.75, 3 and above 3."""
    encoding = Cope(geometry(1, 4), npos_max=4).double()
    encoding.table.data += torch.tensor([0.0, 1.0, 4.0, 9.0]) / 4
    gates = [0.5, 0.5, 0.5, 0.625, 0.625, 0.25, *[0.6] * 7]
    inputs = inputs_with_logits([math.log(g / (1 - g)) for g in reversed(gates)])
    last = content_bias_of(encoding, *inputs)[0, 0, -1].flip(0).tolist()
    golden = [last[n] for n in (0, 1, 2, 4, 5, 12)]
    assert golden == pytest.approx([0.5, 1, 2.5, 7.75, 9, 9], rel=1e-8)


@pytest.mark.parametrize("head_dim", [16, 64, 256])
def test_copes_two_scales_differ_by_the_square_root_of_the_head_width(head_dim: int) -> None:
    paper, repository = (
        build(partial(Cope, npos_max=6, scaled=scaled), geometry(2, head_dim))
        for scaled in (False, True)
    )
    inputs = random_inputs(paper.geometry, 9)
    actual, smaller = content_bias_of(paper, *inputs), content_bias_of(repository, *inputs)
    assert actual.abs().max() > 0.1
    torch.testing.assert_close(actual, smaller * math.sqrt(head_dim), rtol=1e-12, atol=0)


def last_row(encoding: Encoding, x: list[float]) -> list[float]:
    """Return the last row of the bias for hidden states of one channel, with gate weights of 1."""
    for name, parameter in encoding.named_parameters():
        parameter.data.fill_(0.0 if name in ("weights", "offset") else 1.0)
    hidden = torch.tensor(x, dtype=torch.float64).view(1, -1, 1)
    return content_bias_of(encoding.double(), hidden, hidden[None], hidden[None])[0, 0, -1].tolist()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Fox, [-2.808684123, -1.345401655, -1.218473644, -0.7443966601, 0]),
        (
            partial(Fox, gate="forget"),
            [-4.008684123, -3.745401655, -1.618473644, -0.6443966601, 0],
        ),
        (Cable, [-1.732867951, -1.732867951, -0.3465735903, 0, 0]),
    ],
    ids=["fox", "cable", "cable_paper"],
)
def test_the_last_row_matches_golden_values(
    make: Callable[[Geometry], Encoding], expected: list[float]
) -> None:
    actual = last_row(make(geometry(1, 1)), GATE_LOGITS)
    assert actual == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("gate", ["keep", "forget"])
def test_gates_are_initially_one_half(gate: Gate) -> None:
    encoding = Fox(geometry(3, 4), gate=gate).double()
    q = torch.zeros(1, 3, 101, 4, dtype=torch.float64)
    row = content_bias_of(encoding, torch.zeros(1, 101, 12, dtype=torch.float64), q, q)[
        0, 2, -1
    ].flip(0)
    golden = [-0.6931471806, -6.931471806, -69.31471806]
    assert row[[1, 10, 100]].tolist() == pytest.approx(golden, rel=1e-8)
    assert encoding.weight.shape == (LAYERS, 3, 12)


def test_a_bias_of_5_as_in_x_transformers_keeps_nearly_everything() -> None:
    encoding = Fox(geometry(1, 1), initial_bias=5.0).double()
    zeros = torch.zeros(1, 1, 3, 1, dtype=torch.float64)
    actual = content_bias_of(encoding, zeros[0], zeros, zeros)[0, 0, -1].tolist()
    assert actual == pytest.approx([-2 * 0.006715348489, -0.006715348489, 0], rel=1e-8)


@pytest.mark.parametrize("make", [Fox, Cable])
def test_gate_weights_have_the_papers_initial_scale(make: type[Fox] | type[Cable]) -> None:
    torch.manual_seed(0)
    encoding = make(geometry(20, 64))
    for parameter in encoding.parameters():
        if parameter.ndim == 3:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.02)


def test_sums_over_100_000_tokens_are_precise() -> None:
    """float32 weights and hidden states, compared with math.fsum, also at short distances."""
    encoding, length = Fox(geometry(2, 4), initial_bias=2.0), 100_000
    x = torch.randn(1, length, 8, generator=torch.Generator().manual_seed(0))
    q, k = torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, length, 4)
    actual = content_bias_of(encoding, x, q, k)[0, 1, 0].double()
    logits = (x[0].double() @ encoding.weight[LAYER, 1].double()).tolist()
    steps = [-math.log1p(math.exp(-z - 2.0)) for z in logits]
    for j in (0, 1, 50_000, 99_000, 99_990, 99_998):
        assert actual[j].item() == pytest.approx(math.fsum(steps[j + 1 :]), rel=1e-6)
    assert actual[-1].item() == 0


@pytest.mark.parametrize("name", ["fox", "cable", "cable_paper", "cable_nw"])
def test_factors_multiply_to_the_bias(name: str, product: Product) -> None:
    encoding = build(MAKERS[name], geometry(6))
    x, q, k = random_inputs(encoding.geometry, 50)
    factors = encoding.at_layer(LAYER).bias_factors(x.float(), q, k, torch.arange(50))
    assert factors is not None
    for factor in factors:
        assert factor is None or (factor.shape == (2, 6, 50, 1) and factor.dtype == torch.float64)
    exact = encoding.at_layer(LAYER).bias_factors(x, q, k, torch.arange(50))
    assert exact is not None
    torch.testing.assert_close(
        product(exact), content_bias_of(encoding, x, q, k), atol=1e-9, rtol=0
    )


def test_fixed_gates_match_golden_values() -> None:
    encoding = FoxFixed(geometry(2), decay_time_min=128, decay_time_max=2048)
    assert encoding.logits[LAYER].tolist() == pytest.approx([4.848121471, 7.624374836], rel=1e-9)
    distance = torch.tensor([0.0, 1.0, 128.0, 2048.0, 100_000.0])
    for h, time in enumerate((128, 2048)):
        actual = encoding.bias(torch.tensor(h), distance, distance).tolist()
        assert actual == pytest.approx([-d / time for d in distance.tolist()], rel=1e-6)


@pytest.mark.parametrize("trainable", [False, True])
def test_fixed_gates_with_decay_times_2_to_256_equal_alibi(
    trainable: bool, product: Product
) -> None:
    encoding = FoxFixed(geometry(8), decay_time_min=2, decay_time_max=256, trainable=trainable)
    assert len(list(encoding.parameters())) == trainable
    pos, head = torch.arange(40), torch.arange(8)[:, None, None]
    distance = (pos[:, None] - pos).double()
    x, states = torch.zeros(1, 40, 64), torch.zeros(1, 8, 40, 8)
    expected = Alibi(geometry(8)).bias(head, distance, pos[:, None])
    tolerance = 1e-6 if trainable else 1e-12
    for index in range(LAYERS):
        layer = encoding.at_layer(index)
        actual = layer.bias(head, distance, pos[:, None])
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=1e-12)
        factors = layer.bias_factors(x, states, states, pos)
        assert factors is not None
        torch.testing.assert_close(product(factors)[0], actual, rtol=0, atol=1e-9)
    assert encoding.bias_factors(x, states, states, torch.zeros(1, 40, 2)) is None


def test_the_gradient_of_trainable_fixed_gates_reaches_only_their_layer() -> None:
    encoding = FoxFixed(geometry(2), trainable=True)
    encoding.at_layer(LAYER).bias(torch.arange(2), torch.ones(2), torch.ones(2)).sum().backward()
    assert isinstance(encoding.logits, torch.nn.Parameter) and encoding.logits.grad is not None
    reached = encoding.logits.grad.abs().sum(-1) > 0
    assert reached.tolist() == [index == LAYER for index in range(LAYERS)]
    logits = encoding.logits.detach().double()[LAYER]
    expected = 1 / (1 + logits.exp())  # the derivative of ln sigma
    torch.testing.assert_close(encoding.logits.grad[LAYER].double(), expected, rtol=1e-6, atol=0)


def test_dape_matches_golden_values() -> None:
    """KERPLE's power kernel at distance 1 is B = -0.5, -0.25; the heads' logits x are 1, -2."""
    encoding = Dape(geometry(2, 1), inner=KerplePower).double()
    inner = encoding.static_encoding(LAYER)
    assert isinstance(inner, KerplePower)
    inner.r1.data = torch.tensor([0.5, 0.25], dtype=torch.float64)
    for parameter, value in (
        (encoding.first_weight, 0.1),
        (encoding.second_weight, 0.05),
        (encoding.first_offset, 0.0),
        (encoding.second_offset, 0.0),
    ):
        parameter.data.fill_(value)
    encoding.first_weight.data[LAYER, 2] = -0.1
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    q = torch.ones(1, 2, 2, 1, dtype=torch.float64)
    score = (
        x + content_bias_of(encoding, torch.zeros(1, 2, 2), q, x.view(1, 2, 1, 1) * q)[0, :, 1, 0]
    )
    assert score.tolist() == pytest.approx([0.5060375, -2.2439625], rel=1e-8)


@pytest.mark.parametrize(("heads", "count"), [(8, 808), (12, 1196), (16, 1584)])
def test_each_layer_of_dape_has_the_expected_parameter_count(heads: int, count: int) -> None:
    over_alibi = Dape(geometry(heads), inner=Alibi)
    assert sum(p.numel() for p in over_alibi.parameters()) == LAYERS * count
    over_kerple = Dape(geometry(heads), inner=KerpleLog)
    assert sum(p.numel() for p in over_kerple.parameters()) == LAYERS * (count + 2 * heads)


def test_dape_initializes_its_weights_like_linear_layers() -> None:
    torch.manual_seed(1)
    encoding, linear = Dape(geometry(64), inner=Alibi), torch.nn.Linear(128, 32)
    for ours, theirs in (
        (encoding.first_weight, linear.weight),
        (encoding.first_offset, linear.bias),
    ):
        assert ours.abs().max() <= 128**-0.5 and theirs.abs().max() <= 128**-0.5
        assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.1)
        assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.3)


def test_dape_builds_inner_encodings_of_one_layer() -> None:
    """An inner encoding with per-layer parameters has no unused ones."""
    encoding = Dape(geometry(), inner=partial(FoxFixed, trainable=True))
    assert [p.shape[0] for p in encoding.inner.parameters()] == [1] * LAYERS


@pytest.mark.parametrize(
    ("inner", "name"),
    [
        (NoPE, "NoPE"),
        (Fox, "Fox"),
        (Cope, "Cope"),
        (Learned, "Learned"),
        (partial(Dape, inner=Alibi), "Dape"),
    ],
)
def test_dape_rejects_encodings_that_are_not_just_a_bias(
    inner: Callable[[Geometry], Encoding], name: str
) -> None:
    with pytest.raises(ValueError, match=f"inner={name} .* such as alibi"):
        Dape(geometry(), inner=inner)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(Cope, npos_max=1), "npos_max=1 .* 2"),
        (partial(Dape, inner=Alibi, mlp_width=0), "mlp_width=0"),
        (partial(FoxFixed, decay_time_min=0.5), "decay_time_min=0.5 .* at least 1"),
        (
            partial(FoxFixed, decay_time_min=9, decay_time_max=8),
            "decay_time_min=9 .* decay_time_max=8",
        ),
    ],
)
def test_invalid_parameters_are_rejected(
    make: Callable[[Geometry], Encoding], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(geometry())


Configured = Callable[..., DictConfig]


@pytest.mark.parametrize(
    ("name", "shift_invariant"), [("dape_alibi", True), ("dape_kerple", True), ("dape_fire", False)]
)
def test_dape_has_the_limitations_of_its_inner_encoding(
    name: str, shift_invariant: bool, configured: Configured
) -> None:
    encoding = build_encoding(configured(f"encoding={name}"))
    assert ("shift_invariant" not in encoding.limitations) == shift_invariant


def test_dapes_inner_encoding_is_configurable(configured: Configured) -> None:
    trainable = build_encoding(configured("encoding=dape_alibi", "encoding.inner.trainable=true"))
    assert isinstance(trainable, Dape) and isinstance(trainable.static_encoding(1), Alibi)
    assert len(list(trainable.inner.parameters())) == 2
    other = build_encoding(
        configured(
            "encoding=dape_alibi", "encoding@encoding.inner=t5", "encoding.inner.num_buckets=16"
        )
    )
    assert isinstance(other, Dape) and isinstance(other.static_encoding(0), T5)
    with pytest.raises(ConfigError, match="inner=Rope uses rotate"):
        build_encoding(configured("encoding=dape_alibi", "encoding@encoding.inner=rope"))


def test_cable_is_fox_with_opposite_gates(configured: Configured) -> None:
    fox, cable = (build_encoding(configured(f"encoding={name}")) for name in ("fox", "cable"))
    assert isinstance(fox, Fox) and isinstance(cable, Fox)
    cable.weight.data.neg_()
    inputs = random_inputs(fox.geometry, 12)
    torch.testing.assert_close(
        content_bias_of(fox.double(), *inputs),
        content_bias_of(cable.double(), *inputs),
        rtol=0,
        atol=1e-12,
    )
