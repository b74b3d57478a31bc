"""Errors of scores in low precision, compared with float64, for a query at a distant position.

There are two errors for each format. For "q/k/bias", positions are exact, and the tensors from
which scores are computed are rounded: biases, and queries and keys with position embeddings added
and rotations applied. For "positions", only the positions are rounded (and truncated to integers),
as if they were stored in that format. float8 is e4m3; float8 and int8 have one scale per tensor,
which maps its largest magnitude to the format's largest value.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from posenc.check.encoding_under_test import max_difference
from posenc.inspect.encoding.hook_outputs import (
    attention_inputs,
    last_query_scores,
    last_query_scores_from_inputs,
    random_content,
)
from posenc.inspect.encoding.inspected_encoding import (
    InspectedEncoding,
    NotApplicableError,
    PropertyGroup,
    PropertyValue,
)
from posenc.inspect.inspection import InspectionTable, make_table

POSITIONS = (100, 1_000, 10_000, 100_000)
NUM_KEYS = 64  # number of nearest keys whose scores are compared
FLOAT8_MAX, INT8_MAX = 448.0, 127.0
Rounding = Callable[[Tensor], Tensor]


def _scaled(largest: float, rounding: Rounding) -> Rounding:
    """Return a function that scales a tensor to the maximum `largest`, rounds and scales back."""

    def apply(x: Tensor) -> Tensor:
        scale = largest / x.abs().max().clamp(min=1e-300)
        return rounding(x * scale) / scale

    return apply


FORMATS: dict[str, Rounding] = {
    "bfloat16": lambda x: x.bfloat16().double(),
    "float16": lambda x: x.half().double(),
    "float8": _scaled(FLOAT8_MAX, lambda x: x.to(torch.float8_e4m3fn).double()),
    "int8": _scaled(INT8_MAX, Tensor.round),
}
NAMES = [f"{name} {part}" for part in ("q/k/bias", "positions") for name in FORMATS]


def measure_low_precision(inspected: InspectedEncoding) -> list[PropertyValue]:
    """Measure the errors at POSITIONS[-1], or at the encoding's maximum position if it is lower."""
    if not inspected.has_1d_positions:
        raise NotApplicableError("coordinates are not positions in a sequence")
    position = inspected.clamp_length(POSITIONS[-1] + 1) - 1
    value_errors, position_errors = score_errors(inspected, position)
    description = f"maximum score error at position {position}; scores have variance 1"
    errors = [*value_errors.values(), *position_errors.values()]
    return [PropertyValue(error, description) for error in errors]


def errors_by_position(encodings: Sequence[InspectedEncoding]) -> InspectionTable:
    """Return a table of the errors at each of POSITIONS that an encoding supports; not printed."""
    rows = [
        [inspected.label, float(position), name, value_errors[name], position_errors[name]]
        for inspected in encodings
        if inspected.has_1d_positions
        for position in POSITIONS
        if inspected.clamp_length(position + 1) > position
        for value_errors, position_errors in [score_errors(inspected, position)]
        for name in FORMATS
    ]
    columns = ["encoding", "position", "format", "q/k/bias", "positions"]
    file_stem, title = "low_precision_by_position", "Maximum score error by position"
    return make_table("", file_stem, title, columns, rows, printed=False)


@torch.no_grad()
def score_errors(
    inspected: InspectedEncoding, position: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the maximum score error by format, for rounded values and for rounded positions."""
    nearest = torch.arange(position - NUM_KEYS + 1, position + 1)
    pos = torch.cat([torch.arange(NUM_KEYS), nearest])
    pos = torch.arange(position + 1) if position < 2 * NUM_KEYS else pos
    encoding, content = inspected.encoding, random_content(inspected, len(pos))
    q, k, bias = attention_inputs(encoding, *content, pos)
    exact = last_query_scores_from_inputs(encoding, pos, q, k, bias)
    value_errors, position_errors = {}, {}
    for name, rounding in FORMATS.items():
        rounded = rounding(q), rounding(k), None if bias is None else rounding(bias)
        scores = last_query_scores_from_inputs(encoding, pos, *rounded)
        value_errors[name] = _max_error(scores, exact)
        rounded_pos = rounding(pos.double())
        integer_pos = rounded_pos.nan_to_num(posinf=0).long()
        error = _max_error(last_query_scores(encoding, *content, integer_pos), exact)
        overflow = not rounded_pos.isfinite().all()
        position_errors[name] = float("inf") if overflow and error > 0 else error
    return value_errors, position_errors


def _max_error(scores: Tensor, exact: Tensor) -> float:
    """Return the maximum absolute error of the scores of the nearest keys."""
    return max_difference(scores[..., -NUM_KEYS:], exact[..., -NUM_KEYS:])


GROUPS = (PropertyGroup("low_precision", NAMES, measure_low_precision),)
