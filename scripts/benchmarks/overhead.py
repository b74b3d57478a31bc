"""Measure the overhead of posenc's training step over a plain PyTorch loop with the same model.

    python scripts/benchmarks/overhead.py [--threads 2] [--length 512] [--pairs 12] [--steps 4]

The two loops alternate in one process. Prints the median time per step of each loop, and the ratio
posenc / plain loop over the pairs of measurements. A step of posenc includes everything that a run
does in a step: Lightning, the recorder and the data loader.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from posenc.config.compose import compose
from posenc.config.steps import training_steps
from posenc.data.dataset import TokenArray
from posenc.data.tokenized import TrainingWindows
from posenc.model.build import build_model
from posenc.model.transformer import Decoder
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import ResolvedSettings, StatusWriter
from posenc.tracking.tracker import NullTracker
from posenc.training.batches import micro_batch_loader
from posenc.training.fit import build_module
from posenc.training.recorder import Recorder
from posenc.training.session import Session
from posenc.training.stop import StopRequest
from posenc.training.trainer import build_trainer

VOCAB_SIZE, WIDTH, LAYERS, HEADS, BATCH_SIZE = 4096, 256, 4, 8, 8


class PlainStep:
    """A plain training step: forward, backward, clipping, AdamW and a learning rate schedule."""

    def __init__(self, model: Decoder, tokens: Tensor, length: int, batch_size: int) -> None:
        self.model, self.tokens = model, tokens
        self.length, self.batch_size = length, batch_size
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)

    def __call__(self) -> float:
        starts = torch.randint(0, len(self.tokens) - self.length - 1, (self.batch_size,)).tolist()
        x = torch.stack([self.tokens[s : s + self.length] for s in starts])
        y = torch.stack([self.tokens[s + 1 : s + self.length + 1] for s in starts])
        loss = self.model.losses(x, y).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss.item()


class Interleave(pl.Callback):
    """After every `steps` steps of Lightning's loop, time as many steps of the plain loop."""

    def __init__(self, plain: PlainStep, steps: int) -> None:
        self.plain, self.steps = plain, steps
        self.pairs: list[tuple[float, float]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object, **__: object) -> None:
        if trainer.global_step % self.steps:
            return
        posenc_seconds = (time.perf_counter() - self.started) / self.steps
        started = time.perf_counter()
        for _step in range(self.steps):
            self.plain()
        self.pairs.append((posenc_seconds, (time.perf_counter() - started) / self.steps))
        self.started = time.perf_counter()


def measure(folder: Path, length: int, pairs: int, steps: int) -> list[tuple[float, float]]:
    """Return the seconds per step of posenc and of the plain loop for each pair after the first."""
    config = compose(
        "train",
        ["model=small", "model.layers=4", "encoding=nope", "optimizer=adamw", "logger=none",
         "trainer=cpu", f"train_length={length}", f"batch_tokens={BATCH_SIZE * length}",
         f"tokens={BATCH_SIZE * length * steps * (pairs + 1)}"],
    )  # fmt: skip
    config.modules = []
    training = training_steps(config)
    token_ids = torch.randint(
        0, VOCAB_SIZE, (2_000_000,), generator=torch.Generator().manual_seed(0)
    )
    tokens = TokenArray(token_ids.numpy().astype("uint16"), words=1, bytes=1, documents=1, eos_id=0)
    run = RunDirectory(folder)
    plain = PlainStep(build_model(config, VOCAB_SIZE), token_ids, length, BATCH_SIZE)
    interleave = Interleave(plain, steps)
    data: Any = None  # the recorder uses it only for validation
    resolved = ResolvedSettings(
        "", torch.get_num_threads(), "cpu", "", config.kernel, False, "requested", None, 0
    )
    stop, tracker = StopRequest(lambda: True), NullTracker()
    progress, encoding = StatusWriter(run.status_file), plain.model.encoding
    session = Session(run, config, encoding, resolved, data, progress, stop, tracker.log)
    recorder = Recorder(session, training, training_fraction=1.0, validate=None)
    trainer = build_trainer(config, "cpu", training, [recorder, interleave])
    batches = micro_batch_loader(TrainingWindows(tokens, length, 1), training, 0)
    trainer.fit(build_module(config, VOCAB_SIZE, training), batches)
    return interleave.pairs[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        pairs = measure(Path(folder), arguments.length, arguments.pairs, arguments.steps)
    ratios = [posenc / plain for posenc, plain in pairs]
    print(
        f"width {WIDTH}, {LAYERS} layers, {HEADS} heads, L={arguments.length},"
        f" {BATCH_SIZE} windows per step,"
    )
    print(f"vocab_size {VOCAB_SIZE}, {arguments.threads} threads, torch {torch.__version__}")
    for name, seconds in zip(("posenc", "plain loop"), zip(*pairs, strict=True), strict=True):
        median = statistics.median(seconds) * 1e3
        print(f"{name:10} {median:8.1f} ms per step, median of {len(seconds)}")
    print(
        f"posenc / plain loop: median {statistics.median(ratios):.3f},"
        f" from {min(ratios):.3f} to {max(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
