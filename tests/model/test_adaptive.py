"""Adaptive embedding and softmax compared with PyTorch's and with plain loops."""

import pytest
import torch
from torch import Tensor, nn

from compositions import composed
from posenc.config.errors import ConfigError
from posenc.model import loss
from posenc.model.adaptive import AdaptiveEmbedding, AdaptiveHead
from posenc.model.build import build_meta_model, build_model
from posenc.model.transformer import Decoder

VOCAB_SIZE, WIDTH, CUTOFFS, FACTOR = 50, 32, [10, 25], 4
SMALL = [
    "model=wikitext103_247m",
    f"model.width={WIDTH}",
    "model.layers=2",
    "model.heads=4",
    "model.feed_forward=64",
    f"model.cutoffs={CUTOFFS}",
    "model.dropout=0",
    "model.activation_dropout=0",
    "model.head_dropout=0",
    "train_length=24",
]


def adaptive(*overrides: str, vocab_size: int = VOCAB_SIZE) -> Decoder:
    config = composed(*SMALL, *overrides)
    config.modules = []
    return build_model(config, vocab_size)


def build_head(dropout: float = 0.0) -> AdaptiveHead:
    torch.manual_seed(5)
    return AdaptiveHead(AdaptiveEmbedding(VOCAB_SIZE, WIDTH, CUTOFFS, FACTOR), dropout).double()


def torch_head(head: AdaptiveHead) -> nn.AdaptiveLogSoftmaxWithLoss:
    """PyTorch's adaptive softmax with the same weights."""
    other = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, VOCAB_SIZE, CUTOFFS, div_value=FACTOR).double()
    with torch.no_grad():
        other.head.weight.copy_(head.weight)
        for i, tail in enumerate(other.tail, start=1):
            projection, output = tail.parameters()
            projection.copy_(head.embedding.projections[i].get_parameter("weight").T)
            output.copy_(head.embedding.cluster_embedding(i))
    return other


def random_batch(*shape: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(6)
    return torch.randn(*shape, WIDTH, dtype=torch.float64), torch.randint(0, VOCAB_SIZE, shape)


def test_losses_and_log_probabilities_equal_those_of_pytorch() -> None:
    head, (hidden, targets) = build_head(), random_batch(3, 40)
    other = torch_head(head)
    expected = -other(hidden.flatten(0, 1), targets.flatten()).output.view_as(targets)
    torch.testing.assert_close(head.losses(hidden, targets), expected, rtol=0, atol=1e-12)
    log_probabilities = head(hidden)
    torch.testing.assert_close(
        log_probabilities.flatten(0, 1), other.log_prob(hidden.flatten(0, 1))
    )
    torch.testing.assert_close(
        log_probabilities.exp().sum(-1), torch.ones(3, 40, dtype=torch.float64)
    )
    assert set(head.embedding.cluster_index(targets).unique().tolist()) == {0, 1, 2}


def test_gradients_of_losses_equal_those_of_the_log_probabilities() -> None:
    head, (hidden, targets) = build_head(), random_batch(2, 30)
    hidden.requires_grad_()
    inputs = [
        hidden,
        *head.cluster_weights.parameters(),
        *(head.embedding.cluster_embedding(i) for i in range(3)),
    ]
    inputs += [head.embedding.projections[i].get_parameter("weight") for i in (1, 2)]
    grads = torch.autograd.grad(head.losses(hidden, targets).sum(), inputs)
    log_likelihood = head(hidden).gather(-1, targets[..., None])
    for a, b in zip(grads, torch.autograd.grad(-log_likelihood.sum(), inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_losses_in_chunks_equal_losses_without_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    head, (hidden, targets) = build_head(), random_batch(2, 30)
    whole = head.losses(hidden, targets)
    monkeypatch.setattr(loss, "LOGITS_BUDGET", 60)
    torch.testing.assert_close(head.losses(hidden, targets), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [[3, 4], [12, 24], [25, 49]])
def test_losses_are_correct_if_clusters_have_no_target(tokens: list[int]) -> None:
    head, (hidden, _) = build_head(), random_batch(1, 2)
    expected = -head(hidden)[0].gather(-1, torch.tensor(tokens)[:, None]).T
    losses = head.losses(hidden, torch.tensor([tokens]))
    torch.testing.assert_close(losses, expected)
    losses.sum().backward()
    assert all(p.grad is not None for p in head.cluster_weights.parameters())


def test_the_embedding_is_a_lookup_and_a_projection() -> None:
    embedding = build_head().embedding
    tokens = torch.tensor([[0, 9, 10, 24], [25, 49, 3, 30]])
    vectors = embedding(tokens)
    for actual, token in zip(vectors.flatten(0, 1), tokens.flatten().tolist(), strict=True):
        cluster = sum(token >= cutoff for cutoff in CUTOFFS)
        vector = embedding.cluster_embedding(cluster)[token - [0, *CUTOFFS][cluster]]
        assert vector.shape == (WIDTH // FACTOR**cluster,)
        torch.testing.assert_close(actual, embedding.projections[cluster](vector))


@pytest.mark.parametrize("token", [-1, VOCAB_SIZE])
def test_a_token_outside_the_vocabulary_is_an_error(token: int) -> None:
    with pytest.raises(IndexError):
        build_head().embedding(torch.tensor([[token]]))


def test_the_model_of_baevski_and_auli_has_their_number_of_parameters() -> None:
    config = composed("model=wikitext103_247m", "encoding=sinusoidal")
    clusters = 20000 * 1024 + 40000 * 256 + 207744 * 64
    projections = 1024 * (1024 + 256 + 64)
    block = 4 * 1024 * 1024 + 2 * 1024 * 4096 + (4 + 4 + 1) * 1024 + 4 * 1024
    count = build_meta_model(config, 267744).parameter_count()
    assert count == clusters + projections + 2 * 1024 + 16 * block
    assert round(count / 1e6) == 247


def test_all_clusters_start_at_the_scale_of_a_plain_embedding() -> None:
    """About 1 after the multiplication by `embedding_scale`."""
    model = adaptive("model.width=256", "model.cutoffs=[100,200]", vocab_size=300)
    x = model.embedding(torch.arange(300)) * model.embedding_scale
    for cluster in (x[:100], x[100:200], x[200:]):
        assert 0.8 < cluster.std().item() < 1.6


@pytest.mark.parametrize(
    "change",
    [
        "cutoffs=[10]",
        "div_value=2",
        "norm=rms_norm",
        "final_norm=true",
        "activation=gelu",
        "activation=swiglu",
        "embedding_scale=1",
        "dropout=0.5",
        "activation_dropout=0.5",
        "head_dropout=0.5",
    ],
)
def test_an_option_changes_the_losses(change: str) -> None:
    tokens = torch.randint(0, VOCAB_SIZE, (2, 24), generator=torch.Generator().manual_seed(1))

    def losses(model: Decoder) -> Tensor:
        torch.manual_seed(2)
        return model.losses(tokens, tokens)

    plain, other = adaptive(), adaptive(f"model.{change}")
    assert not torch.equal(losses(plain), losses(other))
    if "dropout" in change:
        assert torch.equal(losses(plain.eval()), losses(other.eval()))


def test_biases_of_linear_layers_start_at_zero() -> None:
    biased = [p for name, p in adaptive().named_parameters() if name.endswith(".bias")]
    assert biased and not any(p.any() for p in biased)
    assert not any(
        name.endswith(".bias") for name, _ in adaptive("model.bias=false").named_parameters()
    )


@pytest.mark.parametrize("encoding", ["sinusoidal", "rope", "alibi", "t5"])
def test_bf16_keeps_gradients_and_losses_in_float32(encoding: str) -> None:
    model = adaptive(f"encoding={encoding}")
    tokens = torch.randint(0, VOCAB_SIZE, (2, 24), generator=torch.Generator().manual_seed(1))
    float32_losses = model.losses(tokens, tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = model.losses(tokens, tokens)
    losses.mean().backward()
    assert losses.dtype == torch.float32
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    assert 0 < (losses - float32_losses).abs().max() < 0.3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cutoffs=[10,50]", r"cutoffs=\[10, 50\] must be strictly increasing"),
        ("cutoffs=[25,10]", "strictly increasing"),
        ("cutoffs=[]", "strictly increasing"),
        ("div_value=0", "div_value=0"),
        ("div_value=6", "div_value=6"),
        ("head_dropout=1.5", r"head_dropout=1\.5"),
        ("activation_dropout=-0.1", r"activation_dropout=-0\.1"),
        ("activation=tanh", "relu, gelu, silu, swiglu"),
    ],
)
def test_an_invalid_model_is_refused(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        adaptive(f"model.{change}")


def test_the_loss_falls_in_training() -> None:
    model = adaptive("encoding=nope")
    tokens = torch.randint(0, VOCAB_SIZE, (4, 24), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, nesterov=True)
    first = model.losses(tokens, tokens).mean().item()
    for _ in range(60):
        optimizer.zero_grad()
        model.losses(tokens, tokens).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    assert model.losses(tokens, tokens).mean().item() < 0.5 * first
