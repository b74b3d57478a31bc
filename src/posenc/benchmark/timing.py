"""The process in which all variants are timed: `python -m posenc.benchmark.timing < REQUEST`.

One process, so that all share one machine as it is at the time: every variant once a round, and
beside them a matrix product in each of their precisions. Every second round runs in reverse, so
that a machine that grows slower or faster favours none. A line of JSON is printed for each round.
"""

import sys
from collections.abc import Iterator
from typing import Any

import torch
from omegaconf import OmegaConf

from posenc.benchmark.passes import MatrixProduct, Passes
from posenc.benchmark.worker import serve
from posenc.model.device import device_of


def rounds(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The seconds of every variant, and of a product in each precision, round by round.

    `request` has `configs`, `variants` as pairs of the number of a config and a pass, and the
    number of `rounds`.
    """
    configs = [OmegaConf.create(config) for config in request["configs"]]
    variants = [(number, pass_) for number, pass_ in request["variants"]]
    if any(config.compile for config in configs):
        _compile_them_all(len(variants))
    models = [Passes(config) for config in configs]
    precisions = dict.fromkeys(config.precision for config in configs)
    products = {name: MatrixProduct(name, device_of(configs[0])) for name in precisions}
    for index in range(request["rounds"]):
        order = variants if index % 2 == 0 else variants[::-1]
        seconds = [models[number].seconds(pass_) for number, pass_ in order]
        yield {
            "seconds": seconds if index % 2 == 0 else seconds[::-1],
            "products": {name: product.seconds() for name, product in products.items()},
        }


def _compile_them_all(variants: int) -> None:
    """Allow graphs for every variant: past its limit torch.compile goes on without compiling."""
    torch._dynamo.config.recompile_limit *= variants
    torch._dynamo.config.fail_on_recompile_limit_hit = True


if __name__ == "__main__":
    sys.exit(serve(rounds))
