"""Fully sharded training: each device holds a part of the weights, gradients and optimizer state.

PyTorch's `fully_shard` (FSDP2; Zhao et al. 2023, 2304.11277).
"""

from collections.abc import Mapping
from typing import Any

import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from posenc.model.decoder import Decoder


def shard(model: Decoder, mesh: DeviceMesh) -> None:
    """Share the weights out over `mesh`: every block's are gathered for it alone, the others, an
    encoding's among them, from the first to the last."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    register_fsdp_forward_method(model, "losses")


class FullySharded(ModelParallelStrategy):
    """Lightning's strategy with the checkpoints of an unsharded run, so that any number of devices
    goes on from them."""

    def __init__(self, devices: int) -> None:
        super().__init__(
            data_parallel_size=devices, tensor_parallel_size=1, save_distributed_checkpoint=False
        )

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return self._whole(self.lightning_module.state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        state = optimizer.state_dict()
        states = {number: self._whole(values) for number, values in state["state"].items()}
        return {**state, "state": states}

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> Any:
        return torch.load(checkpoint_path, map_location="cpu", weights_only=weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        like = self.lightning_module.state_dict()
        whole = checkpoint["state_dict"]
        parts = {name: _part(value, like.get(name)) for name, value in whole.items()}
        self.lightning_module.load_state_dict(parts, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            parts = {
                number: {name: _part(value, parameters[number]) for name, value in values.items()}
                for number, values in state["state"].items()
            }
            optimizer.load_state_dict({**state, "state": parts})

    def _whole(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values put together, in process 0 alone."""
        whole = {}
        for name, value in values.items():
            full = value.full_tensor() if isinstance(value, DTensor) else value
            if self.is_global_zero:
                whole[name] = full.cpu() if isinstance(full, Tensor) else full
        return whole


def _part(value: Any, like: Any) -> Any:
    """This device's part of a value that has the shape of a parameter which is shared out."""
    if isinstance(like, DTensor) and isinstance(value, Tensor) and value.shape == like.shape:
        return distribute_tensor(
            value.to(like.device), like.device_mesh, like.placements, src_data_rank=None
        )
    return value
