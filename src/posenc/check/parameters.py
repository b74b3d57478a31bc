"""Properties of an encoding's numeric configuration parameters."""

from collections.abc import Iterator

import torch
from omegaconf import DictConfig, ListConfig
from torch import Tensor

from posenc.check.under_test import (
    EXACT_TOLERANCE,
    Changes,
    EncodingUnderTest,
    Result,
    compute_logits,
    failed,
    max_difference,
    passed,
    random_tokens,
)
from posenc.config.errors import ConfigError
from posenc.model.transformer import Decoder

TEST_LENGTH = 200
PROGRESS_STEPS = 16
CONDITIONS = [
    (False, 0.0),
    (True, 0.0),
    *((False, part / PROGRESS_STEPS) for part in range(1, PROGRESS_STEPS + 1)),
]
"""(whether in training mode, fraction of training done) under which outputs are compared."""


class LogitsByCondition:
    """A model's logits at one length under each condition, computed when first needed."""

    def __init__(self, model: Decoder, length: int) -> None:
        self.model, self.length = model, length
        self.computed: list[Tensor] = []
        self[0]  # before another model is built, which might change this one

    def __getitem__(self, index: int) -> Tensor:
        """Return the logits under condition `index`."""
        while len(self.computed) <= index:
            training, fraction = CONDITIONS[len(self.computed)]
            self.model.encoding.set_training_progress(fraction)
            tokens = random_tokens(self.length, batch=1)
            self.computed.append(compute_logits(self.model, tokens, training=training))
        return self.computed[index]

    def difference(self, other: "LogitsByCondition") -> float:
        """Return the max_difference under the first condition that has one; 0 if none has."""
        for index in range(len(CONDITIONS)):
            difference = max_difference(self[index], other[index])
            if EXACT_TOLERANCE < difference < float("inf"):
                return difference
        return 0.0


@torch.no_grad()
def parameters_have_effect(under_test: EncodingUnderTest) -> Result:
    """every numeric parameter has an effect"""
    parameters = list(numeric_parameters(under_test.config.encoding, "encoding"))
    settings = _settings(under_test) if parameters else []
    evidence = []
    for key, value in parameters:
        without_effect: dict[str, None] = {}
        effects = (
            _effect(under_test, settings, key, other, without_effect)
            for other in alternative_values(value)
        )
        effect = next((effect for effect in effects if effect), None)
        if effect is None:
            return failed(f"{key}={value:g}: {'; '.join(without_effect)}")
        evidence.append(f"{key} {effect}")
    return passed("; ".join(evidence) or "there are none")


def _settings(under_test: EncodingUnderTest) -> list[tuple[LogitsByCondition, Changes]]:
    """Return reference outputs at a longer training length, and past the configured one."""
    settings: list[tuple[LogitsByCondition, Changes]] = []
    for length, changes in [
        under_test.supported_train_length(TEST_LENGTH),
        under_test.supported_length(TEST_LENGTH),
    ]:
        if changes not in [other for _, other in settings]:
            settings.append((LogitsByCondition(under_test.model(changes), length), changes))
    return settings


def _effect(
    under_test: EncodingUnderTest,
    settings: list[tuple[LogitsByCondition, Changes]],
    key: str,
    value: float,
    without_effect: dict[str, None],
) -> str | None:
    """Return the effect of another value; if there is none, add the reason to `without_effect`."""
    for reference, changes in settings:
        try:
            other = LogitsByCondition(under_test.model({**changes, key: value}), reference.length)
            if difference := reference.difference(other):
                return f"by {difference:.1e}"
        except (ConfigError, ValueError) as error:
            without_effect[f"{value:g} is refused ({error})"] = None
            continue
        limit = other.model.encoding.max_length()
        if limit != reference.model.encoding.max_length():
            return f"changes the maximum length to {limit}"
        without_effect[f"{value:g} changes nothing"] = None
    return None


@torch.no_grad()
def instances_are_independent(under_test: EncodingUnderTest) -> Result:
    """instances do not affect each other"""
    model, tokens = under_test.model({}), random_tokens(under_test.length)
    before = compute_logits(model, tokens)
    others: list[Changes] = [{"train_length": 2 * under_test.length}]
    for key, value in numeric_parameters(under_test.config.encoding, "encoding"):
        others += [{key: other} for other in alternative_values(value)[:2]]
    for changes in others:
        try:
            compute_logits(under_test.model(changes), tokens)
        except (ConfigError, ValueError):
            continue
        if (difference := max_difference(before, compute_logits(model, tokens))) > 0:
            settings = ", ".join(f"{key}={value}" for key, value in changes.items())
            return failed(f"the first changes by {difference:.1e} after another with {settings}")
    return passed(f"unchanged after {len(others)} others")


def numeric_parameters(node: DictConfig | ListConfig, path: str) -> Iterator[tuple[str, float]]:
    """Yield key and value of every number in a node, at any depth."""
    items = (
        ((f"{path}.{key}", node[key]) for key in node)
        if isinstance(node, DictConfig)
        else ((f"{path}[{index}]", value) for index, value in enumerate(node))
    )
    for key, value in items:
        if isinstance(value, DictConfig | ListConfig):
            yield from numeric_parameters(value, key)
        elif type(value) in (int, float):
            yield key, value


def alternative_values(value: float) -> list[float]:
    """Return other values to test: twice the value, or smaller ones if that is not possible."""
    if value == 0:
        return [1, 0.5, -1]
    smaller = [value / 2, value // 2, value / 16, value // 16]
    values = [int(number) if number == int(number) else number for number in (value * 2, *smaller)]
    return [number for number in dict.fromkeys(values) if number not in (0, value)]
