"""Properties of what a token's place in its sequence does."""

import torch
from torch import Tensor

from posenc.check.hooks import answers, given, layers
from posenc.check.subject import SEED, Subject, output, tokens
from posenc.check.verdict import EXACT, Verdict, deviation, fails, holds, judged
from posenc.encodings.base import Encoding
from posenc.model.decoder import Decoder

KERNELS = ("reference", "sdpa")
LONGER = 8
SHIFTS = (1_000, 100_000)
SHIFTED = 1e-9
"""How far apart in float64 the same lies at positions of 100,000."""
LONGEST_TRIED = 100_000


@torch.no_grad()
def is_causal(subject: Subject) -> Verdict:
    """no token sees a later one"""
    seen = subject.length * 5 // 8
    before, after = tokens(subject.length), tokens(subject.length)
    after[:, seen:] = tokens(subject.length, seed=1)[:, seen:]
    declared = subject.plain.encoding.limitations.get("causal")
    for kernel in KERNELS:
        model = subject.model({"kernel": kernel})
        a, b = (output(model, which)[:, :seen] for which in (before, after))
        if (off := deviation(a, b)) > EXACT:
            told = f"token {_first(a, b)} changes by {off:.1e} with those from {seen} on"
            return judged(False, f"{told} ({kernel})", declared)
    return judged(True, f"{seen} tokens under {' and '.join(KERNELS)}", declared)


@torch.no_grad()
def has_prefixes(subject: Subject) -> Verdict:
    """no token knows how many come after it"""
    length, changes = subject.reach(2 * subject.length)
    model, short = subject.model(changes), subject.length // 2
    declared = model.encoding.limitations.get("prefix")
    off = 0.0
    for training in (False,) if declared is None else (False, True):
        whole = output(model, tokens(length), training=training)[:, :short]
        part = output(model, tokens(length)[:, :short], training=training)
        off = max(off, deviation(whole, part))
    told = f"{off:.1e} between {short} tokens and the same ones of {length}"
    return judged(off <= EXACT, told, declared)


@torch.no_grad()
def extrapolates(subject: Subject) -> Verdict:
    """8 times the length is finite or refused"""
    model, longer = subject.plain, LONGER * subject.length
    limit = model.encoding.max_length()
    declared = model.encoding.limitations.get("extrapolates")
    if limit is None and declared is not None:
        return fails(f"declared an exception ({declared}), yet max_length() is None")
    if limit is None:
        return _finite(model, longer) or holds(f"{longer} tokens")
    if declared is None:
        return fails(f"max_length() is {limit}, but `extrapolates` is not among the limitations")
    if wrong := _finite(model, min(limit, longer)) or _wrong_at(model.encoding, limit):
        return wrong
    told = f"{limit + 1} tokens are refused" if limit <= LONGEST_TRIED else f"the limit is {limit}"
    return holds(told) if limit >= longer else judged(False, told, declared)


@torch.no_grad()
def goes_by_differences(subject: Subject) -> Verdict:
    """positions count by their differences"""
    model, length = subject.plain, subject.length // 2
    torch.manual_seed(SEED)
    pos = model.encoding.positions(length, torch.device("cpu"))
    here = output(model, tokens(length), pos)
    off = {
        step: deviation(here, output(model, tokens(length), pos + step))
        for step in _steps(model.encoding, pos)
    }
    step, most = max(off.items(), key=lambda item: item[1])
    declared = model.encoding.limitations.get("shift")
    if declared is None and model.encoding.overrides("embed") and most > SHIFTED:
        declared = "what is added to the stream claims nothing"
    return judged(most <= SHIFTED, f"{most:.1e} {step} tokens further on", declared)


def _steps(encoding: Encoding, pos: Tensor) -> tuple[int, ...]:
    """By how much positions may be moved: far, or as far as there is room below the limit."""
    limit = encoding.max_length()
    room = SHIFTS[-1] if limit is None else limit - 1 - int(pos.max())
    return tuple(step for step in SHIFTS if step <= room) or (room or -int(pos.min()),)


def _finite(model: Decoder, length: int) -> Verdict | None:
    """What is wrong with so many tokens, in evaluation or in training."""
    for training in (False, True):
        logits = output(model, tokens(length), training=training)
        if not logits.isfinite().all():
            mode = "training" if training else "evaluation"
            return fails(f"{length} tokens are not finite in {mode}")
    return None


def _wrong_at(encoding: Encoding, limit: int) -> Verdict | None:
    """What is wrong with a limit: it must be reached, and what is past it refused by its name."""
    if limit > LONGEST_TRIED:
        return None
    _ask(encoding, limit)
    try:
        _ask(encoding, limit + 1)
    except ValueError as error:
        if str(limit) in str(error):
            return None
        return fails(f"{limit + 1} tokens are refused without naming the limit {limit}: {error}")
    return fails(f"max_length() is {limit}, but {limit + 1} tokens are not refused")


def _ask(encoding: Encoding, length: int) -> None:
    for layer in layers(encoding):
        answers(encoding, layer, given(encoding, length))


def _first(a: Tensor, b: Tensor) -> int:
    """The first token [B, T, ...] that differs."""
    return int(((a - b).abs() > EXACT).flatten(2).any(dim=-1).any(dim=0).int().argmax())
