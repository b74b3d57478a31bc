"""Verification of user-defined encodings, models, optimizers and schedules before training.

A mistake that would give wrong results, or other results after a resume, is reported before the
first run starts.
"""

import copy
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from posenc.check import verify_encoding
from posenc.check.hook_values import describe_value
from posenc.config.component_types import is_user_code
from posenc.config.components import build
from posenc.config.errors import ConfigError, first_line
from posenc.config.user_code import definition_location, user_code_error
from posenc.encodings.base import Encoding
from posenc.model.build import build_meta_model, build_model
from posenc.model.device import attention_dtype, deterministic_numerics, select_device
from posenc.model.transformer import Decoder, restored_random_state, seed_cpu
from posenc.training.optimizer import optimizer_factory
from posenc.training.schedule import build_scheduler

VERIFIED_SETTINGS = ["encoding", "model", "train_length", "precision"]
"""The settings that determine an encoding and its dtypes."""
MAX_VERIFIED_PARAMETERS = 50_000_000
"""Larger user-defined models would take seconds to build and are not verified."""


def verify(config: DictConfig, encoding: Encoding, verified: set[str]) -> None:
    """Call the hooks of an encoding on tiny inputs; raise ConfigError for the first mistake found.

    Skips encodings whose settings are in `verified`; new settings are added to it.
    """
    settings = OmegaConf.to_yaml(OmegaConf.masked_copy(config, VERIFIED_SETTINGS))
    if settings not in verified:
        verify_encoding(encoding, attention_dtype(config.precision))
        verified.add(settings)


def verify_model(config: DictConfig, vocab_size: int, verified: set[str]) -> None:
    """Call a user-defined model on a tiny input; raise ConfigError if it fails.

    Skips models for a GPU (they may not run on a CPU), models of more than MAX_VERIFIED_PARAMETERS,
    and models whose settings are in `verified`; new settings are added to it.
    """
    if not is_user_code(config.model._target_, "model") or select_device(config).type != "cpu":
        return
    settings = f"{vocab_size} {OmegaConf.to_yaml(OmegaConf.masked_copy(config, ['model']))}"
    if settings in verified:
        return
    verified.add(settings)
    meta_model = build_meta_model(config, vocab_size)
    if meta_model.parameter_count() > MAX_VERIFIED_PARAMETERS:
        return
    model_class = type(meta_model)
    tokens = torch.zeros(2, min(4, config.train_length), dtype=torch.long)
    scored = tokens.bool()
    scored[:, -1] = True
    try:
        with restored_random_state(), deterministic_numerics(), torch.no_grad():
            model = build_model(config, vocab_size, kernel="auto").eval()
            seed_cpu(1)
            losses = model.losses(tokens, tokens)
            hidden = model.hidden_states(tokens, scored=scored)
            seed_cpu(2)
            repeated = model.losses(tokens, tokens)
            seed_cpu(1)
            changed = model.losses(tokens + scored, tokens)  # the last token of each window differs
            rebuilt_losses = _rebuilt(model, config, vocab_size).losses(tokens, tokens)
    except ConfigError:
        raise
    except Exception as error:  # a user-defined model may raise anything
        raise user_code_error(error, model_class) from error
    location = f"{definition_location(model_class)}: {model_class.__name__}"
    call = f"{location}: losses(tokens, targets)"
    _check_shape(losses, tokens.shape, call)
    hidden_shape = torch.Size((len(tokens), config.model.width))
    _check_shape(hidden, hidden_shape, f"{location}: hidden_states(tokens, scored=mask)")
    _check_reproducible(call, losses, repeated, rebuilt_losses)
    if _differ(losses[:, :-1], changed[:, :-1]) and "causal" not in model.encoding.limitations:
        raise ConfigError(f"{call} depends on later tokens, which the model is trained to predict")


def _rebuilt(model: Decoder, config: DictConfig, vocab_size: int) -> Decoder:
    """Return a new model with the same weights; raise ConfigError if it cannot load them."""
    rebuilt = build_model(config, vocab_size, kernel="auto").eval()
    try:
        rebuilt.load_state_dict(model.state_dict())
    except RuntimeError as error:
        raise ConfigError(
            f"{definition_location(type(model))}: a new {type(model).__name__} cannot load the"
            f" weights of one that has been called ({first_line(error)}); register buffers in"
            f" __init__, or with persistent=False"
        ) from None
    return rebuilt


def _check_reproducible(
    call: str, losses: Tensor, repeated: Tensor, rebuilt_losses: Tensor
) -> None:
    """Raise ConfigError if losses are not finite, or differ in a second call or a second model."""
    if not losses.isfinite().all():
        raise ConfigError(f"{call} returned NaN or infinite values")
    if _differ(losses, repeated):
        raise ConfigError(
            f"{call} depends on random numbers in evaluation; use dropout only if self.training is"
            f" true"
        )
    if _differ(losses, rebuilt_losses):
        raise ConfigError(
            f"{call} differs in a second model with the same weights; save random values in"
            f" buffers, or draw them from torch's global generator"
        )


def _differ(losses: Tensor, others: Tensor) -> bool:
    return not torch.allclose(losses, others, rtol=1e-4, atol=1e-4)


def _check_shape(output: Any, shape: torch.Size, call: str) -> None:
    """Raise ConfigError unless a model's output for two windows is a tensor of this shape."""
    is_tensor = isinstance(output, torch.Tensor)
    if is_tensor and output.shape == shape:
        return
    returned = f"the shape {list(output.shape)}" if is_tensor else describe_value(output)
    raise ConfigError(
        f"{call} returned {returned}, expected a tensor of shape {list(shape)} for two windows with"
        f" one scored token each"
    )


def verify_optimizer(config: DictConfig) -> None:
    """Raise ConfigError if an optimizer that loads the saved state takes a different next step."""
    with restored_random_state():
        model, optimizer = _model_and_optimizer(config)
        resumed_model, resumed_optimizer = _model_and_optimizer(config)
        for gradient in (0.5, -0.25, 1.0):
            _step(optimizer, gradient)
        resumed_model.load_state_dict(model.state_dict())
        resumed_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        _step(optimizer, 0.75)
        _step(resumed_optimizer, 0.75)
    are_equal = partial(torch.allclose, rtol=0.0, atol=0.0, equal_nan=True)
    if not all(map(are_equal, model.parameters(), resumed_model.parameters())):
        raise ConfigError(
            f"optimizer={config.optimizer._target_} takes a different step after load_state_dict"
            f" has loaded its state_dict, so a resumed run would differ; keep all its state in"
            f" self.state or self.param_groups"
        )


def verify_schedule(config: DictConfig, total_steps: int) -> None:
    """Raise ConfigError if a schedule that loads the saved state continues with another rate."""
    with restored_random_state():
        optimizer, scheduler = _optimizer_and_scheduler(config, total_steps)
        for _ in range(min(3, total_steps - 1)):
            _step_schedule(optimizer, scheduler)
        resumed_optimizer, resumed_scheduler = _optimizer_and_scheduler(config, total_steps)
        resumed_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        resumed_scheduler.load_state_dict(copy.deepcopy(scheduler.state_dict()))
        _step_schedule(optimizer, scheduler)
        _step_schedule(resumed_optimizer, resumed_scheduler)
    if _learning_rates(optimizer) != _learning_rates(resumed_optimizer):
        raise ConfigError(
            f"schedule={config.schedule._target_} continues with a different learning rate after a"
            f" resume; compute it from `step` alone, or return a torch LRScheduler whose state_dict"
            f" contains its state"
        )


def _optimizer_and_scheduler(
    config: DictConfig, total_steps: int
) -> tuple[torch.optim.Optimizer, LRScheduler]:
    _, optimizer = _model_and_optimizer(config)
    schedule = build(config.schedule, name="schedule", modules=list(config.modules))
    return optimizer, build_scheduler(schedule, optimizer, total_steps)


def _step_schedule(optimizer: torch.optim.Optimizer, scheduler: LRScheduler) -> None:
    _step(optimizer, 0.0)
    scheduler.step()


def _learning_rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def _model_and_optimizer(config: DictConfig) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    seed_cpu(0)  # as in training, random numbers are the same whenever the optimizer is built
    model = torch.nn.Linear(1, 1)
    return model, optimizer_factory(config)(model)


def _step(optimizer: torch.optim.Optimizer, gradient: float) -> None:
    seed_cpu(0)  # for optimizers that add noise
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        parameter.grad = torch.full_like(parameter, gradient)
    optimizer.step()
