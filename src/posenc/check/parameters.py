"""Properties of an encoding's numeric configuration parameters."""

from collections.abc import Iterator
from itertools import product

import torch
from omegaconf import DictConfig, ListConfig
from torch import Tensor

from posenc.check.encoding_under_test import (
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
from posenc.config.errors import ConfigError, plural
from posenc.encodings.base import layer_encodings
from posenc.model.transformer import Decoder

TEST_LENGTH = 200
PROGRESS_STEPS = 16
CONDITIONS: list[tuple[bool, float, int | None]] = [
    (False, 0.0, None),
    (True, 0.0, None),
    *((False, 0.0, axes) for axes in (2, 3)),
    *((False, step / PROGRESS_STEPS, None) for step in range(1, PROGRESS_STEPS + 1)),
]
"""Training mode, fraction of training completed and number of coordinate axes or None."""


class LogitsByCondition:
    """A model's logits at one length under each of CONDITIONS.

    Those under the first condition are computed immediately, because building another model might
    change this one; the others are computed when they are first needed.
    """

    def __init__(self, model: Decoder, length: int) -> None:
        self.model, self.length = model, length
        self.logits: list[Tensor | None] = [self._compute(0)]

    def __getitem__(self, index: int) -> Tensor | None:
        """Return the logits under condition `index`; None if coordinates are not supported."""
        while len(self.logits) <= index:
            self.logits.append(self._compute(len(self.logits)))
        return self.logits[index]

    def _compute(self, index: int) -> Tensor | None:
        training, fraction, axes = CONDITIONS[index]
        self.model.encoding.set_training_progress(fraction)
        tokens = random_tokens(self.length, batch=1)
        if axes is None:
            return compute_logits(self.model, tokens, training=training)
        pos = torch.arange(self.length)[None, :, None] * torch.arange(1, axes + 1) % 50
        try:
            return compute_logits(self.model, tokens, pos, training=training)
        except Exception:  # a user's encoding may raise anything for coordinates
            return None

    @property
    def depends_on_progress(self) -> bool:
        """Whether the encoding of the model or of one of its layers reads the training progress."""
        encoding = self.model.encoding
        parts = (encoding, *layer_encodings(encoding))
        return any(part.overrides("set_training_progress") for part in parts)

    def difference(self, other: "LogitsByCondition") -> float:
        """Return the maximum difference under the first condition where the logits differ, or 0.

        Conditions with an infinite difference are ignored.
        """
        progress = self.depends_on_progress or other.depends_on_progress
        for index, (_, fraction, _) in enumerate(CONDITIONS):
            if fraction > 0 and not progress:
                break
            a, b = self[index], other[index]
            difference = 0.0 if a is None or b is None else max_difference(a, b)
            if EXACT_TOLERANCE < difference < float("inf"):
                return difference
        return 0.0


References = list[tuple[LogitsByCondition, Changes]]
"""Logits to compare with, and the configuration changes that they require."""


@torch.no_grad()
def parameters_have_effect(under_test: EncodingUnderTest) -> Result:
    """every numeric parameter has an effect"""
    parameters = list(numeric_parameters(under_test.config.encoding, "encoding"))
    references = _references(under_test, {}) if parameters else []
    with_one_head: References = []
    evidence = []
    for key, value in parameters:
        reasons: dict[str, None] = {}
        effect = _effect(under_test, references, key, value, reasons)
        if effect is None:  # a single, wider head has more frequencies
            with_one_head = with_one_head or _references(under_test, {"model.heads": 1})
            effect = _effect(under_test, with_one_head, key, value, reasons)
        if effect is None:
            return failed(f"{key}={value:g}: {'; '.join(reasons)}")
        evidence.append(f"{key} {effect}")
    return passed("; ".join(evidence) or "no numeric parameters")


def _references(under_test: EncodingUnderTest, model_changes: Changes) -> References:
    """Return reference logits of TEST_LENGTH tokens, or as many as the encoding supports.

    If possible, they are computed for two training lengths: TEST_LENGTH, and the configured one,
    which is usually shorter. `model_changes` change the size of the model.
    """
    references: References = []
    for length, required in [
        under_test.supported_train_length(TEST_LENGTH),
        under_test.supported_length(TEST_LENGTH),
    ]:
        changes = {**required, **model_changes}
        if changes not in [other for _, other in references]:
            references.append((LogitsByCondition(under_test.build_model(changes), length), changes))
    return references


def _effect(
    under_test: EncodingUnderTest,
    references: References,
    key: str,
    value: float,
    reasons: dict[str, None],
) -> str | None:
    """Return the effect of the first alternative to `value` that has one.

    The reasons why the others have none are added to `reasons`.
    """
    for new_value, (reference, changes) in product(alternative_values(value), references):
        try:
            model = under_test.build_model({**changes, key: new_value})
            other = LogitsByCondition(model, reference.length)
            if difference := reference.difference(other):
                return f"changes the logits by {difference:.1e}"
        except (ConfigError, ValueError) as error:
            reasons[f"{new_value:g} is rejected ({error})"] = None
            continue
        limit = other.model.encoding.max_length()
        if limit != reference.model.encoding.max_length():
            return f"changes the maximum length to {limit or 'unlimited'}"
        reasons[f"{new_value:g} changes nothing"] = None
    return None


@torch.no_grad()
def instances_are_independent(under_test: EncodingUnderTest) -> Result:
    """instances do not affect each other"""
    model, tokens = under_test.build_model({}), random_tokens(under_test.train_length)
    before = compute_logits(model, tokens)
    others: list[Changes] = [{"train_length": 2 * under_test.train_length}]
    for key, value in numeric_parameters(under_test.config.encoding, "encoding"):
        others += [{key: other} for other in alternative_values(value)[:2]]
    num_built = 0
    for changes in others:
        try:
            compute_logits(under_test.build_model(changes), tokens)
        except (ConfigError, ValueError):
            continue
        num_built += 1
        if (difference := max_difference(before, compute_logits(model, tokens))) > 0:
            settings = ", ".join(f"{key}={value}" for key, value in changes.items())
            return failed(
                f"building an encoding with {settings} changes the logits of an existing one by"
                f" {difference:.1e}"
            )
    return passed(f"unchanged after building {plural(num_built, 'other encoding')}")


def numeric_parameters(node: DictConfig | ListConfig, path: str) -> Iterator[tuple[str, float]]:
    """Yield the key and value of every number in a node, at any depth."""
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
    """Return other values to test: twice the value, then smaller ones (for 0: 1, 0.5 and -1)."""
    if value == 0:
        return [1, 0.5, -1]
    smaller = [value / 2, value // 2, value / 16, value // 16]
    values = [int(number) if number == int(number) else number for number in (value * 2, *smaller)]
    return [number for number in dict.fromkeys(values) if number not in (0, value)]
