"""Builds the encoding and the model that a configuration describes."""

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from posenc.attention.choice import kernel_function, layer_choices
from posenc.config.component_types import import_target
from posenc.config.components import build, check
from posenc.config.errors import ConfigError
from posenc.config.settings import evaluation_lengths
from posenc.config.user_code import definition_location, error_location
from posenc.encodings.base import Encoding, Geometry
from posenc.model.device import attention_dtype, deterministic_numerics
from posenc.model.transformer import (
    Decoder,
    derive_seed,
    initialize,
    restored_random_state,
    seed_cpu,
)
from posenc.runs.hardware import memory_bytes

ALLOCATING_FUNCTIONS = {
    torch.arange,
    torch.empty,
    torch.eye,
    torch.full,
    torch.linspace,
    torch.ones,
    torch.rand,
    torch.randint,
    torch.randn,
    torch.zeros,
}


def check_kernel(config: DictConfig, encoding: Encoding, device: torch.device) -> None:
    """Check that a kernel requested by name supports L and the longest evaluation length.

    Raises UnsupportedKernelError if it does not support the encoding. `auto` always finds
    one that does.
    """
    if config.kernel == "auto":
        return
    dtype = attention_dtype(config.precision)
    for length in (config.train_length, max(evaluation_lengths(config))):
        layer_choices(config.kernel, encoding, device, dtype, length)


def build_model(
    config: DictConfig,
    vocab_size: int,
    encoding: Encoding | None = None,
    kernel: str | None = None,
) -> Decoder:
    """Return the model that `config` describes, with weights initialized from its seed.

    `encoding` is the untrained encoding of `config`, if the caller has already built it; `kernel`
    is used instead of the kernel of `config`. Raises ConfigError for parameters that the model or
    the encoding rejects, such as a number of heads that does not divide the width.
    """
    encoding = encoding or build_encoding(config)
    model = _build_decoder(config, vocab_size, encoding, kernel or config.kernel)
    initialize(model, config.seed)
    return model


def build_meta_model(
    config: DictConfig, vocab_size: int, encoding: Encoding | None = None
) -> Decoder:
    """Return the model on the meta device; only the encoding has real weights.

    `encoding` is the encoding of `config`, if the caller has already built it.
    """
    encoding = encoding or build_encoding(config)
    with torch.device("meta"):
        return _build_decoder(config, vocab_size, encoding, config.kernel)


def check_memory(parameters: int) -> None:
    """Raise ConfigError if a model's weights in float32 exceed the main memory of this machine."""
    weights, memory = 4 * parameters, memory_bytes()
    if weights > memory:
        subject = f"model: {parameters:,} parameters"
        raise _memory_error(subject, weights, memory, "use a smaller model")


def _memory_error(subject: str, size: int, memory: int, remedy: str) -> ConfigError:
    return ConfigError(
        f"{subject} take {size / 1e9:,.0f} GB, but this machine has {memory / 1e9:,.0f} GB of"
        f" memory; {remedy}"
    )


def _build_decoder(config: DictConfig, vocab_size: int, encoding: Encoding, kernel: str) -> Decoder:
    modules = list(config.get("modules") or [])
    attend = kernel_function(kernel)
    with restored_random_state():
        seed_cpu(derive_seed(config.seed, "model"))  # for values that `initialize` does not draw
        return build(config.model, vocab_size, encoding, attend, name="model", modules=modules)


@deterministic_numerics()
def build_encoding(config: DictConfig) -> Encoding:
    """Return the encoding, with parameters initialized from the run's seed.

    Torch settings that its code changes, such as the default dtype, are restored. Raises
    ConfigError if the encoding rejects its parameters or is not an `Encoding`.
    """
    modules = list(config.get("modules") or [])
    check(config.model, name="model", modules=modules)
    try:
        geometry = Geometry(
            width=config.model.width,
            heads=config.model.heads,
            layers=config.model.layers,
            train_length=config.train_length,
        )
    except ValueError as error:
        raise ConfigError(f"model: {error}") from None
    definition = import_target(config.encoding, "encoding", modules)
    _check_constructor(definition)
    with restored_random_state():
        seed_cpu(derive_seed(config.seed, "encoding"))
        try:
            with _MemoryLimit():
                encoding = build(config.encoding, geometry, name="encoding", modules=modules)
        except ConfigError as error:
            raise _with_location(error, definition) from None
    _check_initialized(encoding)
    return encoding


class _MemoryLimit(TorchFunctionMode):
    """Raises ConfigError before allocating tensors that together exceed the main memory.

    Linux would grant the memory, and kill the process when the tensors are filled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memory = memory_bytes()
        self.allocated = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in ALLOCATING_FUNCTIONS:
            options = {key: kwargs[key] for key in kwargs if key not in ("generator", "out")}
            self.allocated += func(*args, **{**options, "device": "meta"}).nbytes
            if self.allocated > self.memory:
                subject, remedy = "encoding: its tensors", "use smaller values for its parameters"
                raise _memory_error(subject, self.allocated, self.memory, remedy)
        return func(*args, **kwargs)


def _check_initialized(module: nn.Module) -> None:
    """Raise ConfigError for a lazy parameter, or if `super().__init__` has not been called."""
    is_encoding = isinstance(module, Encoding)
    if "_modules" not in vars(module) or (is_encoding and not hasattr(module, "geometry")):
        definition = type(module)
        call, example = "super().__init__()", ""
        if is_encoding:
            call, example = "super().__init__(geometry)", " in def __init__(self, geometry, *, ...)"
        raise ConfigError(
            f"{definition_location(definition.__init__)}: {definition.__name__}.__init__ does not"
            f" call {call}; call it first{example}"
        )
    for name, parameter in module.named_parameters(recurse=False):
        if is_lazy(parameter):
            raise ConfigError(
                f"{definition_location(type(module))}: the parameter {name} of"
                f" {type(module).__name__} has no shape before the first call; use a module that"
                f" is not lazy, such as nn.Linear"
            )
    for child in module.children():
        _check_initialized(child)


def _check_constructor(definition: Callable[..., Any]) -> None:
    """Raise ConfigError unless a target is a function, or an Encoding that takes a Geometry."""
    if not inspect.isclass(definition):
        return
    name = definition.__name__
    if not issubclass(definition, Encoding):
        raise ConfigError(
            f"{definition_location(definition)}: {name} is not an encoding; write"
            f" class {name}(Encoding), with Encoding from posenc.encodings.base"
        )
    first = next(iter(inspect.signature(definition).parameters.values()), None)
    if first is None or first.kind is Parameter.KEYWORD_ONLY:
        raise ConfigError(
            f"{definition_location(definition.__init__)}: {name}.__init__ takes"
            f" {inspect.signature(definition.__init__)}, but must take the geometry first:"
            f" def __init__(self, geometry, *, ...), which calls super().__init__(geometry)"
        )


def _with_location(error: ConfigError, definition: Callable[..., Any]) -> ConfigError:
    """Return a constructor's error, prefixed with the line in the user's file that raised it.

    An error caused by a ValueError is returned unchanged: its message is about the parameters.
    """
    cause = error.__cause__ and (error.__cause__.__cause__ or error.__cause__)
    if cause is None or isinstance(cause, ConfigError | ValueError):
        return error
    location = error_location(cause, [definition])
    return ConfigError(f"{location}: {error}") if location else error
