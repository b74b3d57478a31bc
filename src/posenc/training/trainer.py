"""Lightning's Trainer as posenc configures it, and the strategy for fully sharded training."""

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from pytorch_lightning.profilers import Profiler
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from posenc.config.components import build
from posenc.config.steps import TrainingSteps
from posenc.model.device import LIGHTNING_PRECISION
from posenc.runs.environment import (
    changed_environment,
    in_process_group,
    local_world_size,
)

SILENCED_WARNINGS = (
    ".*does not have many workers.*",  # batches are slices of an array or generated in milliseconds
    ".*GPU available but not used.*",
    ".*isinstance.treespec, LeafSpec.*",  # Lightning's own use of torch
    ".*srun. command is available.*",  # the processes have been started already
    ".*returned a view tensor.*",  # a view of the losses, which are only summed
    ".*WeightAveraging callback with a model that overrides.*",  # it is not used with FSDP
)


def build_trainer(
    config: DictConfig,
    device: str,
    steps: TrainingSteps,
    callbacks: Sequence[pl.Callback],
    logger: Logger | None = None,
    profiler: Profiler | None = None,
) -> pl.Trainer:
    """Return a Trainer for `device` (cpu or cuda) that prints nothing.

    `logger` receives the metrics that callbacks log. Apart from callbacks, only `profiler` writes
    files.
    """
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for message in SILENCED_WARNINGS:
        warnings.filterwarnings("ignore", message)
    options: dict[str, Any] = {
        "accelerator": device,
        "devices": local_world_size(),
        "num_nodes": steps.devices // local_world_size(),
        "strategy": _strategy(config, steps.devices),
        "plugins": [TorchElasticEnvironment() if in_process_group() else LightningEnvironment()],
        "precision": LIGHTNING_PRECISION[config.precision],
        "max_steps": steps.total,
        "max_epochs": -1,
        "accumulate_grad_batches": steps.accumulation_steps,
        "gradient_clip_val": config.gradient_clip,
        "callbacks": list(callbacks),
        "logger": logger or False,
        "profiler": profiler,
        # In a Slurm job, Lightning resumes from a file hpc_ckpt_*.ckpt in this folder, by default
        # the current one, even if another program saved it.
        "default_root_dir": os.devnull,
        "detect_anomaly": bool(OmegaConf.select(config, "debug.detect_anomaly")),
        "log_every_n_steps": 1,
        # The recorder runs validation. With these values, EarlyStopping runs after each validation
        # instead of waiting for the end of the only epoch.
        "val_check_interval": 1,
        "check_val_every_n_epoch": None,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
    }
    return _trainer(options)


def _trainer(options: dict[str, Any]) -> pl.Trainer:
    """Build the Trainer without PL_TRAINER_* variables, which Lightning would use as arguments."""
    variables = [name for name in os.environ if name.startswith("PL_TRAINER_")]
    with changed_environment({}, removed=variables):
        return pl.Trainer(**options)


def build_profiler(config: DictConfig, run_dir: Path) -> Profiler | None:
    """Return the profiler of a run, which writes to `run_dir / "profile"`, or None.

    Raises ConfigError if it cannot be built.
    """
    if config.get("profiler") is None:
        return None
    files = {"dirpath": str(run_dir / "profile"), "filename": "profile"}
    return build(config.profiler, name="profiler", modules=list(config.modules), **files)


def _strategy(config: DictConfig, devices: int) -> Strategy | str:
    if not in_process_group():
        return "auto"
    if config.trainer.strategy == "fsdp":
        return FullyShardedStrategy(devices)
    # Some steps leave weights unused: those of an adaptive softmax, or of an encoding that DroPE
    # has dropped.
    return DDPStrategy(find_unused_parameters=True)


class FullyShardedStrategy(ModelParallelStrategy):
    """FSDP (`fully_shard`; Zhao et al. 2023, arXiv:2304.11277) with unsharded checkpoints.

    A run can resume on any number of devices, because its checkpoints have the same format as those
    of a single device. Lightning's own unsharded checkpoints use a different format: they number
    the optimizer's state in the order of the module's parameters, not of the parameter groups.
    """

    def __init__(self, devices: int) -> None:
        super().__init__(
            data_parallel_size=devices, tensor_parallel_size=1, save_distributed_checkpoint=False
        )

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return self._unsharded(self.lightning_module.state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        state_dict = optimizer.state_dict()
        state = {index: self._unsharded(values) for index, values in state_dict["state"].items()}
        return {**state_dict, "state": state}

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> Any:
        return torch.load(checkpoint_path, map_location="cpu", weights_only=weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        current = self.lightning_module.state_dict()
        full = checkpoint["state_dict"]
        sharded = {name: _shard_like(value, current.get(name)) for name, value in full.items()}
        self.lightning_module.load_state_dict(sharded, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        state_dicts = checkpoint["optimizer_states"]
        for optimizer, state_dict in zip(self.optimizers, state_dicts, strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            state = {
                index: {
                    name: _shard_like(value, parameters[index]) for name, value in values.items()
                }
                for index, values in state_dict["state"].items()
            }
            optimizer.load_state_dict({**state_dict, "state": state})

    def _unsharded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the unsharded values on rank 0, and an empty dict on the other ranks."""
        unsharded = {}
        for name, value in values.items():
            full = value.full_tensor() if isinstance(value, DTensor) else value
            if self.is_global_zero:
                unsharded[name] = full.cpu() if isinstance(full, Tensor) else full
        return unsharded


def _shard_like(value: Any, parameter: Any) -> Any:
    """Return this device's shard of `value` if it has the shape of a sharded parameter.

    Other values are returned unchanged.
    """
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor):
        return value
    if value.shape != parameter.shape:  # a scalar of the optimizer's state
        return value
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(value.to(parameter.device), mesh, placements, src_data_rank=None)
