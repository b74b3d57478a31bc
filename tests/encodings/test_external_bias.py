"""Biases, compared with the implementations of transformers and x-transformers."""

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from posenc.attention import reference
from posenc.attention.reference import score_bias
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.t5 import T5

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    from x_transformers.x_transformers import AlibiPositionalBias, RelativePositionBias

HEADS = [6, 8, 12, 20]
BUCKETS = [(32, 128), (16, 64), (8, 20), (31, 1000), (64, 512), (32, 2048), (2, 128)]


def geometry(heads: int, head_dim: int = 8) -> Geometry:
    return Geometry(width=heads * head_dim, heads=heads, layers=1, train_length=32)


def bias_of(
    encoding: Encoding, length: int, first: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the bias of the rows from `first` on, [H, R, T]."""
    shape = encoding.geometry
    x = torch.zeros(1, length, shape.width, dtype=dtype)
    q = torch.zeros(1, shape.heads, length, shape.head_dim, dtype=dtype)
    rows, keys = slice(first, length), slice(0, length)
    actual = score_bias(encoding, x, q, q, torch.arange(length), rows, keys)
    assert actual is not None
    return actual[0]


def bloom(heads: int, length: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return build_alibi_tensor(torch.ones(1, length, dtype=torch.long), heads, dtype)


def causal_softmax(scores: Tensor) -> Tensor:
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(dim=-1)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("build_theirs", [bloom, build_mpt_alibi_tensor], ids=["bloom", "mpt"])
def test_alibi_attends_like_bloom_and_mpt(
    build_theirs: Callable[[int, int], Tensor], heads: int
) -> None:
    """Their bias is m j or m (j - T + 1) in every row: -m (i - j) plus a constant per row."""
    ours, theirs = bias_of(Alibi(geometry(heads)), 200), build_theirs(heads, 200)
    scores = torch.randn(heads, 200, 200)
    torch.testing.assert_close(
        causal_softmax(scores + ours), causal_softmax(scores + theirs), rtol=1e-4, atol=1e-7
    )
    their_last_row = theirs[:, 0] - theirs[:, 0, -1:]
    torch.testing.assert_close(ours[:, -1], their_last_row, rtol=1e-6, atol=2e-5)


@pytest.mark.parametrize("heads", HEADS)
def test_alibi_of_x_transformers_equals_ours_on_visible_keys(heads: int) -> None:
    theirs = AlibiPositionalBias(heads)(90, 90)
    ours = bias_of(Alibi(geometry(heads)), 90)
    torch.testing.assert_close(ours.tril(), theirs.tril(), rtol=1e-6, atol=0)


def test_blooms_alibi_in_bfloat16_does_not_separate_neighbors_and_ours_does() -> None:
    """Theirs is wrong: m j is cast to the activations' dtype, which has 8 bits of mantissa."""
    slopes = Alibi(geometry(8)).slopes.float()
    theirs = bloom(8, 4096, torch.bfloat16)[:, 0].float().diff(dim=-1)[:, 2048:]
    ours = bias_of(Alibi(geometry(8)), 4096, first=4095, dtype=torch.bfloat16)[:, 0].diff(dim=-1)
    assert (theirs == 0).float().mean() > 0.9
    torch.testing.assert_close(ours, slopes[:, None].expand_as(ours), rtol=1e-4, atol=0)


def t5_attention(encoding: T5, head_dim: int) -> T5Attention:
    """Return the self-attention of a T5 decoder from transformers, with our table of biases."""
    shape = encoding.geometry
    config = T5Config(
        d_model=shape.width,
        d_kv=head_dim,
        num_heads=shape.heads,
        relative_attention_num_buckets=encoding.num_buckets,
        relative_attention_max_distance=encoding.max_distance,
        is_decoder=True,
        dropout_rate=0.0,
    )
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    module.load_state_dict({"relative_attention_bias.weight": encoding.table}, strict=False)
    return module


@pytest.mark.parametrize(("num_buckets", "max_distance"), BUCKETS)
def test_t5_buckets_equal_transformers_up_to_a_distance_of_200_000(
    num_buckets: int, max_distance: int
) -> None:
    distance = torch.arange(200_001)
    theirs = T5Attention._relative_position_bucket(
        -distance, bidirectional=False, num_buckets=num_buckets, max_distance=max_distance
    )
    ours = T5(geometry(4), num_buckets=num_buckets, max_distance=max_distance).bucket(
        distance.double()
    )
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("num_buckets", "max_distance"), BUCKETS[:4])
def test_t5_bias_equals_transformers(heads: int, num_buckets: int, max_distance: int) -> None:
    encoding = T5(geometry(heads), num_buckets=num_buckets, max_distance=max_distance)
    theirs = t5_attention(encoding, 8).compute_bias(150, 150)[0]
    ours = bias_of(encoding, 150)
    assert torch.equal(ours.tril(), theirs.tril())
    weights = torch.randn(heads, 150, 150).tril()
    (expected,) = torch.autograd.grad((bias_of(encoding, 150) * weights).sum(), encoding.table)
    module = t5_attention(encoding, 8)
    (module.compute_bias(150, 150)[0] * weights).sum().backward()
    actual = module.relative_attention_bias.weight.grad
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_t5_of_transformers_does_not_scale_scores_and_our_model_does() -> None:
    """T5 folds 1/sqrt(d) into its initial query weights; ours needs q multiplied by sqrt(d)."""
    encoding = T5(geometry(4, 16))
    module = t5_attention(encoding, 16)
    hidden, pos = torch.randn(2, 40, 64), torch.arange(40)
    mask = torch.full((40, 40), -torch.inf).triu(1)[None, None]
    q, k, v = (
        project(hidden).unflatten(-1, (4, 16)).transpose(1, 2)
        for project in (module.q, module.k, module.v)
    )

    def difference(scale: float) -> float:
        ours = reference.attend(encoding, hidden, q * scale, k, v, pos)
        theirs = module(hidden, mask=mask)[0]
        return (module.o(ours.transpose(1, 2).flatten(-2)) - theirs).abs().max().item()

    assert difference(math.sqrt(16)) < 1e-5
    assert difference(1.0) > 0.01


@pytest.mark.parametrize(("heads", "head_dim"), [(6, 64), (8, 32), (12, 128), (20, 16)])
def test_t5_bias_of_x_transformers_equals_ours_times_the_square_root_of_the_head_width(
    heads: int, head_dim: int
) -> None:
    """Theirs differs from T5, which adds the unscaled bias to unscaled scores."""
    encoding = T5(geometry(heads, head_dim))
    module = RelativePositionBias(scale=head_dim**0.5, causal=True, heads=heads)
    module.load_state_dict({"relative_attention_bias.weight": encoding.table})
    theirs = module(140, 140).tril()
    torch.testing.assert_close(theirs, bias_of(encoding, 140).tril() * math.sqrt(head_dim))
