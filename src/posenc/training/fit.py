"""Trains a model until its token budget is used up, resuming from its last checkpoint."""

import logging
from collections.abc import Callable
from functools import partial

import torch
from omegaconf import DictConfig, OmegaConf

from posenc.config.components import build
from posenc.config.errors import RunError, first_line
from posenc.config.steps import TrainingSteps, training_steps
from posenc.encodings.base import Encoding
from posenc.model.build import build_model
from posenc.model.transformer import Decoder
from posenc.runs.environment import rank, world_size
from posenc.runs.files import truncate_jsonl
from posenc.training.batches import RepeatedBatch, micro_batch_loader
from posenc.training.callbacks import CallbackMetrics, build_callbacks
from posenc.training.checkpoint import resumable_checkpoint
from posenc.training.distributed import broadcast_from_rank0
from posenc.training.module import RETRY_WHEN_FREE, LanguageModel, validation_loss
from posenc.training.optimizer import optimizer_factory
from posenc.training.recorder import Recorder
from posenc.training.session import Session
from posenc.training.trainer import build_profiler, build_trainer

log = logging.getLogger("posenc")


def fit(session: Session, training_fraction: float) -> bool:
    """Train until the token budget is used up or a callback ends training.

    Returns False if a stop request ended it before that. `training_fraction` is the fraction of the
    run's work that is training; the rest is evaluation.
    """
    run, config, data = session.run, session.config, session.data
    micro_batch_tokens = session.resolved.micro_batch_tokens
    steps = training_steps(config, devices=world_size(), micro_batch_tokens=micro_batch_tokens)
    checkpoint = broadcast_from_rank0(lambda: resumable_checkpoint(run))
    completed_steps = checkpoint.step if checkpoint else 0
    if completed_steps >= broadcast_from_rank0(lambda: run.trained_steps(steps.total)):
        tokens = completed_steps * config.batch_tokens
        session.progress.update(step=completed_steps, tokens=tokens)
        return True
    if checkpoint:
        # Checks the contents: for a corrupt checkpoint, Lightning would print a traceback.
        checkpoint.check_training_state(config.planned.hash)
        log.info("resumed from step %d", checkpoint.step)
    if rank() == 0:
        for file in (run.metrics_file, run.timing_file):
            truncate_jsonl(file, completed_steps)
        run.set_aside_results(completed_steps * config.batch_tokens)
    module = build_module(
        config, data.vocab_size, steps, session.encoding, compiled=session.resolved.compile
    )
    validate = _validation_function(session, module.model)
    callbacks = build_callbacks(config)
    metrics = CallbackMetrics() if callbacks else None
    recorder = Recorder(session, steps, training_fraction, validate, callbacks, metrics)
    profiler, device = build_profiler(config, run.path), session.resolved.device
    trainer = build_trainer(config, device, steps, [*callbacks, recorder], metrics, profiler)
    batches = data.training_batches(config.train_length, config.seed)
    if OmegaConf.select(config, "debug.repeat_batch"):
        batches = RepeatedBatch(batches)
    loader = micro_batch_loader(batches, steps, completed_steps, rank())
    path = checkpoint.path if checkpoint else None
    try:
        with session.stop.handling_signals():
            trainer.fit(module, loader, ckpt_path=path, weights_only=True)
    except torch.OutOfMemoryError as error:
        raise _out_of_memory_error(config, steps, checkpoint is not None, error) from error
    if trainer.global_step < steps.total and not recorder.stopped_early:
        return False
    if recorder.stopped_early:
        log.info("a callback ended training after step %d", trainer.global_step)
    log.info("training finished at step %d of %d", trainer.global_step, steps.total)
    return True


def build_module(
    config: DictConfig,
    vocab_size: int,
    steps: TrainingSteps,
    encoding: Encoding | None = None,
    *,
    compiled: bool = False,
) -> LanguageModel:
    """Return the LightningModule: model, optimizer and learning-rate schedule of `config`.

    `encoding` is the untrained encoding of `config`, if the caller has already built it.
    """
    optimizer = optimizer_factory(config)
    schedule = build(config.schedule, name="schedule", modules=list(config.modules))
    model = build_model(config, vocab_size, encoding)
    return LanguageModel(
        model,
        optimizer,
        schedule,
        steps.total,
        config.seed,
        compile=compiled,
        run_hash=OmegaConf.select(config, "planned.hash"),
    )


def _validation_function(session: Session, model: Decoder) -> Callable[[], float] | None:
    """Return a function that computes the validation loss, or None if validation is turned off."""
    config = session.config
    if config.validation.every_tokens is None:
        return None
    return partial(
        validation_loss,
        model,
        *session.data.validation_batch(config.train_length, config.validation.tokens),
        config.evaluation.batch_tokens,
        config.precision,
    )


def _out_of_memory_error(
    config: DictConfig, steps: TrainingSteps, has_checkpoint: bool, error: BaseException
) -> RunError:
    """Return an error with a remedy; a resumed run keeps its micro-batch size."""
    sequences, length = steps.micro_batch_size, config.train_length
    remedy = RETRY_WHEN_FREE
    if not has_checkpoint and sequences > 1:
        smaller = next(n for n in range(sequences // 2, 0, -1) if sequences % n == 0)
        remedy = (
            f"set micro_batch_tokens={smaller * length} retry=true, which needs less memory and"
            f" changes the result only by rounding (dropout and randomized positions also draw"
            f" different random numbers)"
        )
    elif not has_checkpoint:
        remedy = "use a smaller model or train_length, or a device with more memory"
    return RunError(
        f"out of memory with {sequences * length} tokens at once ({sequences} x"
        f" train_length={length}): {remedy} ({first_line(error)})"
    )
