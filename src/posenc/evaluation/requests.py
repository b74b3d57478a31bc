"""Requested and missing evaluation rows, and the measurements that yield them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from omegaconf import DictConfig

from posenc.config.identity import swap_digest
from posenc.config.settings import evaluation_lengths
from posenc.config.steps import evaluated_steps, training_steps
from posenc.config.swaps import evaluation_swaps
from posenc.data.dataset import Examples, TokenArray
from posenc.evaluation.protocols import PROTOCOLS, EvaluationProtocol
from posenc.evaluation.windows import Budget, TaskWindows, TokenWindows, Windows
from posenc.model.flops import BACKWARD_FACTOR, evaluation_flops, model_flops
from posenc.model.transformer import Decoder
from posenc.runs.evaluation_rows import VARIANT_FIELDS, budget_key, measurement_key


class EvaluationData(Protocol):
    """The part of the `Dataset` interface from which evaluation windows are built."""

    def token_array(self, split: str) -> TokenArray: ...

    def examples(self, split: str, length: int) -> Examples: ...


@dataclass(frozen=True)
class Request:
    """One measurement of one set of weights, at one length, and the keys of its rows.

    `tokens` is the number of tokens that the model processes and `num_scored` the number of targets
    that are scored, unless the time budget ends the measurement early.
    """

    keys: list[dict[str, Any]]
    protocol: EvaluationProtocol
    windows: Windows
    tokens: int
    num_scored: int

    @property
    def length(self) -> int:
        return self.keys[0]["length"]

    @property
    def swap(self) -> str | None:
        return self.keys[0]["swap"]

    @property
    def at_tokens(self) -> int | None:
        """The number of tokens the weights were trained on; None at the end of training."""
        return self.keys[0]["at_tokens"]


def requested_row_keys(config: DictConfig, fingerprint: str) -> list[dict[str, Any]]:
    """Return the keys of all rows that `config` requests on the data with this fingerprint.

    The field `stride` is the number of targets scored per window: the value of the protocol's
    parameter (`stride`, `k` or `targets`). Besides the fields that identify a measurement, a key
    has the fields that decide whether an existing row can be reused: the budget; for fixed_target,
    the longest evaluation length (it determines the targets); and, for swaps that are defined
    outside `conf/`, the digest of their definition.
    """
    evaluation, lengths = config.evaluation, evaluation_lengths(config)
    training_points, swaps = evaluated_steps(config), evaluation_swaps(config)
    modules, custom = list(config.modules), evaluation.get("custom_swaps") or []
    digests = {n: swap_digest(node, modules) for n, node in swaps.items() if node and n in custom}
    keys = []
    for at_tokens, swap, length, name in product(
        training_points, swaps, lengths, evaluation.protocols
    ):
        protocol = PROTOCOLS[name]
        keys.append(
            {
                "data": fingerprint,
                "split": evaluation.split,
                "protocol": name,
                "length": length,
                "stride": evaluation[protocol.parameter] if protocol.parameter else None,
                "swap": swap,
                "at_tokens": at_tokens,
                "longest": lengths[-1] if protocol.needs_longest_length else None,
                "budget_seconds": evaluation.budget_seconds,
                "budget_tokens": evaluation.budget_tokens,
                **({"swap_digest": digests[swap]} if swap in digests else {}),
            }
        )
    return keys


def missing_row_keys(
    requested: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the requested keys that no existing row satisfies."""
    existing: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        existing.setdefault(measurement_key(row), []).append(row)
    return [
        key
        for key in requested
        if not any(_satisfies(row, key) for row in existing.get(measurement_key(key), []))
    ]


def measurement_requests(
    config: DictConfig, data: EvaluationData, keys: Iterable[dict[str, Any]]
) -> list[Request]:
    """Return the measurements that yield the rows of `keys`, in their order.

    Protocols with the same windows share one measurement.
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    for key in keys:
        protocol = PROTOCOLS[key["protocol"]]
        group_key = key["at_tokens"], key["swap"], key["length"], protocol.spans
        groups.setdefault(group_key, []).append(key)
    requests = []
    for group in groups.values():
        windows = build_windows(data, group[0])
        order = Budget.from_config(config).order(windows)
        counts = windows.lengths[order].sum(), windows.num_scored[order].sum()
        requests.append(Request(group, PROTOCOLS[group[0]["protocol"]], windows, *map(int, counts)))
    return requests


def build_windows(data: EvaluationData, key: dict[str, Any]) -> Windows:
    """Return the windows of one row.

    Raises ConfigError if the protocol does not apply to the data.
    """
    protocol = PROTOCOLS[key["protocol"]]
    if protocol.spans is None:
        return TaskWindows(data.examples(key["split"], key["length"]))
    kwargs = {protocol.parameter: key["stride"]} if protocol.parameter else {}
    if protocol.needs_longest_length:
        kwargs["longest_length"] = key["longest"]
    text = data.token_array(key["split"])
    return TokenWindows(text, protocol.spans(len(text.tokens), key["length"], **kwargs))


def training_flops(config: DictConfig, model: Decoder) -> int:
    """Return the FLOPs of training, without validation."""
    tokens = training_steps(config).total * config.batch_tokens
    return (1 + BACKWARD_FACTOR) * model_flops(model, config.train_length) * tokens


def request_flops(model: Decoder, request: Request) -> int:
    """Return the FLOPs of a measurement, assuming that its time budget does not end it early."""
    return evaluation_flops(model, request.length, request.tokens, request.num_scored)


def training_fraction(config: DictConfig, model: Decoder, requests: Iterable[Request]) -> float:
    """Return the fraction of a run's floating-point operations that are spent on training.

    The rest are spent on the evaluation of `requests`.
    """
    training = training_flops(config, model)
    evaluation = sum(request_flops(model, request) for request in requests)
    return training / (training + evaluation)


def _satisfies(row: dict[str, Any], key: dict[str, Any]) -> bool:
    """Whether a row has the requested targets and swap, and is complete or has the same budget."""
    same = all(row.get(field) == key.get(field) for field in VARIANT_FIELDS)
    return same and budget_key(row) in ((None, None), budget_key(key))
