"""Properties of an encoding's weights and of the gradients through it."""

from collections.abc import Mapping

import torch
from torch import Tensor

from posenc.attention import reference
from posenc.check.hooks import given, layers
from posenc.check.subject import SEED, Subject, output, tokens
from posenc.check.verdict import Verdict, fails, holds
from posenc.config.errors import ConfigError, one_line
from posenc.encodings.base import Encoding

LONGER = 4
TOKENS = 5


def gradients_reach(subject: Subject) -> Verdict:
    """the gradient reaches every parameter"""
    model = subject.plain
    for training in (False, True):
        model.zero_grad()
        logits = output(model, tokens(subject.length), training=training)
        wanted = tokens(subject.length, seed=1)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
        for name, parameter in model.named_parameters():
            grad = parameter.grad
            if grad is None or not grad.isfinite().all() or not grad.any():
                what = "none" if grad is None else "zero" if not grad.any() else "not finite"
                return fails(f"{name}: {what} in {'training' if training else 'evaluation'}")
    count = len(list(model.encoding.parameters()))
    return holds(f"{count} of the encoding, {len(list(model.parameters())) - count} of the model")


def gradients_are_right(subject: Subject) -> Verdict:
    """gradients are those of the function"""
    encoding = subject.encoding({}).double()
    to = given(encoding, TOKENS)
    inputs = {name: getattr(to, name).requires_grad_() for name in ("x", "q", "k")}
    inputs["v"] = to.v.requires_grad_()
    everything = {**inputs, **dict(encoding.named_parameters())}
    for layer in layers(encoding):
        if _agree(encoding, layer, to.pos, inputs, everything):
            continue
        for name, tensor in everything.items():
            if not _agree(encoding, layer, to.pos, inputs, {name: tensor}):
                return fails(f"that by {name} is wrong in layer {layer}")
        return fails(f"they are wrong together in layer {layer}")
    return holds(f"by {', '.join(everything)}")


def loads_at_any_length(subject: Subject) -> Verdict:
    """weights load at any training length"""
    short, length = subject.plain, LONGER * subject.length
    limit = short.encoding.max_length()
    try:
        long = subject.model({"train_length": length})
        long.load_state_dict(short.state_dict(), strict=True)
    except (ConfigError, RuntimeError) as error:
        of_size = isinstance(error, ConfigError) or "key(s)" not in str(error)
        if of_size and limit is not None and limit < length:
            reason = short.encoding.limitations.get("extrapolates", "it has a limit")
            return Verdict("exception", f"{reason}; {limit} positions are no {length}")
        return fails(one_line(error))
    return holds(f"of {subject.length} tokens into {length}")


def _agree(
    encoding: Encoding,
    layer: int,
    pos: Tensor,
    inputs: Mapping[str, Tensor],
    by: Mapping[str, Tensor],
) -> bool:
    x, q, k, v = (inputs[name] for name in ("x", "q", "k", "v"))

    def attended(*_: Tensor) -> Tensor:
        torch.manual_seed(SEED)
        embedded = encoding.embed(x, pos)
        here = encoding.at_layer(layer)
        rotated = here.rotate(embedded, q, k, pos)
        out = reference.attend(here, embedded, *rotated, v, pos)
        return torch.cat([out.sum(dim=(1, 2)).flatten(), embedded.sum()[None]])

    return torch.autograd.gradcheck(
        attended, tuple(by.values()), fast_mode=True, raise_exception=False
    )
