"""What is run for each pass, and in which order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from posenc.benchmark import timing
from posenc.benchmark.passes import Passes
from posenc.benchmark.variants import Variant
from posenc.training.optimizer import adamw

Variants = Callable[..., list[Variant]]


def passes_of(variants: Variants, *words: str) -> Passes:
    return Passes(variants("encoding=t5", "train_length=16", *words)[0].config)


def weights(passes: Passes) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in passes.model.parameters()])


def test_a_step_is_the_gradient_clipped_and_adamw(variants: Variants) -> None:
    ours, other = (passes_of(variants, "gradient_clip=0.1") for _ in range(2))
    ours.run("step", ours.tokens)
    optimizer = adamw(other.model, learning_rate=2e-3, betas=[0.9, 0.95], weight_decay=0.1)
    other.model.losses(other.tokens, other.tokens).mean().backward()
    assert nn.utils.clip_grad_norm_(other.model.parameters(), 0.1) > 0.1
    optimizer.step()
    assert torch.equal(weights(ours), weights(other))
    assert all(p.grad is None for p in ours.model.parameters())


def test_micro_batches_make_the_same_step(variants: Variants) -> None:
    whole, parts = passes_of(variants), passes_of(variants, "micro_batch_tokens=16")
    for passes in (whole, parts):
        passes.run("step", passes.tokens)
    torch.testing.assert_close(weights(whole), weights(parts), rtol=0, atol=1e-5)


def test_forward_needs_no_gradients_and_changes_nothing(variants: Variants) -> None:
    passes, seen = passes_of(variants, "precision=bf16"), []
    passes.model.norm.register_forward_hook(lambda _, __, out: seen.append(out.requires_grad))
    passes.model.get_submodule("blocks.0.feed_forward.up").register_forward_hook(
        lambda _, __, out: seen.append(out.dtype)
    )
    before = weights(passes)
    passes.run("forward", passes.tokens)
    assert seen == [torch.bfloat16, False] and not passes.model.training
    assert torch.equal(before, weights(passes))


def test_rounds_run_there_and_back_and_are_told_in_order(
    variants: Variants, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, str]] = []

    class Clock:
        """Stands in for a model: its seconds are how many passes have been run."""

        def __init__(self, config: Any) -> None:
            self.name = config.choices.encoding

        def seconds(self, pass_: str) -> float:
            ran.append((self.name, pass_))
            return len(ran)

    monkeypatch.setattr(timing, "Passes", Clock)
    found = variants("encoding=nope,alibi", "passes=[step]", "train_length=16")
    request = {
        "configs": [OmegaConf.to_container(v.config) for v in found],
        "variants": [(0, "step"), (1, "step")],
        "rounds": 3,
    }
    answers = list(timing.rounds(request))
    there, back = [("nope", "step"), ("alibi", "step")], [("alibi", "step"), ("nope", "step")]
    assert ran == [*there, *back, *there]
    assert [answer["seconds"] for answer in answers] == [[1, 2], [4, 3], [5, 6]]
    assert all(answer["products"]["float32"] > 0 for answer in answers)
