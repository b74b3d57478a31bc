"""Content biases, relative keys and random walks, compared with those of other libraries."""

import importlib.util
import warnings
from collections.abc import Callable
from importlib.metadata import distribution

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from transformers import Wav2Vec2BertConfig, XLNetConfig
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

from posenc.attention import reference
from posenc.attention.reference import score_bias
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cope import Cope
from posenc.encodings.fox import Fox
from posenc.encodings.graph import degrees, return_probabilities
from posenc.encodings.shaw import Shaw
from posenc.encodings.transformer_xl import TransformerXL
from posenc.encodings.window import Window

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    from torch_geometric.data import Data
    from torch_geometric.transforms import AddRandomWalkPE
    from torch_geometric.utils import degree
    from x_transformers.x_transformers import CoPE, DataDependentAlibi

LENGTH = 37
POS = torch.arange(LENGTH)
SHAPES = pytest.mark.parametrize(("heads", "width"), [(6, 16), (12, 64), (20, 8)])


def geometry(heads: int, width: int) -> Geometry:
    return Geometry(width=heads * width, heads=heads, layers=1, train_length=32)


def random_inputs(heads: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return hidden states and q, k, v in float64."""
    x = torch.randn(2, LENGTH, heads * width, dtype=torch.float64)
    q, k, v = torch.randn(3, 2, heads, LENGTH, width, dtype=torch.float64).unbind(0)
    return x, q, k, v


def bias_of(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    all_tokens = slice(0, LENGTH)
    actual = score_bias(encoding, x, q, k, POS, all_tokens, all_tokens)
    assert actual is not None
    return actual


def gradients(scores: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Return the gradients of a fixed weighted sum of the causal scores."""
    weights = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64).sin().view_as(scores)
    return list(torch.autograd.grad((scores.tril() * weights).sum(), inputs))


@SHAPES
@pytest.mark.parametrize("npos_max", [4, 16, 64])
def test_cope_of_x_transformers_equals_ours_unscaled(heads: int, width: int, npos_max: int) -> None:
    """x-transformers calls CoPE with unscaled q, and with masked logits divided by sqrt(d)."""
    encoding, module = (
        Cope(geometry(heads, width), npos_max=npos_max).double(),
        CoPE(width, heads, npos_max),
    )
    module = module.double()
    nn.init.normal_(encoding.table)
    module.pos_emb.data = encoding.table.data[0].T.clone()
    x, q, k, _ = random_inputs(heads, width)
    q, k = q.requires_grad_(), k.requires_grad_()
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    logits = q @ k.mT * width**-0.5
    theirs = module(q, logits.masked_fill(later, -torch.finfo(logits.dtype).max))
    ours = bias_of(encoding, x, q, k)
    torch.testing.assert_close(ours.tril(), theirs.tril(), rtol=1e-9, atol=1e-9)
    our_gradients = gradients(ours, [q, k, encoding.table])
    their_gradients = gradients(theirs, [q, k, module.pos_emb])
    torch.testing.assert_close(our_gradients[:2], their_gradients[:2], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(our_gradients[2][0].T, their_gradients[2], rtol=1e-8, atol=1e-8)


@SHAPES
def test_data_dependent_alibi_of_x_transformers_equals_fox(heads: int, width: int) -> None:
    encoding = Fox(geometry(heads, width), initial_bias=5.0).double()
    module = DataDependentAlibi(heads * width, heads).double()
    linear = module.to_forget_gates[0]
    assert isinstance(linear, nn.Linear)
    torch.testing.assert_close(linear.bias, encoding.offset[0], rtol=0, atol=0)
    linear.weight.data = encoding.weight.data[0].clone()
    x, q, k, _ = random_inputs(heads, width)
    x.requires_grad_()
    ours, theirs = bias_of(encoding, x, q, k), module(x)
    torch.testing.assert_close(ours.tril(), theirs.tril(), rtol=1e-9, atol=1e-9)
    our_gradients = gradients(ours, [x, encoding.weight, encoding.offset])
    their_gradients = gradients(theirs, [x, linear.weight, linear.bias])
    for actual, expected in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(actual.view_as(expected), expected, rtol=1e-8, atol=1e-8)


def test_data_dependent_alibi_initially_forgets_103_times_slower_than_fox() -> None:
    """Theirs starts with a gate bias of 5; the authors' 0 forgets half of the past per step."""
    ours = Fox(geometry(2, 8)).double()
    theirs = DataDependentAlibi(16, 2).double()
    x = torch.zeros(1, LENGTH, 16, dtype=torch.float64)
    q = torch.zeros(1, 2, LENGTH, 8, dtype=torch.float64)
    ratio = bias_of(ours, x, q, q)[0, 0, 9, 4] / theirs(x)[0, 0, 9, 4]
    assert ratio.item() == pytest.approx(0.6931471806 / 0.006715348489, rel=1e-8)


def naive_forgetting_attention() -> Callable[..., Tensor]:
    """Load fla's reference from its file, because importing the package would import triton."""
    path = distribution("fla-core").locate_file("fla/ops/forgetting_attn/naive.py")
    spec = importlib.util.spec_from_file_location("fla_forgetting_naive", str(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.naive_forgetting_attn


@SHAPES
@pytest.mark.parametrize("size", [None, 1, 5])
def test_forgetting_attention_of_fla_equals_fox_with_and_without_a_window(
    heads: int, width: int, size: int | None
) -> None:
    dimensions = geometry(heads, width)
    encoding: Encoding = Fox(dimensions, initial_bias=1.0)
    fox = encoding
    if size is not None:
        encoding = Window(dimensions, inner=lambda _: fox, size=size)
    x, q, k, v = (t.float() for t in random_inputs(heads, width))
    assert isinstance(fox, Fox)
    g = logsigmoid(x @ fox.weight[0].T + fox.offset[0])
    theirs = naive_forgetting_attention()(
        *(t.transpose(1, 2) for t in (q, k, v)), g, window_size=size
    )
    ours = reference.attend(encoding, x, q, k, v, POS)
    torch.testing.assert_close(ours, theirs.transpose(1, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "width", "max_distance"), [(6, 16, 4), (12, 8, 16), (20, 32, 64)]
)
def test_relative_keys_of_wav2vec2_bert_equal_those_of_shaw(
    heads: int, width: int, max_distance: int
) -> None:
    config = Wav2Vec2BertConfig(
        hidden_size=heads * width,
        num_attention_heads=heads,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=max_distance,
        right_max_position_embeddings=3,
        attention_dropout=0.0,
    )
    module = Wav2Vec2BertSelfAttention(config).double()
    encoding = Shaw(
        geometry(heads, width), max_relative_position=max_distance, values=False
    ).double()
    module.distance_embedding.weight.data[: max_distance + 1] = encoding.keys.data[0].flip(0)
    x, *_ = random_inputs(heads, width)
    mask = torch.full((LENGTH, LENGTH), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    theirs, _ = module(x, attention_mask=mask)
    q, k, v = (
        project(x).unflatten(-1, (heads, width)).transpose(1, 2)
        for project in (module.linear_q, module.linear_k, module.linear_v)
    )
    ours = reference.attend(encoding, x, q, k, v, POS).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(module.linear_out(ours), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("heads", "width"), [(6, 16), (12, 8), (20, 32)])
@pytest.mark.parametrize("clamp_len", [None, 10])
def test_xlnet_equals_transformer_xl(heads: int, width: int, clamp_len: int | None) -> None:
    config = XLNetConfig(
        vocab_size=5,
        d_model=heads * width,
        n_head=heads,
        d_inner=8,
        n_layer=1,
        dropout=0.0,
        clamp_len=-1 if clamp_len is None else clamp_len,
    )
    module = XLNetRelativeAttention(config)
    encoding = TransformerXL(geometry(heads, width), clamp_len=clamp_len).double()
    module.r_w_bias.data, module.r_r_bias.data = encoding.u.data, encoding.v.data
    _, q, k, v = random_inputs(heads, width)
    sinusoids = XLNetModel(config).relative_positional_encoding(LENGTH, LENGTH, bsz=2).double()
    keys = (sinusoids @ encoding.project[0].T).unflatten(-1, (heads, width))
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.float64).triu(1)[:, :, None, None]
    time_first = [t.permute(2, 0, 1, 3) for t in (q, k, v)]
    theirs = module.rel_attn_core(*time_first, k_head_r=keys, attn_mask=mask)
    ours = reference.attend(encoding, q.transpose(1, 2).flatten(-2), q, k, v, POS)
    torch.testing.assert_close(ours.permute(2, 0, 1, 3), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("nodes", [5, 30])
def test_random_walks_and_degrees_equal_those_of_pytorch_geometric(nodes: int) -> None:
    upper = (torch.rand(nodes, nodes) < 0.3).triu(1)
    adjacency = (upper | upper.T).double()
    edges = adjacency.nonzero().T
    theirs = AddRandomWalkPE(12)(Data(edge_index=edges, num_nodes=nodes)).random_walk_pe
    ours = return_probabilities(adjacency[None], 12)[0]
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-5, atol=1e-6)
    assert degrees(adjacency[None])[0, :, 0].tolist() == degree(edges[0], nodes).tolist()
