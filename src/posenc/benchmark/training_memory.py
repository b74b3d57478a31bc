"""Estimates the memory of a training process on one device."""

import copy
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from posenc.attention import KernelFunction, factored
from posenc.attention.causal import causal_attention
from posenc.attention.choice import KernelChoice, attend_with, layer_choices
from posenc.attention.flex import BLOCK_SIZE, factor_columns
from posenc.config.components import build
from posenc.config.steps import TrainingSteps
from posenc.encodings.base import Encoding, layer_encodings
from posenc.model.build import build_encoding
from posenc.model.device import attention_dtype, autocast
from posenc.model.loss import LOGITS_BUDGET
from posenc.model.transformer import Decoder
from posenc.training.optimizer import optimizer_factory

FLOAT_BYTES = 4  # weights, gradients, optimizer state and losses are float32 in every precision
HEAP_FRAGMENTATION = 0.45
"""Extra memory of glibc's heap, as a fraction of a step's tensors; measured: 0.38 to 0.57.

It includes oneDNN's copies of transposed operands. On processors without AVX-512, where oneDNN's
matmul is not used, 0.2 was measured; the estimate is too high there.
"""
TRACED_LAYERS = 4
"""The number of layers that are traced if all are identical.

Autograd is assumed to save as much in each additional layer as in the last traced one.
"""
SEQUENCE_HOOKS = ("positions", "content_bias", "normalize", "value_bias")
"""With any of these hooks, autograd may save separate biases or scores for each sequence."""


@dataclass(frozen=True)
class TrainingMemory:
    """The parts of the memory estimate in bytes, and the settings that `peak` needs to add them up.

    With FSDP, `weights` and `gradients` include what is gathered from other devices; with DDP,
    `gradients` includes the communication buffers. `logits` is the size of the largest chunk of
    logits in training, `process_bytes` is the memory of Python, torch and Lightning, and
    `accumulates` says whether gradients are accumulated over micro-batches.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    validation_logits: int
    layers: int
    accumulates: bool
    process_bytes: int

    def peak(self) -> int:
        """Return the peak memory of training; on a CPU, this includes heap fragmentation.

        The gradients of a step are kept until the next loss has been computed; accumulated
        gradients are also kept during the backward pass. The backward pass first needs two more
        copies of the logits and then, for one layer at a time, about as much memory as autograd
        saved for it. A checkpoint is serialized in host memory, into a buffer that is copied as it
        grows.
        """
        persistent = self.weights + self.optimizer
        forward = self.gradients + self.activations + 2 * self.logits
        temporary = max(3 * self.logits, self.activations // self.layers)
        backward = self.activations + temporary + self.accumulates * self.gradients
        validation = self.gradients + 2 * self.validation_logits
        step = persistent + max(forward, backward, validation)
        if not self.process_bytes:
            return step
        checkpoint = self.gradients + 3 * persistent
        return max(round(step * (1 + HEAP_FRAGMENTATION)), checkpoint) + self.process_bytes


def training_memory(
    config: DictConfig, model: Decoder, vocab_size: int, steps: TrainingSteps, process_bytes: int
) -> TrainingMemory:
    """Return the training memory of one device; `model` may be on the meta device.

    `process_bytes` is 0 for a GPU, where only tensors allocated by torch count.
    """
    weights, gathered = _weight_bytes(config, model)
    buckets = weights if config.devices > 1 else 0  # DDP's communication buffers for gradients
    tokens, num_logits = steps.micro_batch_size * config.train_length, model.head.weight.shape[0]
    validation_tokens = config.evaluation.batch_tokens if config.validation.every_tokens else 0
    return TrainingMemory(
        weights=weights + gathered,
        gradients=weights + (gathered or buckets),
        optimizer=-(-optimizer_bytes(config, model) // _num_shards(config)),
        activations=saved_activation_bytes(
            config, vocab_size, steps.micro_batch_size, gpu=not process_bytes
        ),
        logits=_logits_chunk_bytes(tokens, num_logits),
        validation_logits=_logits_chunk_bytes(validation_tokens, num_logits),
        layers=config.model.layers,
        accumulates=steps.accumulation_steps > 1,
        process_bytes=process_bytes,
    )


def _weight_bytes(config: DictConfig, model: Decoder) -> tuple[int, int]:
    """Return two sizes in bytes: the weights a device stores, and those it gathers temporarily.

    Each device stores all weights of a replicated model, but only its shard of a sharded model.
    With sharding, the parameters outside the blocks stay gathered for the whole step, and those of
    the current and the next block are gathered as needed.
    """
    total, shards = FLOAT_BYTES * model.parameter_count(), _num_shards(config)
    if shards == 1:
        return total, 0
    block = FLOAT_BYTES * sum(parameter.numel() for parameter in model.blocks[0].parameters())
    num_blocks = len(model.blocks)
    return -(-total // shards), total - block * num_blocks + block * min(2, num_blocks)


def _num_shards(config: DictConfig) -> int:
    """Return the number of devices over which weights and optimizer state are sharded."""
    return config.devices if config.trainer.strategy == "fsdp" else 1


def optimizer_bytes(config: DictConfig, model: Decoder) -> int:
    """Return the size in bytes of the optimizer state for the weights of a model.

    Takes a step on a copy of the model whose weights have at most 8 rows and columns, and scales
    the resulting state to the full size. `model` may be on the meta device.
    """
    small, sizes = copy.deepcopy(model), {}
    for parameter in small.parameters():
        size = parameter.numel()
        zeros = torch.zeros([min(dim, 8) for dim in parameter.shape])
        torch.utils.swap_tensors(parameter, nn.Parameter(zeros, parameter.requires_grad))
        parameter.grad = torch.zeros_like(parameter)
        sizes[parameter] = size
    optimizer = optimizer_factory(config)(small)
    optimizer.step()
    return sum(
        sizes[parameter] * value.element_size()
        for parameter, state in optimizer.state.items()
        for value in state.values()
        if torch.is_tensor(value) and value.shape == parameter.shape
    )


def _logits_chunk_bytes(tokens: int, num_logits: int) -> int:
    """Return the bytes of the largest chunk of logits; `num_logits` is the number per token."""
    return FLOAT_BYTES * min(tokens, max(1, LOGITS_BUDGET // num_logits)) * num_logits


def saved_activation_bytes(
    config: DictConfig, vocab_size: int, sequences: int, *, gpu: bool
) -> int:
    """Return the bytes that autograd saves in the blocks for the backward pass of a micro-batch.

    Runs the model's code on fake tensors, which have shapes but no values. If attention is computed
    in blocks of rows and all sequences share one bias, only batches of one and of two sequences are
    traced, and the result is extrapolated linearly: everything but the bias is proportional to the
    number of sequences, and tracing the many blocks of a large batch takes seconds. Raises
    DataDependentOutputException if the encoding branches on values.
    """
    encoding = build_encoding(config)
    device = torch.device("cuda" if gpu else "cpu")
    choices = layer_choices(config.kernel, encoding, device, attention_dtype(config.precision))
    in_blocks = any(choice.name == "blocks" for choice in choices)
    per_sequence = any(e.overrides(h) for e in layer_encodings(encoding) for h in SEQUENCE_HOOKS)
    if not in_blocks or per_sequence or sequences < 3:
        return _saved_bytes(config, vocab_size, sequences, encoding, choices, device)
    for_one, for_two = (
        _saved_bytes(config, vocab_size, n, encoding, choices, device) for n in (1, 2)
    )
    return for_one + (sequences - 1) * (for_two - for_one)


def _saved_bytes(
    config: DictConfig,
    vocab_size: int,
    sequences: int,
    encoding: Encoding,
    choices: Sequence[KernelChoice],
    device: torch.device,
) -> int:
    modules, length = list(config.modules), config.train_length
    saved = _SavedStorages()
    attend = _attend_with_choices(choices, device, saved)
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.add, lambda tensor: tensor)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = build(config.model, vocab_size, encoding, attend, name="model", modules=modules)
        model.embedding = _ZeroEmbedding(config.model.width)
        tokens = torch.zeros(sequences, length, dtype=torch.long)
        cumulative_bytes: list[int] = []
        num_layers = len(model.blocks)
        if num_layers > TRACED_LAYERS and _layers_are_identical(model, choices):
            model.blocks = model.blocks[:TRACED_LAYERS]
        for block in model.blocks:
            block.register_forward_hook(
                lambda *_: cumulative_bytes.append(saved.nbytes_excluding(model))
            )
        with hooks, autocast(config.precision, torch.device("cpu")):
            model.hidden_states(tokens)
    untraced = num_layers - len(cumulative_bytes)
    extra = untraced * (cumulative_bytes[-1] - cumulative_bytes[-2]) if untraced else 0
    return saved.nbytes_excluding(model) + extra


def _layers_are_identical(model: Decoder, choices: Sequence[KernelChoice]) -> bool:
    """Return whether all layers have the same encoding, kernel and parameter shapes."""
    shapes = {tuple(p.shape for p in block.parameters()) for block in model.blocks}
    encodings = {id(encoding) for encoding in layer_encodings(model.encoding)}
    return len(shapes) == len(encodings) == len({choice.name for choice in choices}) == 1


class _SavedStorages:
    """The distinct storages that autograd has saved; `extra` counts the bytes of skipped calls.

    The storages are kept alive, so that no address is reused.
    """

    def __init__(self) -> None:
        self.extra = 0
        self._storages: dict[int, torch.UntypedStorage] = {}

    def add(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage
        return tensor

    def nbytes_excluding(self, model: nn.Module) -> int:
        """Return all bytes saved so far, except those of the model's weights."""
        return self.extra + self.nbytes() - self.nbytes(list(model.parameters()))

    def nbytes(self, tensors: Sequence[Tensor] | None = None) -> int:
        """Return the bytes of the saved storages, or of those that belong to `tensors`."""
        keys = set(self._storages)
        if tensors is not None:
            keys &= {tensor.untyped_storage()._cdata for tensor in tensors}
        return sum(self._storages[key].nbytes() for key in keys)


class _ZeroEmbedding(nn.Module):
    """An embedding without weights; returns zeros with requires_grad=True."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.zeros(*tokens.shape, self.width, requires_grad=True)


def _attend_with_choices(
    choices: Sequence[KernelChoice], device: torch.device, saved: _SavedStorages
) -> KernelFunction:
    """Return a kernel that uses the given choice for each layer in turn, as on `device`.

    The choices depend on the values of positions, which fake tensors do not have. Of the layers
    with the same encoding, only the first two are run: the first also saves the tensors that they
    share, and every later one saves as many bytes as the second.
    """
    remaining = iter(choices)
    num_calls: Counter[Hashable] = Counter()
    results: dict[Hashable, tuple[Tensor, int, bool]] = {}

    def attend(
        encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor
    ) -> Tensor:
        choice = next(remaining)
        key = encoding, choice.name, *((part.shape, part.dtype) for part in (x, q, k, v, pos))
        num_calls[key] += 1
        if num_calls[key] > 2:
            out, nbytes, out_is_saved = results[key]
            saved.extra += nbytes
            placeholder = torch.empty_like(out, requires_grad=True)
            return saved.add(placeholder) if out_is_saved else placeholder
        before = saved.nbytes()
        if choice.name == "flex":
            # flex needs a GPU. It saves what causal attention saves, and the bias factors.
            out = causal_attention(q, k, v, v.shape[-1] ** -0.5)
            if encoding.overrides("content_bias"):
                factors = factored.bias_factors("flex", encoding, x, q, k, pos)
                for column in factor_columns(factors, q.shape[:2], -q.shape[2] % BLOCK_SIZE):
                    for part in column:
                        saved.add(part)
        elif choice.name == "factored":
            out = factored.attend(encoding, x, q, k, v, pos, device)
        else:
            out = attend_with(choice, encoding, x, q, k, v, pos)
        out_is_saved = saved.nbytes([out]) > 0
        out_bytes = out.nbytes if out_is_saved else 0  # fewer than its storage's if it is a slice
        results[key] = out, saved.nbytes() - before - out_bytes, out_is_saved
        return out

    return attend
