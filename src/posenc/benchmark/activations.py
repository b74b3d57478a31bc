"""How much autograd holds between a forward and a backward pass, told by a pass without numbers."""

from collections.abc import Sequence

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from posenc.attention import Kernel
from posenc.attention.causal import causal_attention
from posenc.attention.choice import KernelChoice, attend_with, layer_choices
from posenc.attention.precision import autocast, dtype_of
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
    device = torch.device("cuda" if gpu else "cpu")
    choices = layer_choices(config.kernel, encoding, device, dtype_of(config.precision))
    attend = _attend_as(choices)
    counted = _Counted()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = build(config.model, vocabulary, encoding, attend, name="model", modules=modules)
        model.embedding = _Stream(config.model.width)
        counted.leave_out(model)
        tokens = torch.zeros(sequences, length, dtype=torch.long)
        with counted.saving(), autocast(config.precision, torch.device("cpu")):
            model.hidden_states(tokens)
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


def _attend_as(choices: Sequence[KernelChoice]) -> Kernel:
    """Return a kernel that uses the choices of the layers in turn, made on real positions."""
    remaining = iter(choices)

    def attend(
        encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor
    ) -> Tensor:
        choice = next(remaining)
        if choice.name == "flex":  # runs only on a GPU and saves what causal attention saves
            return causal_attention(q, k, v, v.shape[-1] ** -0.5)
        return attend_with(choice, encoding, x, q, k, v, pos)

    return attend
