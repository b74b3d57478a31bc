"""Which measurements yield the rows that are asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.evaluation.budget import Budget
from posenc.evaluation.protocols import PROTOCOLS, Protocol
from posenc.evaluation.windows import Windows


@dataclass(frozen=True)
class Request:
    """One measurement and the keys of the rows that it yields, of one length and swap."""

    keys: list[dict[str, Any]]
    protocol: Protocol
    windows: Windows
    tokens: int

    @property
    def length(self) -> int:
        return self.keys[0]["length"]

    @property
    def swap(self) -> str | None:
        return self.keys[0]["swap"]


def requests(config: DictConfig, data: Dataset, keys: Iterable[dict[str, Any]]) -> list[Request]:
    """The measurements behind `keys`, in their order; `tokens` go through the model in each, if
    no budget of seconds ends it."""
    shared: dict[Any, list[dict[str, Any]]] = {}
    for key in keys:
        protocol = PROTOCOLS[key["protocol"]]
        same = key["swap"], key["length"], protocol.windows, protocol.score
        shared.setdefault(same, []).append(key)
    return [_request(config, data, of) for of in shared.values()]


def _request(config: DictConfig, data: Dataset, keys: list[dict[str, Any]]) -> Request:
    protocol = PROTOCOLS[keys[0]["protocol"]]
    windows = protocol.windows(data, config, keys[0]["length"])
    tokens = windows.lengths[Budget.of(config).order(windows)].sum()
    return Request(keys, protocol, windows, int(tokens))
