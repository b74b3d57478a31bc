"""The computations of each pass, and the order in which variants are timed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from posenc.benchmark import measurement_process
from posenc.benchmark.measurement_process import BenchmarkedAttention, BenchmarkedModel
from posenc.benchmark.variants import Variant
from posenc.training.optimizer import adamw

Variants = Callable[..., list[Variant]]


def t5_model(variants: Variants, *overrides: str) -> BenchmarkedModel:
    return BenchmarkedModel(variants("encoding=t5", "train_length=16", *overrides)[0].config)


def weights(model: BenchmarkedModel) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.model.parameters()])


def test_a_step_applies_adamw_to_the_clipped_gradient(variants: Variants) -> None:
    ours, other = (t5_model(variants, "gradient_clip=0.1") for _ in range(2))
    ours.run("step", ours.tokens)
    optimizer = adamw(other.model, learning_rate=2e-3, betas=[0.9, 0.95], weight_decay=0.1)
    other.model.losses(other.tokens, other.tokens).mean().backward()
    assert nn.utils.clip_grad_norm_(other.model.parameters(), 0.1) > 0.1
    optimizer.step()
    assert torch.equal(weights(ours), weights(other))
    assert all(p.grad is None for p in ours.model.parameters())


def test_micro_batches_give_the_same_step(variants: Variants) -> None:
    whole, parts = t5_model(variants), t5_model(variants, "micro_batch_tokens=16")
    for model in (whole, parts):
        model.model.double()  # AdamW's first step amplifies the rounding of small gradients
        model.run("step", model.tokens)
    torch.testing.assert_close(weights(whole), weights(parts), rtol=0, atol=1e-9)


def test_a_forward_pass_has_no_gradients_and_changes_no_weights(variants: Variants) -> None:
    model, observed = t5_model(variants, "precision=bf16"), []
    model.model.norm.register_forward_hook(lambda _, __, out: observed.append(out.requires_grad))
    model.model.get_submodule("blocks.0.feed_forward.up").register_forward_hook(
        lambda _, __, out: observed.append(out.dtype)
    )
    before = weights(model)
    model.run("forward", model.tokens)
    assert observed == [torch.bfloat16, False] and not model.model.training
    assert torch.equal(before, weights(model))


def test_every_other_round_runs_in_reverse_and_is_reported_in_order(
    variants: Variants, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []

    class FakeModel:
        """A model whose pass takes as many seconds as the number of passes so far."""

        def __init__(self, config: Any) -> None:
            self.name = config.choices.encoding

        def pass_seconds(self, pass_: str) -> float:
            calls.append((self.name, pass_))
            return len(calls)

    monkeypatch.setattr(measurement_process, "BenchmarkedModel", FakeModel)
    pair = variants("encoding=nope,alibi", "passes=[step]", "train_length=16")
    request = {
        "configs": [OmegaConf.to_container(v.config) for v in pair],
        "variants": [(0, "step"), (1, "step")],
        "rounds": 3,
    }
    answers = list(measurement_process.time_rounds(request))
    in_order, reversed_order = (
        [("nope", "step"), ("alibi", "step")],
        [("alibi", "step"), ("nope", "step")],
    )
    assert calls == [*in_order, *reversed_order, *in_order]
    assert [answer["seconds"] for answer in answers] == [[1, 2], [4, 3], [5, 6]]
    assert all(answer["matmuls"]["float32"] > 0 for answer in answers)


@pytest.mark.parametrize("encoding", ["rope", "kerple_log", "fox"])
def test_attention_alone_equals_the_reference_kernel_and_has_its_gradients(
    variants: Variants, encoding: str
) -> None:
    auto, reference = (
        BenchmarkedAttention(v.config)
        for v in variants(
            f"encoding={encoding}",
            "kernel=auto,reference",
            "train_length=16",
            "passes=[attention_step]",
        )
    )
    torch.testing.assert_close(auto.forward(), reference.forward())
    for result, expected in zip(auto.step(), reference.step(), strict=True):
        assert (result is None) == (expected is None)
        if result is not None and expected is not None:
            torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)


def test_attention_is_timed_alongside_the_model(variants: Variants) -> None:
    pair = variants("encoding=alibi", "passes=[forward,attention_step]", "train_length=16")
    request = {
        "configs": [OmegaConf.to_container(pair[0].config)],
        "variants": [(0, v.pass_) for v in pair],
        "rounds": 2,
    }
    answers = list(measurement_process.time_rounds(request))
    assert [len(answer["seconds"]) for answer in answers] == [2, 2]
    assert all(seconds > 0 for answer in answers for seconds in answer["seconds"])
