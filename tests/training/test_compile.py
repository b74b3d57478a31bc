"""`compile=` changes how fast a step is, not what it computes."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from omegaconf import DictConfig
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.exc import InvalidCxxCompiler

from compositions import num_layers, one_per_class
from posenc.config.errors import ConfigError
from posenc.config.settings import check_settings
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.model import linear
from posenc.model.build import build_model
from posenc.runs.run_directory import RunDirectory
from posenc.training import compilation
from posenc.training.compilation import MIN_STEPS, choose_compile
from posenc.training.module import LanguageModel
from posenc.training.optimizer import adamw

Configured = Callable[..., DictConfig]
SMALL = ["model.width=32", "model.layers=2", "model.heads=4", "model.feed_forward=64"]
LENGTH = 43
BY_KERNEL = ["rope", "alibi", "fox", "fire"]  # causal, toeplitz, factored, blocks
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def loss_and_gradients(config: DictConfig, *, compiled: bool) -> list[torch.Tensor | None]:
    tokens = torch.randint(0, 50, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    optimizer = partial(adamw, learning_rate=1e-3, betas=[0.9, 0.95], weight_decay=0.1)
    model = build_model(config, 50)
    module = LanguageModel(model, optimizer, lambda *_: 1.0, 1, 1, compile=compiled)
    torch.manual_seed(0)
    loss = module.training_step((tokens, tokens, float(tokens.numel())), 0)
    loss.backward()
    assert not [name for name in module.state_dict() if "_orig_mod" in name]
    return [loss.detach(), *(parameter.grad for parameter in model.parameters())]


def layers_differ(config: DictConfig) -> bool:
    """Whether layers have different encodings or separate parameters, also inside a wrapper."""
    return any(wrapper in str(config.encoding) for wrapper in (".Interleave", ".Untied"))


def assert_compiled_equals_eager(config: DictConfig) -> None:
    torch._dynamo.reset()
    eager = loss_and_gradients(config, compiled=False)
    for expected, compiled in zip(eager, loss_and_gradients(config, compiled=True), strict=True):
        assert (expected is None) == (compiled is None)
        if expected is not None:
            torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", BY_KERNEL)
@pytest.mark.filterwarnings("ignore")  # the compiler's own warnings
def test_a_compiled_step_equals_an_eager_one(encoding: str, configured: Configured) -> None:
    config = configured(f"encoding={encoding}", f"train_length={LENGTH}", *SMALL)
    config.model.layers = 1
    assert_compiled_equals_eager(config)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", one_per_class())
@pytest.mark.filterwarnings("ignore")
def test_every_encoding_can_be_traced_by_the_compiler(
    encoding: str, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traced graph and its gradients equal eager mode; only code generation is left out."""
    compiler: Any = partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", compiler)
    config = configured(f"encoding={encoding}", f"train_length={LENGTH}", *SMALL)
    config.model.layers = num_layers(encoding) if layers_differ(config) else 1
    assert_compiled_equals_eager(config)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_float32_products_use_onednn(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both passes call the operator, even on processors where posenc would not choose it."""
    if linear.ONEDNN_LINEAR is None:
        pytest.fail("this PyTorch has no oneDNN")
    monkeypatch.setattr(linear, "ONEDNN_AVAILABLE", True)
    graphs: list[str] = []

    def keep_graph(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph.code)
        return make_boxed_func(graph.forward)

    compiler: Any = partial(torch.compile, backend=aot_autograd(fw_compiler=keep_graph))
    monkeypatch.setattr(torch, "compile", compiler)
    assert_compiled_equals_eager(configured("encoding=rope", f"train_length={LENGTH}", *SMALL))
    assert len(graphs) == 2 and all("posenc.onednn_linear" in graph for graph in graphs)


def test_auto_does_not_compile_in_float32_on_a_cpu() -> None:
    assert not choose_compile("auto", CPU, "float32").enabled


def test_auto_compiles_in_bf16_on_a_cpu_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "has_bf16_instructions", lambda: True)
    assert choose_compile("auto", CPU, "bf16").enabled
    assert choose_compile("auto", CPU, "bf16", num_steps=MIN_STEPS).enabled
    assert not choose_compile("auto", CPU, "bf16", num_steps=MIN_STEPS - 1).enabled
    monkeypatch.setattr(compilation, "has_bf16_instructions", lambda: False)
    assert not choose_compile("auto", CPU, "bf16").enabled


def test_auto_compiles_on_a_gpu_with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)
    assert choose_compile("auto", CUDA, "float32", num_steps=MIN_STEPS).enabled
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: False)
    choice = choose_compile("auto", CUDA, "float32", num_steps=MIN_STEPS)
    assert not choice.enabled and "Triton" in choice.reason


def test_without_a_compiler_true_is_an_error_and_auto_uses_eager_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compilation, "has_bf16_instructions", lambda: True)

    def find_no_compiler() -> None:
        raise InvalidCxxCompiler

    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", find_no_compiler)
    with pytest.raises(ConfigError, match=r"C\+\+ compiler.*compile=false"):
        choose_compile(True, CPU, "float32")
    choice = choose_compile("auto", CPU, "bf16")
    assert not choice.enabled and "C++ compiler" in choice.reason


@pytest.mark.parametrize("value", ["1", "yes", "maybe"])
def test_other_values_of_compile_are_rejected(value: str, configured: Configured) -> None:
    config = configured(f"compile={value}")
    with pytest.raises(ConfigError, match="auto, true, false"):
        check_settings(config)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_records_the_choice_and_how_long_compiling_took(
    small_run: Callable[..., RunDirectory], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="posenc")
    run = small_run("compile=true", "name=compiled")
    assert job([str(run.path)]) == FINISHED, run.status().error
    status = run.status()
    assert status.resolved["compile"] is True
    assert status.resolved["compile_reason"] == "compile=true"
    assert status.compile_seconds is not None and status.compile_seconds > 0
    assert f"torch.compile took {status.compile_seconds:.1f} s" in caplog.text
    eager = small_run("compile=auto", "name=eager")
    assert job([str(eager.path)]) == FINISHED, eager.status().error
    assert eager.status().resolved["compile"] is False
    assert eager.status().compile_seconds is None
