"""The memory of a training process on one device."""

from dataclasses import dataclass

import torch
from omegaconf import DictConfig
from torch import nn

from posenc.benchmark.activations import held
from posenc.config.components import build
from posenc.config.steps import TrainingSteps
from posenc.model.loss import LOGITS_BUDGET
from posenc.model.transformer import Decoder

FLOAT = 4  # bytes: weights, gradients, optimizer state and losses are float32 in every precision
HEAP_HOLES = 0.45
"""What glibc's heap keeps besides the tensors of a step, as a share of them: 0.38 to 0.57 seen.

oneDNN's products have their part in it: they copy operands that come transposed.
"""


@dataclass(frozen=True)
class Memory:
    """Bytes. `logits` are the largest chunk of them once, `process` what Python and torch take."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    validation_logits: int
    layers: int
    accumulated: bool
    process: int

    def peak(self) -> int:
        """The most that is there at once, on a CPU with the holes in the heap.

        The last step's gradients live until the next loss is there; then they go, unless they are
        accumulated. Backward begins with two more copies of the logits, and then has about as much
        for a layer as the layer held. A checkpoint is put together in the memory of the host, in a
        buffer that is copied as it grows.
        """
        lasting = self.weights + self.optimizer
        forward = self.gradients + self.activations + 2 * self.logits
        below = max(3 * self.logits, self.activations // self.layers)
        backward = self.activations + below + self.accumulated * self.gradients
        validation = self.gradients + 2 * self.validation_logits
        step = lasting + max(forward, backward, validation)
        if not self.process:
            return step
        checkpoint = self.gradients + 3 * lasting
        return max(round(step * (1 + HEAP_HOLES)), checkpoint) + self.process


def memory_of(
    config: DictConfig, model: Decoder, vocabulary: int, steps: TrainingSteps, process: int
) -> Memory:
    """The memory of a run whose device takes `steps`; `model` may be without numbers.

    `process` is 0 for a GPU, where what torch allocates for tensors is counted.
    """
    weights, gathered = _weights(config, model)
    buckets = weights if config.devices > 1 else 0  # gradients on their way to other devices
    rows, words = steps.micro_sequences * config.train_length, model.head.weight.shape[0]
    validated = config.evaluation.batch_tokens if config.validation.every_tokens else 0
    return Memory(
        weights=weights + gathered,
        gradients=weights + (gathered or buckets),
        optimizer=weights * states_of(config),
        activations=held(config, vocabulary, steps.micro_sequences, gpu=not process),
        logits=_chunk(rows, words),
        validation_logits=_chunk(validated, words),
        layers=config.model.layers,
        accumulated=steps.accumulate > 1,
        process=process,
    )


def _weights(config: DictConfig, model: Decoder) -> tuple[int, int]:
    """Bytes of the weights that a device keeps, and of those of others that it has for a while.

    Replicated it keeps all. Sharded it keeps its part; what is in no block is there from the
    first to the last, and besides it a block and the next.
    """
    every = FLOAT * model.parameter_count()
    if config.devices == 1 or config.trainer.strategy != "fsdp":
        return every, 0
    block = FLOAT * sum(parameter.numel() for parameter in model.blocks[0].parameters())
    return -(-every // config.devices), every - block * len(model.blocks) + 2 * block


def states_of(config: DictConfig) -> int:
    """How many numbers the optimizer keeps for each weight."""
    weight = nn.Linear(8, 8, bias=False)
    optimizer = build(config.optimizer, name="optimizer", modules=list(config.modules))(weight)
    weight.weight.grad = torch.zeros(8, 8)
    optimizer.step()
    kept = [value for state in optimizer.state.values() for value in state.values()]
    return sum(torch.is_tensor(value) and value.shape == (8, 8) for value in kept)


def _chunk(rows: int, words: int) -> int:
    return FLOAT * min(rows, max(1, LOGITS_BUDGET // words)) * words
