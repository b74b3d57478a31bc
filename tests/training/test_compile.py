"""`compile=true` changes how fast a step is, not what it computes."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from omegaconf import DictConfig

from posenc.model.build import build_model
from posenc.training.module import LanguageModel
from posenc.training.optimizer import adamw

Configured = Callable[..., DictConfig]
SMALL = ["model.width=32", "model.layers=2", "model.heads=4", "model.feed_forward=64"]
BY_KERNEL = ["rope", "alibi", "fox", "fire"]  # causal, toeplitz, factored, blocks


@pytest.mark.slow
@pytest.mark.parametrize("encoding", BY_KERNEL)
@pytest.mark.filterwarnings("ignore")  # the compiler's own warnings
def test_a_compiled_step_equals_a_plain_one(encoding: str, configured: Configured) -> None:
    config = configured(f"encoding={encoding}", "train_length=48", *SMALL)
    tokens = torch.randint(0, 50, (2, 48), generator=torch.Generator().manual_seed(0))
    results = []
    for compiled in (False, True):
        model = build_model(config, 50)
        optimizer = partial(adamw, learning_rate=1e-3, betas=[0.9, 0.95], weight_decay=0.1)
        module = LanguageModel(model, optimizer, lambda *_: 1.0, 1, 1, compile=compiled)
        loss = module.training_step((tokens, tokens, float(tokens.numel())), 0)
        loss.backward()
        assert not [name for name in module.state_dict() if "_orig_mod" in name]
        results.append([loss.detach(), *(p.grad for p in model.parameters())])
    for plain, compiled in zip(*results, strict=True):
        assert plain is not None and compiled is not None
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-6)
