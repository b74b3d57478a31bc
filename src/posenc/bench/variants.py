"""What is measured: every encoding, kernel and length of a request, forward or through a step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from omegaconf import DictConfig

from posenc.bench.labels import labels
from posenc.bench.settings import PASSES
from posenc.config.components import build
from posenc.config.errors import ConfigError
from posenc.config.settings import sequences_of
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding
from posenc.model.device import check_accelerator, device_of
from posenc.model.flops import BACKWARD, forward_flops, matrix_parameters
from posenc.model.kernels import described, kernel, refuse, resolve, sdpa


@dataclass(frozen=True)
class Facts:
    """The kernels that do the work, why these where `auto` chose them, and forward FLOPs."""

    chosen: str
    why: tuple[str, ...]
    flops_per_token: int


@dataclass(frozen=True)
class Variant:
    """One thing to time; `config` is shared by the passes of one model."""

    label: str
    config: DictConfig
    facts: Facts
    pass_: str

    @property
    def length(self) -> int:
        return self.config.train_length

    @property
    def flops(self) -> int:
        """Model FLOPs of the whole pass."""
        times = 1 + BACKWARD if self.pass_ == "step" else 1
        return times * self.config.batch_tokens * self.facts.flops_per_token

    def __str__(self) -> str:
        return f"{self.label}, kernel={self.config.kernel}, L={self.length}, {self.pass_}"


def variants_of(jobs: Sequence[tuple[Sequence[str], DictConfig]]) -> list[Variant]:
    """The variants of composed jobs, those to be compared next to each other.

    A job is its overrides and its configuration. Every complaint about any of them comes in one
    ConfigError.
    """
    words, configs = [job[0] for job in jobs], [job[1] for job in jobs]
    found: dict[tuple[str, str, int, str], Variant] = {}
    complaints: dict[str, list[str]] = {}
    names = labels([config.choices.encoding for config in configs], words)
    for label, config in zip(names, configs, strict=True):
        try:
            facts = examine(config)
        except (ConfigError, ValueError) as error:
            complaints.setdefault(str(error), []).append(label)
            continue
        for pass_ in config.passes:
            key = (label, config.kernel, config.train_length, pass_)
            found.setdefault(key, Variant(label, config, facts, pass_))
    if complaints:
        raise ConfigError("\n".join(_of_whom(*item, len(jobs)) for item in complaints.items()))
    return sorted(found.values(), key=lambda v: (v.length, PASSES.index(v.pass_)))


def _of_whom(complaint: str, labels: list[str], jobs: int) -> str:
    """A complaint with the encodings that it is about, where it is not about all."""
    return complaint if len(labels) == jobs else f"{', '.join(dict.fromkeys(labels))}: {complaint}"


def examine(config: DictConfig) -> Facts:
    """Build everything but the weights; ValueError or ConfigError for what cannot be."""
    modules = list(config.modules)
    sequences_of(config)
    check_accelerator(config)
    optimizer = build(config.optimizer, name="optimizer", modules=modules)
    try:
        optimizer(torch.nn.Linear(1, 1))
    except ValueError as error:
        raise ConfigError(f"optimizer: {error}") from None
    encoding = build_encoding(config, modules)
    _check_reach(config, encoding)
    name = resolve(config.kernel)
    refuse(name, encoding, device_of(config), config.precision)
    with torch.device("meta"):
        given = (config.vocabulary, encoding, kernel(name))
        model = build(config.model, *given, name="model", modules=modules)
    matrices = matrix_parameters(model.blocks, model.head)
    host = encoding.geometry
    flops = forward_flops(matrices, host.layers, host.width, config.train_length)
    if name != "sdpa":
        return Facts(name, (), flops)
    device = device_of(config)
    ways = ", ".join(_ways(encoding, device, config.precision))
    return Facts(ways, tuple(described(encoding, device, config.precision)), flops)


def _ways(encoding: Encoding, device: torch.device, precision: str) -> Iterable[str]:
    """The names of the kernels that `sdpa` goes to, in the order of the layers."""
    host = encoding.geometry
    x = torch.zeros(1, host.train_length, host.width, device=device)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    q = torch.zeros(1, host.heads, host.train_length, host.head_width, device=device, dtype=dtype)
    pos = encoding.positions(host.train_length, device)
    layers = (encoding.at_layer(index) for index in range(host.layers))
    return dict.fromkeys(sdpa.choose(layer, x, q, pos).name for layer in layers)


def _check_reach(config: DictConfig, encoding: Encoding) -> None:
    limit = encoding.max_length()
    if limit is not None and config.train_length > limit:
        raise ConfigError(f"train_length={config.train_length} is past its end; it reaches {limit}")
