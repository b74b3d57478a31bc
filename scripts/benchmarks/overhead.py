"""posenc's training step beside the same step by hand in plain PyTorch, interleaved in one run.

    python scripts/benchmarks/overhead.py [--threads 2] [--length 512] [--pairs 12] [--steps 4]

Prints the time of a step in each and the ratio, pair by pair: posenc / plain, below 1 is faster.
posenc's side is everything that a run does in a step: Lightning, the recorder, the data order.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.config.compose import compose
from posenc.config.settings import steps_of
from posenc.data.stream import TokenStream
from posenc.data.windows import TrainingWindows
from posenc.record.progress import Progress
from posenc.record.rundir import RunDirectory
from posenc.tracking.silent import Silent
from posenc.training.batches import loader
from posenc.training.fit import language_model, trainer_of
from posenc.training.recorder import Recorder
from posenc.training.session import Session
from posenc.training.stop import Stop

VOCABULARY, WIDTH, LAYERS, HEADS = 4096, 256, 4, 8


class PlainBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        q, k, v = (y.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens) * WIDTH**0.5
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class PlainStep:
    """Forward, backward, clipping, AdamW and a scheduled learning rate."""

    def __init__(self, tokens: Tensor, length: int, size: int) -> None:
        self.model, self.tokens = Plain(), tokens
        self.length, self.size = length, size
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)

    def __call__(self) -> float:
        starts = torch.randint(0, len(self.tokens) - self.length - 1, (self.size,)).tolist()
        x = torch.stack([self.tokens[s : s + self.length] for s in starts])
        y = torch.stack([self.tokens[s + 1 : s + self.length + 1] for s in starts])
        loss = self.model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss.item()


class Interleave(pl.Callback):
    """After every few steps of Lightning's loop, times as many by hand."""

    def __init__(self, plain: PlainStep, steps: int) -> None:
        self.plain, self.steps = plain, steps
        self.pairs: list[tuple[float, float]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object, **__: object) -> None:
        if trainer.global_step % self.steps:
            return
        ours = (time.perf_counter() - self.started) / self.steps
        begun = time.perf_counter()
        for _step in range(self.steps):
            self.plain()
        self.pairs.append((ours, (time.perf_counter() - begun) / self.steps))
        self.started = time.perf_counter()


def measure(folder: Path, length: int, pairs: int, steps: int) -> list[tuple[float, float]]:
    size = 8
    config = compose(
        "train",
        ["model=small", "model.layers=4", "encoding=nope", "logger=none", "trainer=cpu",
         f"train_length={length}", f"batch_tokens={size * length}",
         f"tokens={size * length * steps * (pairs + 1)}"],
    )  # fmt: skip
    config.modules = []
    total = steps_of(config)
    drawn = torch.randint(0, VOCABULARY, (2_000_000,), generator=torch.Generator().manual_seed(0))
    stream = TokenStream(
        drawn.numpy().astype("uint16"), words=1, bytes=1, documents=1, end_of_text=0
    )
    run = RunDirectory(folder)
    interleave = Interleave(PlainStep(drawn, length, size), steps)
    data: Any = None  # the recorder needs none without validation
    session = Session(run, config, data, Progress(run), Stop(os.getppid()), Silent())
    recorder = Recorder(session, total, training_share=1.0, validate=None)
    trainer = trainer_of(config, total, [recorder, interleave])
    batches = loader(TrainingWindows(stream, length, 1), total, 0)
    trainer.fit(language_model(config, VOCABULARY, total), batches)
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
        found = measure(Path(folder), arguments.length, arguments.pairs, arguments.steps)
    ratios = [ours / plain for ours, plain in found]
    print(f"width {WIDTH}, {LAYERS} layers, {HEADS} heads, L={arguments.length}, 8 windows a step,")
    print(f"vocabulary {VOCABULARY}, {arguments.threads} threads, torch {torch.__version__}")
    for name, values in (("posenc", [o for o, _ in found]), ("plain", [p for _, p in found])):
        print(f"{name:7} {statistics.median(values) * 1e3:8.1f} ms a step, median of {len(values)}")
    print(
        f"posenc / plain: median {statistics.median(ratios):.3f},"
        f" from {min(ratios):.3f} to {max(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
