"""How many floating-point operations a device does in a second."""

import copy
import time

import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention.precision import autocast
from posenc.model.build import build_model
from posenc.model.flops import BACKWARD, model_flops
from posenc.model.transformer import Decoder
from posenc.runs.hardware import cores, gpus

TOKENS = 2048  # of a calibrating pass, at least a sequence
LAYERS = 2


class Listed:
    """A GPU by its data sheet: operations per second and bytes; `utilisation` is an assumption.

    There are enough of it for `at_once` runs at a time.
    """

    gpu = True

    def __init__(
        self, *, float32: float, bf16: float, utilisation: float, memory: float, at_once: int = 1
    ) -> None:
        if not 0 < utilisation <= 1:
            raise ValueError(f"utilisation={utilisation} is a share; give above 0, up to 1")
        if at_once < 1:
            raise ValueError(f"at_once={at_once} runs at a time; give 1 or more")
        self.peaks = {"float32": float32, "bf16": bf16}
        self.utilisation, self.memory, self.at_once = utilisation, memory, at_once

    def rate(self, config: DictConfig, vocabulary: int) -> float:
        """Operations per second in training."""
        return self.utilisation * self.peaks[config.precision]


class Calibrated:
    """This machine: its GPU, or as many cores as a run of a sweep gets, timed for `seconds`."""

    memory = None

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.gpu = bool(gpus())
        self.at_once = len(gpus()) or cores()

    def rate(self, config: DictConfig, vocabulary: int) -> float:
        """Operations per second of forward and backward passes of the model's first layers."""
        config = copy.deepcopy(config)
        config.model.layers = min(LAYERS, config.model.layers)
        torch.set_num_threads(max(1, cores() // self.at_once))
        model = build_model(config, vocabulary).to("cuda" if self.gpu else "cpu")
        length = config.train_length
        tokens = _zipf(vocabulary, max(1, TOKENS // length), length).to(model.device)
        seconds = _seconds(model, tokens, config.precision, self.seconds)
        flops = (1 + BACKWARD) * model_flops(model, length) * tokens.numel()
        return flops / seconds


def _seconds(model: Decoder, tokens: Tensor, precision: str, least: float) -> float:
    """Of a forward and backward pass, the mean over at least so many seconds after a first one."""

    def step() -> None:
        with autocast(precision, tokens.device):
            loss = model.losses(tokens, tokens).mean()
        loss.backward()
        loss.item()  # waits for a GPU

    step()
    passes, began = 0, time.perf_counter()
    while passes == 0 or time.perf_counter() - began < least:
        step()
        passes += 1
    return (time.perf_counter() - began) / passes


def _zipf(vocabulary: int, sequences: int, length: int) -> Tensor:
    """Tokens about as rare as their number says, as those of a word vocabulary are."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(sequences, length, generator=generator)
    return (vocabulary**drawn).long().clamp(max=vocabulary) - 1
