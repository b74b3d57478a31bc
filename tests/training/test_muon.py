"""Muon equals PyTorch's up to bfloat16 rounding, and resumes from a state dict bit for bit."""

import copy

import pytest
import torch
from torch import nn

from posenc.training.muon import Muon, orthogonalized
from posenc.training.optimizer import CombinedOptimizer, muon


class TwoParts(nn.Module):
    """A matrix in a block, and an embedding and a bias outside the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 4, bias=False)])
        self.embedding = nn.Embedding(5, 6)
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.blocks[0](self.embedding(tokens)) + self.bias


def build_optimizer(model: nn.Module) -> CombinedOptimizer:
    return muon(
        model,
        learning_rate=0.02,
        weight_decay=0.1,
        momentum=0.95,
        adamw_learning_rate=0.01,
        betas=[0.9, 0.95],
    )


def train(model: TwoParts, optimizer: CombinedOptimizer, steps: range) -> None:
    for step in steps:
        tokens = torch.arange(5).roll(step)
        model(tokens).pow(2).sum().sub(step).pow(2).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("shape", [(64, 48), (48, 64), (128, 384)])
def test_updates_equal_those_of_pytorch_up_to_bfloat16_rounding(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(shape, generator=generator)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    options = {"momentum": 0.95, "weight_decay": 0.1}
    optimizers = (
        Muon([ours], learning_rate=0.02, **options),
        torch.optim.Muon([theirs], lr=0.02, adjust_lr_fn="match_rms_adamw", **options),
    )
    for _ in range(5):
        gradient = torch.randn(shape, generator=generator)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    change = (theirs - start).abs().max()
    assert (ours - theirs).abs().max() < 0.02 * change


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (1, 7)])
def test_an_orthogonalized_matrix_has_singular_values_near_1(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(2)).double()
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    result = orthogonalized(matrix)
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.65 and values.max() < 1.25
    assert (left.T @ result @ right.T).diagonal().min() > 0.6  # the singular vectors are kept


def test_muon_updates_matrices_of_blocks_and_adamw_everything_else() -> None:
    model = TwoParts()
    parts = build_optimizer(model).optimizers
    groups = [[p for group in part.param_groups for p in group["params"]] for part in parts]
    assert isinstance(parts[0], Muon) and isinstance(parts[1], torch.optim.AdamW)
    assert [p is model.blocks[0].weight for p in groups[0]] == [True]
    assert {id(p) for p in groups[1]} == {id(model.embedding.weight), id(model.bias)}


def test_training_resumes_from_a_state_dict_bit_for_bit() -> None:
    torch.manual_seed(0)
    uninterrupted = TwoParts()
    resumed = copy.deepcopy(uninterrupted)
    train(uninterrupted, build_optimizer(uninterrupted), range(6))
    first = build_optimizer(resumed)
    train(resumed, first, range(3))
    second = build_optimizer(resumed)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(resumed, second, range(3, 6))
    for a, b in zip(uninterrupted.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_schedule_scales_the_learning_rate_of_both_optimizers() -> None:
    optimizer = build_optimizer(TwoParts())
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
    assert [group["lr"] for part in optimizer.optimizers for group in part.param_groups] == [
        0.01,
        0.005,
    ]
