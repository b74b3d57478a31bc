"""Training a run to its token budget, from its last checkpoint if it has one."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pickle import UnpicklingError
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig
from pytorch_lightning.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy, Strategy

from posenc.attention import described, ways
from posenc.attention.precision import LIGHTNING
from posenc.config.components import build
from posenc.config.errors import RunError
from posenc.config.settings import Steps, sequences_of, steps_of
from posenc.model.build import build_model
from posenc.model.decoder import Decoder
from posenc.model.device import device_of
from posenc.runs.environment import grouped, local_world_size, rank
from posenc.runs.metrics import MetricsLog
from posenc.training.batches import loader
from posenc.training.checkpoint import Checkpoint, latest
from posenc.training.distributed import settled
from posenc.training.module import LanguageModel
from posenc.training.recorder import Recorder
from posenc.training.session import Session
from posenc.training.sharded import FullySharded
from posenc.training.validation import validation_loss

log = logging.getLogger("posenc")
ADVICE = (
    ".*does not have many workers.*",  # batches are slices of an array or drawn in milliseconds
    ".*GPU available but not used.*",
    ".*isinstance.treespec, LeafSpec.*",  # its own use of torch
    ".*srun. command is available.*",  # the processes are there already
    ".*returned a view tensor.*",  # losses, which are summed
)


def fit(session: Session, training_fraction: float) -> bool:
    """Train until the token budget is reached; False if the session was stopped before that.

    `training_fraction` is training's part of the run's whole work, for the progress.
    """
    run, config, data = session.run, session.config, session.data
    steps = steps_of(config)
    checkpoint = settled(lambda: latest(run.checkpoints))
    done = checkpoint.step if checkpoint else 0
    if done >= steps.total:
        return True
    if rank() == 0:
        for file in (run.metrics_file, run.timing_file):
            MetricsLog(file).cut_back(done)
    module = language_model(config, data.vocab_size, steps)
    if config.kernel == "sdpa":
        for line in described(ways(module.model.encoding, device_of(config), config.precision)):
            log.info("kernel %s", line)
    recorder = Recorder(session, steps, training_fraction, _validation(session, module.model))
    trainer = trainer_of(config, steps, [recorder])
    batches = loader(data.training(config.train_length, config.seed), steps, done, rank())
    with session.stop.listening(), _explaining(config, checkpoint):
        trainer.fit(module, batches, ckpt_path=_path(checkpoint), weights_only=True)
    if trainer.global_step < steps.total:
        return False
    log.info("trained to its end, step %d", steps.total)
    return True


@contextmanager
def _explaining(config: DictConfig, checkpoint: Checkpoint | None) -> Iterator[None]:
    """What Lightning raises, as what a person can do about it."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RunError(_remedy(config, checkpoint is None, error)) from error
    except UnpicklingError as error:
        raise error if checkpoint is None else checkpoint.refusal(error) from error


def _remedy(config: DictConfig, fresh: bool, error: BaseException) -> str:
    """How much went through the model at once, and what would make it less.

    A run that has a checkpoint goes on in the parts it began with, so only a fresh one is offered
    smaller ones.
    """
    sequences, length = sequences_of(config)[1], config.train_length
    remedy = "type the command with retry=true when nothing else uses the device"
    if fresh and sequences > 1:
        smaller = next(n for n in range(sequences // 2, 0, -1) if sequences % n == 0) * length
        remedy = f"give micro_batch_tokens={smaller} retry=true: the same run in smaller parts"
    elif fresh:
        remedy = "give a smaller model or train_length, or a device with more memory"
    said = str(error).strip().split("\n", 1)[0]
    return (
        f"out of memory with {sequences * length} tokens at once ({sequences} x"
        f" train_length={length}): {remedy} ({said})"
    )


def language_model(config: DictConfig, vocabulary: int, steps: Steps) -> LanguageModel:
    """The model with its optimizer and schedule, as `config` has them."""
    modules = list(config.modules)
    optimizer = build(config.optimizer, name="optimizer", modules=modules)
    schedule = build(config.schedule, name="schedule", modules=modules)
    model = build_model(config, vocabulary)
    return LanguageModel(
        model, optimizer, schedule, steps.total, config.seed, compile=config.compile
    )


def _validation(session: Session, model: Decoder) -> Callable[[], float] | None:
    """The validation loss, where it is asked for."""
    config = session.config
    if config.validation.every_tokens is None:
        return None
    return partial(
        validation_loss,
        model,
        *session.data.validation(config.train_length, config.validation.tokens),
        config.evaluation.batch_tokens,
        config.precision,
    )


def trainer_of(config: DictConfig, steps: Steps, callbacks: Sequence[pl.Callback]) -> pl.Trainer:
    """Lightning's trainer with nothing of its own on disk or on the terminal."""
    _quiet()
    options: dict[str, Any] = {
        "accelerator": config.trainer.accelerator,
        "devices": local_world_size(),
        "num_nodes": steps.devices // local_world_size(),
        "strategy": strategy_of(config, steps.devices),
        "plugins": [TorchElasticEnvironment() if grouped() else LightningEnvironment()],
        "precision": LIGHTNING[config.precision],
        "max_steps": steps.total,
        "max_epochs": -1,
        "accumulate_grad_batches": steps.accumulate,
        "gradient_clip_val": config.gradient_clip,
        "callbacks": list(callbacks),
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
    }
    return pl.Trainer(**options)


def strategy_of(config: DictConfig, devices: int) -> Strategy | str:
    """How the devices of a run train together, ddp or fsdp; one device needs none."""
    if devices == 1:
        return "auto"
    if config.trainer.strategy == "fsdp":
        return FullySharded(devices)
    # Of an adaptive softmax or a dropped encoding a step may leave weights unused.
    return DDPStrategy(find_unused_parameters=True)


def _path(checkpoint: Checkpoint | None) -> str | None:
    return str(checkpoint.path) if checkpoint else None


def _quiet() -> None:
    """Leave out Lightning's advice on what is decided here, and its advertisements."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for message in ADVICE:
        warnings.filterwarnings("ignore", message)
