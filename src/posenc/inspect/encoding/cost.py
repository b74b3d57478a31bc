"""What an encoding costs: weights, buffers, the kernel it is computed by, and time."""

import time

import torch

from posenc.attention.choice import attend, choose
from posenc.encodings.base import Encoding
from posenc.inspect.encoding.measured import Measured, Property
from posenc.inspect.encoding.relative import contents
from posenc.inspect.encoding.subject import Subject

TOKENS = 1024
TIMES = 5
PARAMETERS, BUFFERS, KERNEL, TIME = "parameters", "buffers", "kernel", "time"


def weights(subject: Subject) -> list[Measured]:
    """What has to be trained, and what is stored beside it."""
    count = sum(parameter.numel() for parameter in subject.encoding.parameters())
    stored = sum(buffer.numel() for buffer in subject.encoding.buffers())
    layers = subject.config.model.layers
    return [
        Measured(
            PARAMETERS, float(count), f"to be trained, in {layers} layers; 0 needs no training"
        ),
        Measured(BUFFERS, float(stored), "numbers stored beside them; frequencies are computed"),
    ]


@torch.no_grad()
def attention(subject: Subject) -> list[Measured]:
    """The kernel of kernel=auto on this machine, and its time over that of no encoding."""
    tokens = min(TOKENS, subject.limit or TOKENS)
    encoding = subject.build({}).float()
    x, q, k = (given.float() for given in contents(subject, tokens))
    pos = subject.positions(tokens)
    here, none = encoding.at_layer(0), Encoding(encoding.geometry)
    choice = choose(here, q.device, q.dtype, tokens, pos)

    def seconds(of: Encoding) -> float:
        start = time.perf_counter()
        turned, keys = of.rotate(x, q, k, pos)
        attend(of, x, turned, keys, q, pos)
        return time.perf_counter() - start

    pairs = [(seconds(here), seconds(none)) for _ in range(TIMES)]
    ratio = min(own for own, _ in pairs) / min(plain for _, plain in pairs)
    said = f"attention of one layer at {tokens} tokens over that without an encoding, forward"
    return [
        Measured(KERNEL, choice.name, "the choice of kernel=auto in float32"),
        Measured(TIME, ratio, f"{said}, fastest of {TIMES}; posenc bench measures it properly"),
    ]


PROPERTIES = (
    Property("cost", [PARAMETERS, BUFFERS], weights),
    Property("cost", [KERNEL, TIME], attention),
)
