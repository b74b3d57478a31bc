"""Which measurements yield the rows that are asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
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
    """The measurements behind `keys`, by swap and length; `tokens` go through the model in each,
    if no budget of seconds ends it."""
    ordered = sorted(keys, key=_shared)
    return [_request(config, data, list(of)) for _, of in groupby(ordered, key=_shared)]


def _shared(key: dict[str, Any]) -> tuple[str, int, str, str]:
    protocol = PROTOCOLS[key["protocol"]]
    return key["swap"] or "", key["length"], protocol.windows.__name__, protocol.score.__name__


def _request(config: DictConfig, data: Dataset, keys: list[dict[str, Any]]) -> Request:
    protocol = PROTOCOLS[keys[0]["protocol"]]
    windows = protocol.windows(data, config, keys[0]["length"])
    tokens = windows.lengths[Budget.of(config).order(windows)].sum()
    return Request(keys, protocol, windows, int(tokens))
