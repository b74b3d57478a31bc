"""The memory of a training process on one device."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from posenc.attention import Kernel
from posenc.attention.causal import causal_attention
from posenc.attention.choice import KernelChoice, attend_with, layer_choices
from posenc.attention.precision import autocast, dtype_of
from posenc.config.components import build
from posenc.config.steps import TrainingSteps
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding
from posenc.model.loss import LOGITS_BUDGET
from posenc.model.transformer import Decoder

FLOAT = 4  # bytes: weights, gradients, optimizer state and losses are float32 in every precision
HEAP_FRAGMENTATION = 0.45
"""What glibc's heap takes beyond the tensors of a step, as a fraction; 0.38 to 0.57 was measured.

It includes the copies that oneDNN makes of transposed operands.
"""


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes. `logits` are those of the largest chunk, `process` those of Python and torch."""

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
        """Return the peak of training, on a CPU with heap fragmentation.

        The gradients of a step live until the next loss has been computed; accumulated ones stay
        during the backward pass, too. That pass starts with two more copies of the logits, then
        needs for each layer about as much as the layer saved. A checkpoint is serialised in main
        memory, into a buffer that is copied as it grows.
        """
        lasting = self.weights + self.optimizer
        forward = self.gradients + self.activations + 2 * self.logits
        temporary = max(3 * self.logits, self.activations // self.layers)
        backward = self.activations + temporary + self.accumulated * self.gradients
        validation = self.gradients + 2 * self.validation_logits
        step = lasting + max(forward, backward, validation)
        if not self.process:
            return step
        checkpoint = self.gradients + 3 * lasting
        return max(round(step * (1 + HEAP_FRAGMENTATION)), checkpoint) + self.process


def training_memory(
    config: DictConfig, model: Decoder, vocab_size: int, steps: TrainingSteps, process: int
) -> TrainingMemory:
    """Return the memory of one device; `model` may be on the meta device.

    `process` is 0 for a GPU, where only the tensors that torch allocates count.
    """
    weights, gathered = _weights(config, model)
    buckets = weights if config.devices > 1 else 0  # of DDP, for gradients to communicate
    rows, words = steps.micro_sequences * config.train_length, model.head.weight.shape[0]
    validated = config.evaluation.batch_tokens if config.validation.every_tokens else 0
    return TrainingMemory(
        weights=weights + gathered,
        gradients=weights + (gathered or buckets),
        optimizer=weights * optimizer_states(config),
        activations=saved_activations(config, vocab_size, steps.micro_sequences, gpu=not process),
        logits=_chunk(rows, words),
        validation_logits=_chunk(validated, words),
        layers=config.model.layers,
        accumulated=steps.accumulate > 1,
        process=process,
    )


def _weights(config: DictConfig, model: Decoder) -> tuple[int, int]:
    """Return the bytes of weights that a device keeps, and those that it gathers temporarily.

    A replicated model is kept whole. A sharded one is kept in part; the parameters outside the
    blocks are gathered throughout, those of a block and the next one as they are needed.
    """
    total = FLOAT * model.parameter_count()
    if config.devices == 1 or config.trainer.strategy != "fsdp":
        return total, 0
    block = FLOAT * sum(parameter.numel() for parameter in model.blocks[0].parameters())
    return -(-total // config.devices), total - block * len(model.blocks) + 2 * block


def optimizer_states(config: DictConfig) -> int:
    """Return how many numbers the optimizer keeps per weight."""
    layer = nn.Linear(8, 8, bias=False)
    optimizer = build(config.optimizer, name="optimizer", modules=list(config.modules))(layer)
    layer.weight.grad = torch.zeros(8, 8)
    optimizer.step()
    values = [value for state in optimizer.state.values() for value in state.values()]
    return sum(torch.is_tensor(value) and value.shape == (8, 8) for value in values)


def _chunk(rows: int, words: int) -> int:
    return FLOAT * min(rows, max(1, LOGITS_BUDGET // words)) * words


def saved_activations(config: DictConfig, vocab_size: int, sequences: int, *, gpu: bool) -> int:
    """Return the bytes that autograd saves in the blocks for the backward pass of `sequences`.

    The model's own code runs on fake tensors, which have shapes but no values. Raises
    DataDependentOutputException for an encoding that branches on values.
    """
    modules, length = list(config.modules), config.train_length
    encoding = build_encoding(config, modules)
    device = torch.device("cuda" if gpu else "cpu")
    choices = layer_choices(config.kernel, encoding, device, dtype_of(config.precision))
    attend = _attend_with_choices(choices)
    saved = _SavedStorages()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = build(config.model, vocab_size, encoding, attend, name="model", modules=modules)
        model.embedding = _ZeroEmbedding(config.model.width)
        saved.exclude_weights(model)
        tokens = torch.zeros(sequences, length, dtype=torch.long)
        with saved.hooks(), autocast(config.precision, torch.device("cpu")):
            model.hidden_states(tokens)
    return saved.total()


class _ZeroEmbedding(nn.Module):
    """An embedding without weights: zeros that require a gradient."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.zeros(*tokens.shape, self.width, requires_grad=True)


class _SavedStorages:
    """The storages that autograd has saved, each counted once.

    They are kept alive, so that no later storage gets the address of an earlier one.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[torch.UntypedStorage, int]] = {}

    def exclude_weights(self, model: nn.Module) -> None:
        for parameter in model.parameters():
            storage = parameter.untyped_storage()
            self._sizes[storage._cdata] = (storage, 0)

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        return torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def total(self) -> int:
        return sum(size for _, size in self._sizes.values())

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._sizes.setdefault(storage._cdata, (storage, storage.nbytes()))
        return tensor


def _attend_with_choices(choices: Sequence[KernelChoice]) -> Kernel:
    """Return a kernel that takes the choices of the layers one after the other.

    They were made on real positions, which fake tensors do not have.
    """
    remaining = iter(choices)

    def attend(
        encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor
    ) -> Tensor:
        choice = next(remaining)
        if choice.name == "flex":  # runs only on a GPU and saves what causal attention saves
            return causal_attention(q, k, v, v.shape[-1] ** -0.5)
        return attend_with(choice, encoding, x, q, k, v, pos)

    return attend
