"""Properties of kernels and precisions."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.attention import KERNELS
from posenc.attention.unsupported import UnsupportedKernelError
from posenc.check.hooks import ROWS, Given, answers, given, layers
from posenc.check.subject import Subject, output, tokens
from posenc.check.verdict import Verdict, deviation, fails, holds
from posenc.encodings.base import Encoding
from posenc.model.decoder import Decoder

FAR = 16_000
LONGER_THAN_A_BLOCK = 280
EQUAL = 1e-9
EQUAL_FLOAT32 = 1e-4
RELATIVE, ABSOLUTE = 1e-5, 2e-6
RELATIVE_BFLOAT16 = 2**-6


def kernels_agree(subject: Subject) -> Verdict:
    """every kernel equals the reference"""
    length, changes = subject.trained_to(LONGER_THAN_A_BLOCK)
    wanted = _run(subject.model({**changes, "kernel": "reference"}), length)
    worst: dict[str, float] = {}
    for name in [name for name in KERNELS if name != "reference"]:
        try:
            found = _run(subject.model({**changes, "kernel": name}), length)
        except UnsupportedKernelError:
            continue
        for what, size in wanted.items():
            off = deviation(size, found[what]) / max(1.0, size.abs().max().item())
            if off > (EQUAL_FLOAT32 if what == "in float32" else EQUAL):
                return fails(f"{name}, {what}: {off:.1e} apart at {length} tokens")
            worst[name] = max(worst.get(name, 0.0), off if what != "in float32" else 0.0)
    return holds(", ".join(f"{name} {off:.1e}" for name, off in worst.items()) + " apart")


def _run(model: Decoder, length: int) -> dict[str, Tensor]:
    """Outputs and gradients in float64, outputs without gradients, and in float32."""
    text = tokens(length, batch=1)
    out = output(model, text)
    (out * torch.linspace(-1, 1, out.shape[-1], dtype=out.dtype)).sum().backward()
    found = {"outputs": out.detach()}
    for name, p in model.named_parameters():
        found[f"gradient of {name}"] = torch.zeros_like(p) if p.grad is None else p.grad
    with torch.no_grad():
        found["without gradients"] = output(model, text)
        found["in float32"] = output(model.float(), text).double()
    return found


@dataclass(frozen=True)
class Setting:
    """An encoding among half precision, what it is given there, and its exact counterpart."""

    name: str
    encoding: Encoding
    exact: Encoding
    stream: torch.dtype
    heads: torch.dtype
    autocast: bool


@torch.no_grad()
def half_precision_is_harmless(subject: Subject) -> Verdict:
    """half precision degrades no angle or bias"""
    length, changes = subject.reach(FAR + 1)
    encoding = subject.encoding(changes)
    if encoding.positions(1, torch.device("cpu")).ndim > 1:
        length = subject.length  # coordinates, which say what a token is and not how far it is
    to = given(encoding, length)
    worst, told = 0.0, ""
    for setting in _settings(encoding):
        for layer in layers(encoding):
            exact = _told(setting.exact, layer, to)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=setting.autocast):
                near = _told(setting.encoding, layer, to.to(setting.stream, setting.heads))
            for hook, found in near.items():
                share, off = _of_what_is_allowed(found, exact[hook])
                if share >= worst:
                    worst = share
                    told = f"{hook} of layer {layer} is off by {off:.1e} {setting.name}"
    verdict = holds if worst <= 1 else fails
    return verdict(f"at worst, {told}; to position {length - 1}")


def _settings(encoding: Encoding) -> Iterator[Setting]:
    half, single = torch.bfloat16, torch.float32
    exact = copy.deepcopy(encoding).double()
    yield Setting("under autocast", encoding, exact, single, single, True)
    yield Setting("under autocast, of bfloat16", encoding, exact, single, half, True)
    rounded = copy.deepcopy(exact)
    for parameter in rounded.parameters():
        parameter.copy_(parameter.bfloat16())
    degraded = copy.deepcopy(encoding).bfloat16()
    stream = half if list(encoding.parameters()) else single
    yield Setting("after .bfloat16()", degraded, rounded, stream, stream, False)


@dataclass(frozen=True)
class Told:
    """What a hook gives, in float64; the size of what was summed for it; its own precision."""

    value: Tensor
    size: Tensor
    dtype: torch.dtype


def _told(encoding: Encoding, layer: int, to: Given) -> dict[str, Told]:
    """Rotated queries and keys tell their scores: what is alike in both is of no consequence."""
    found = answers(encoding, layer, to)
    q, k = (found.pop(name) for name in ("rotate", "rotate of keys"))
    dtype, scale = q.dtype, to.v.shape[-1] ** -0.5
    q, k = q[:, :, -ROWS:].double() * scale, k.double()
    ahead = k.shape[-2] - q.shape[-2]
    with torch.autocast("cpu", enabled=False):
        scores, size = ((a @ b.mT).tril(ahead) for a, b in ((q, k), (q.abs(), k.abs())))
    rest = {
        name: Told(tensor.double(), tensor.double().abs(), tensor.dtype)
        for name, tensor in found.items()
    }
    return {"rotate": Told(scores, size, dtype), **rest}


def _of_what_is_allowed(found: Told, exact: Told) -> tuple[float, float]:
    """The deviation as a share of what a precision allows, and its size, where that is worst."""
    off = (found.value - exact.value).abs().nan_to_num(nan=float("inf"))
    size = exact.size.clamp(min=1)
    rough = RELATIVE_BFLOAT16 * size.max()
    close = RELATIVE * exact.value.abs() + ABSOLUTE * size
    share = off / (rough if found.dtype == torch.bfloat16 else close)
    index = int(share.argmax())
    return share.flatten()[index].item(), off.flatten()[index].item()
