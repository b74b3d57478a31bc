"""Properties of an encoding's numeric knobs."""

from collections.abc import Iterator

import torch
from omegaconf import DictConfig, ListConfig
from torch import Tensor

from posenc.check.subject import Changes, Subject, output, tokens
from posenc.check.verdict import EXACT, Verdict, deviation, fails, holds
from posenc.config.errors import ConfigError
from posenc.model.decoder import Decoder

LENGTH = 200
SHARES = 16
CIRCUMSTANCES = [
    (False, 0.0),
    (True, 0.0),
    *((False, part / SHARES) for part in range(1, SHARES + 1)),
]
"""Whether a model is in training, and the share of the training that it is told is done."""


class Behaviour:
    """A model's outputs at one length: evaluated, in training, and told its progress in turn."""

    def __init__(self, model: Decoder, length: int) -> None:
        self.model, self.length = model, length
        self.outputs: list[Tensor] = []
        self[0]  # before another model is built, which may change this one

    def __getitem__(self, index: int) -> Tensor:
        """The output there, computed when it is first asked for."""
        while len(self.outputs) <= index:
            training, share = CIRCUMSTANCES[len(self.outputs)]
            self.model.encoding.set_training_progress(share)
            text = tokens(self.length, batch=1)
            self.outputs.append(output(self.model, text, training=training))
        return self.outputs[index]

    def differs(self, other: "Behaviour") -> float:
        """By how much, where it does at first; 0 where it does not."""
        for index in range(len(CIRCUMSTANCES)):
            off = deviation(self[index], other[index])
            if EXACT < off < float("inf"):
                return off
        return 0.0


@torch.no_grad()
def knobs_act(subject: Subject) -> Verdict:
    """every numeric knob changes the output"""
    knobs = list(numeric_knobs(subject.config.encoding, "encoding"))
    places, told = _places(subject) if knobs else [], []
    for knob, value in knobs:
        tried: dict[str, None] = {}
        acts = (_act(subject, places, knob, other, tried) for other in others(value))
        if (act := next((act for act in acts if act), None)) is None:
            return fails(f"{knob}={value:g}: {'; '.join(tried)}")
        told.append(f"{knob} {act}")
    return holds("; ".join(told) or "it has none")


def _places(subject: Subject) -> list[tuple[Behaviour, Changes]]:
    """Where a knob may show: at a longer training length, and past the subject's own."""
    places: list[tuple[Behaviour, Changes]] = []
    for length, changes in [subject.trained_to(LENGTH), subject.reach(LENGTH)]:
        if changes not in [other for _, other in places]:
            places.append((Behaviour(subject.model(changes), length), changes))
    return places


def _act(
    subject: Subject,
    places: list[tuple[Behaviour, Changes]],
    knob: str,
    value: float,
    tried: dict[str, None],
) -> str | None:
    """What another value of a knob does; where that is nothing, `tried` says so."""
    for plain, changes in places:
        try:
            other = Behaviour(subject.model({**changes, knob: value}), plain.length)
            if off := plain.differs(other):
                return f"by {off:.1e}"
        except (ConfigError, ValueError) as refusal:
            tried[f"{value:g} is refused ({refusal})"] = None
            continue
        limit = other.model.encoding.max_length()
        if limit != plain.model.encoding.max_length():
            return f"moves the limit to {limit}"
        tried[f"{value:g} changes nothing"] = None
    return None


@torch.no_grad()
def instances_stay_apart(subject: Subject) -> Verdict:
    """two instances do not touch each other"""
    first, given = subject.model({}), tokens(subject.length)
    before = output(first, given)
    asides: list[Changes] = [{"train_length": 2 * subject.length}]
    for knob, value in numeric_knobs(subject.config.encoding, "encoding"):
        asides += [{knob: other} for other in others(value)[:2]]
    for changes in asides:
        try:
            output(subject.model(changes), given)
        except (ConfigError, ValueError):
            continue
        if (off := deviation(before, output(first, given))) > 0:
            told = ", ".join(f"{key}={value}" for key, value in changes.items())
            return fails(f"the first changes by {off:.1e} once there is one with {told}")
    return holds(f"the same before and after {len(asides)} others")


def numeric_knobs(node: DictConfig | ListConfig, path: str) -> Iterator[tuple[str, float]]:
    """Key and value of every number in a node, at any depth."""
    items = (
        ((f"{path}.{key}", node[key]) for key in node)
        if isinstance(node, DictConfig)
        else ((f"{path}[{index}]", value) for index, value in enumerate(node))
    )
    for key, value in items:
        if isinstance(value, DictConfig | ListConfig):
            yield from numeric_knobs(value, key)
        elif type(value) in (int, float):
            yield key, value


def others(value: float) -> list[float]:
    """Values to try instead: twice as much, or less where that is refused or out of reach."""
    if value == 0:
        return [1, 0.5, -1]
    less = [value / 2, value // 2, value / 16, value // 16]
    whole = [int(number) if number == int(number) else number for number in (value * 2, *less)]
    return [number for number in dict.fromkeys(whole) if number not in (0, value)]
