"""How much autograd holds between a forward and a backward pass, told by a pass without numbers."""

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from posenc.attention import Kernel, blocks, causal, factored, kernel, resolve, toeplitz, ways
from posenc.attention.precision import autocast
from posenc.config.components import build
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding


def held(config: DictConfig, vocabulary: int, sequences: int, gpu: bool) -> int:
    """Bytes held for the backward pass of as many sequences, embedding and head aside.

    The model's own code runs on fake tensors, which have shapes and no contents.
    RuntimeError (DataDependentOutputException) for an encoding that looks at contents.
    """
    modules, length = list(config.modules), config.train_length
    encoding = build_encoding(config, modules)
    attend = _attend(config, encoding, gpu)
    counted = _Counted()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = build(config.model, vocabulary, encoding, attend, name="model", modules=modules)
        model.embedding = _Stream(config.model.width)
        counted.leave_out(model)
        tokens = torch.zeros(sequences, length, dtype=torch.long)
        with counted.saving(), autocast(config.precision, torch.device("cpu")):
            model.hidden(tokens)
    return counted.total()


class _Stream(nn.Module):
    """Stands for the embedding: a stream that wants a gradient, of nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.zeros(*tokens.shape, self.width, requires_grad=True)


class _Counted:
    """The storages that autograd has saved, each once; they live on, so that none takes another's
    place."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[torch.UntypedStorage, int]] = {}

    def leave_out(self, model: nn.Module) -> None:
        """Count no weights."""
        for parameter in model.parameters():
            storage = parameter.untyped_storage()
            self._sizes[storage._cdata] = (storage, 0)

    def saving(self) -> torch.autograd.graph.saved_tensors_hooks:
        return torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def total(self) -> int:
        return sum(size for _, size in self._sizes.values())

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._sizes.setdefault(storage._cdata, (storage, storage.nbytes()))
        return tensor


def _attend(config: DictConfig, encoding: Encoding, gpu: bool) -> Kernel:
    """The configured kernel; of `sdpa` the way that it takes is found on real positions before."""
    name = resolve(config.kernel)
    if name not in ("sdpa", "lines"):
        return kernel(name)
    chosen = iter(ways(encoding, torch.device("cpu"), config.precision))

    def attend(
        encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor
    ) -> Tensor:
        way = next(chosen)
        if way.name == "causal":
            return causal.attend(encoding, x, q, k, v, pos)
        if way.line is not None and not gpu:
            return toeplitz.with_line(encoding, q, k, v, way.line)
        # A GPU has no `lines`, and columns may differ from one sequence to another.
        told = factored.applies(encoding, q, pos)
        columns = None if told else factored.columns_of(encoding, x, q, pos)
        if columns is not None and factored.count(columns) <= encoding.geometry.head_width:
            return factored.with_columns(q, k, v, columns)
        return blocks.attend(encoding, x, q, k, v, pos)

    return attend
