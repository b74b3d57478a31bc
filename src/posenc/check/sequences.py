"""Properties of positions and sequence lengths."""

import torch
from torch import Tensor

from posenc.check.causality import dependence_location
from posenc.check.encoding_under_test import (
    EXACT_TOLERANCE,
    SEED,
    EncodingUnderTest,
    Result,
    compare_with_declaration,
    compute_logits,
    failed,
    known_limitation,
    max_difference,
    passed,
    random_tokens,
)
from posenc.check.hook_calls import call_layer_hooks, distinct_layers, random_inputs
from posenc.config.errors import ConfigError, one_line
from posenc.encodings.base import Encoding
from posenc.model.transformer import Decoder, seed_cpu

COMPARED_KERNELS = ("reference", "auto")
EXTRAPOLATION_FACTOR = 8  # times the training length
TRAIN_LENGTH_FACTOR = 4
SHIFTS = (1_000, 100_000)  # positions
SHIFT_TOLERANCE = 1e-9
"""Float64 tolerance for logits that should be equal at positions up to 100,000."""
MAX_TESTED_LENGTH = 100_000


@torch.no_grad()
def is_causal(under_test: EncodingUnderTest) -> Result:
    """no token depends on later ones"""
    length = under_test.train_length
    prefix_length = length * 5 // 8
    tokens, changed = random_tokens(length), random_tokens(length)
    changed[:, prefix_length:] = random_tokens(length, seed=1)[:, prefix_length:]
    limitation = under_test.configured_model.encoding.limitations.get("causal")
    for kernel in COMPARED_KERNELS:
        model = under_test.build_model({"kernel": kernel})
        a, b = (compute_logits(model, inputs)[:, :prefix_length] for inputs in (tokens, changed))
        if (difference := max_difference(a, b)) > EXACT_TOLERANCE:
            evidence = (
                f"outputs change by up to {difference:.1e}, first at token"
                f" {_first_difference(a, b)}, when tokens {prefix_length} onward are replaced"
                f" ({kernel}){dependence_location(model.encoding, 'causal')}"
            )
            return compare_with_declaration(False, evidence, limitation)
    evidence = f"the first {prefix_length} outputs are unchanged ({' and '.join(COMPARED_KERNELS)})"
    return compare_with_declaration(True, evidence, limitation)


@torch.no_grad()
def is_prefix_consistent(under_test: EncodingUnderTest) -> Result:
    """outputs do not depend on sequence length"""
    length, changes = under_test.supported_length(2 * under_test.train_length)
    model, prefix = under_test.build_model(changes), under_test.train_length // 2
    limitation = model.encoding.limitations.get("prefix_consistent")
    difference = 0.0
    for training in (False,) if limitation is None else (False, True):
        tokens = random_tokens(length)
        prefix_logits = compute_logits(model, tokens, training=training)[:, :prefix]
        standalone_logits = compute_logits(model, tokens[:, :prefix], training=training)
        difference = max(difference, max_difference(prefix_logits, standalone_logits))
    evidence = (
        f"max difference {difference:.1e} between {prefix} tokens on their own and the same"
        f" {prefix} as a prefix of {length}"
    )
    holds = difference <= EXACT_TOLERANCE
    if not holds:
        evidence += dependence_location(model.encoding, "prefix_consistent")
    return compare_with_declaration(holds, evidence, limitation)


@torch.no_grad()
def any_length(under_test: EncodingUnderTest) -> Result:
    """8x the training length is encoded or rejected"""
    model = under_test.configured_model
    test_length = EXTRAPOLATION_FACTOR * under_test.train_length
    limit = model.encoding.max_length()
    limitation = model.encoding.limitations.get("any_length")
    if limit is None and limitation is not None:
        return failed(f"declared as a limitation ({limitation}), but max_length() is None")
    if limit is None:
        return _non_finite_failure(model, test_length) or passed(
            f"{test_length} tokens are encoded"
        )
    if limitation is None:
        return failed(f"max_length() is {limit}, but `any_length` is not in `limitations`")
    if failure := _non_finite_failure(model, min(limit, test_length)):
        return failure
    if failure := _limit_failure(model.encoding, limit):
        return failure
    rejected = f"{limit + 1} tokens are rejected"
    evidence = rejected if limit <= MAX_TESTED_LENGTH else f"the limit is {limit}"
    return passed(evidence) if limit >= test_length else known_limitation(limitation, evidence)


@torch.no_grad()
def is_shift_invariant(under_test: EncodingUnderTest) -> Result:
    """only position differences matter"""
    model, length = under_test.configured_model, under_test.train_length // 2
    seed_cpu(SEED)
    pos = model.encoding.positions(length, torch.device("cpu"))
    unshifted = compute_logits(model, random_tokens(length), pos)
    differences = {
        shift: max_difference(unshifted, compute_logits(model, random_tokens(length), pos + shift))
        for shift in _shifts(model.encoding, pos)
    }
    shift, largest = max(differences.items(), key=lambda item: item[1])
    limitation = model.encoding.limitations.get("shift_invariant")
    if limitation is None and model.encoding.overrides("embed") and largest > SHIFT_TOLERANCE:
        limitation = "position embeddings are absolute"
    evidence = f"max difference {largest:.1e} when all positions are shifted by {shift}"
    return compare_with_declaration(largest <= SHIFT_TOLERANCE, evidence, limitation)


def loads_at_any_length(under_test: EncodingUnderTest) -> Result:
    """weights load at any training length"""
    model, train_length = under_test.configured_model, under_test.train_length
    test_length = TRAIN_LENGTH_FACTOR * train_length
    limit = model.encoding.max_length()
    try:
        longer_model = under_test.build_model({"train_length": test_length})
        longer_model.load_state_dict(model.state_dict(), strict=True)
    except (ConfigError, RuntimeError) as error:
        wrong_size = isinstance(error, ConfigError) or "key(s)" not in str(error)
        if wrong_size and limit is not None and limit < test_length:
            reason = model.encoding.limitations.get("any_length", "it has a maximum length")
            evidence = f"weights for train_length {train_length} do not load at {test_length}"
            return known_limitation(reason, evidence)
        return failed(one_line(error))
    return passed(f"weights for train_length {train_length} load at {test_length}")


def _shifts(encoding: Encoding, pos: Tensor) -> tuple[int, ...]:
    """Return the shifts in SHIFTS that the maximum length allows.

    If it allows none of them, return the largest possible shift or, if that is 0, the shift that
    moves the first position to 0.
    """
    limit = encoding.max_length()
    largest = SHIFTS[-1] if limit is None else limit - 1 - int(pos.max())
    return tuple(shift for shift in SHIFTS if shift <= largest) or (largest or -int(pos.min()),)


def _non_finite_failure(model: Decoder, length: int) -> Result | None:
    """Return a failure if any logit for `length` tokens is not finite in evaluation or training."""
    for training in (False, True):
        logits = compute_logits(model, random_tokens(length), training=training)
        if not logits.isfinite().all():
            mode = "training" if training else "evaluation"
            return failed(f"the logits of {length} tokens are not finite in {mode}")
    return None


def _limit_failure(encoding: Encoding, limit: int) -> Result | None:
    """Return a failure unless `limit` + 1 tokens raise a ValueError that states the limit.

    Other errors propagate. Limits above MAX_TESTED_LENGTH are not tested.
    """
    if limit > MAX_TESTED_LENGTH:
        return None
    _call_hooks(encoding, limit)
    try:
        _call_hooks(encoding, limit + 1)
    except ValueError as error:
        if str(limit) in str(error):
            return None
        return failed(f"the error for {limit + 1} tokens does not state the limit {limit}: {error}")
    return failed(f"max_length() is {limit}, but {limit + 1} tokens are not rejected")


def _call_hooks(encoding: Encoding, length: int) -> None:
    """Call the hooks of every distinct layer on `length` tokens; their errors propagate."""
    for layer in distinct_layers(encoding):
        call_layer_hooks(encoding, layer, random_inputs(encoding, length))


def _first_difference(a: Tensor, b: Tensor) -> int:
    """Return the index of the first token at which a and b [B, T, ...] differ."""
    return int(((a - b).abs() > EXACT_TOLERANCE).flatten(2).any(dim=-1).any(dim=0).int().argmax())
