"""Fabricated results: run directories written without training, and runs in memory."""

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf
from rich.console import Console

from compositions import OTHER_SETTINGS
from html_page import HtmlPage
from posenc.report.claim_parser import parse_claims
from posenc.report.experiment import Experiment, Run
from posenc.report.judge import Verdict, Verdicts, judge, judge_experiment
from posenc.report.write_report import write_report
from posenc.runs.status import Status

FINGERPRINT = "f00dfeed0123"

ENCODINGS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"layout": "interleaved", "spectrum": {"base": 10000}},
    "rope": {"layout": "half", "spectrum": {"base": 10000}},
    "alibi": {},
    "nope": {},
}
LENGTHS = (64, 128, 256, 512, 1024)
SLOPES = {"sinusoidal": 0.3, "rope": 0.12, "alibi": -0.02, "nope": 0.2}
"""Change of the loss in nats per doubling of the evaluation length."""
LOSSES_AT_L = {"sinusoidal": 3.70, "rope": 3.55, "alibi": 3.60, "nope": 3.65}
SCORED_TOKENS = 81_920


def loss_of(encoding: str, train_length: int, seed: int, length: int) -> float:
    """Return a loss in nats that changes by SLOPES[encoding] per doubling of the length."""
    doublings = np.log2(length / train_length)
    return float(LOSSES_AT_L[encoding] + SLOPES[encoding] * doublings + 0.01 * seed)


def config_of(choice: str, train_length: int, seed: int, **changes: Any) -> dict[str, Any]:
    identity = f"{choice} {train_length} {seed} {changes}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    config = {
        **OTHER_SETTINGS,
        "name": "trial",
        "experiment": None,
        "train_length": train_length,
        "tokens": 1_500_000,
        "batch_tokens": 4096,
        "seed": seed,
        "precision": "float32",
        "gradient_clip": 1.0,
        "choices": {
            "encoding": choice,
            "data": "python_stdlib",
            "tokenizer": "bpe",
            "model": "tiny",
            "optimizer": "adamw",
            "schedule": "cosine",
        },
        "encoding": {"_target_": f"posenc.encodings.{choice}", **ENCODINGS.get(choice, {})},
        "data": {"_target_": "posenc.data.python_stdlib"},
        "tokenizer": {"_target_": "posenc.data.bpe", "vocab_size": 2048},
        "model": {"_target_": "posenc.model", "width": 128, "layers": 4, "heads": 4},
        "optimizer": {"_target_": "adamw", "_partial_": True, "learning_rate": 0.002},
        "schedule": {"_target_": "cosine", "_partial_": True, "warmup_fraction": 0.05},
        "kernel": "auto",
        "logger": {"_target_": "posenc.tracking.tracker.NullTracker"},
        "planned": {
            "run": f"{choice}-L{train_length}-s{seed}-{digest}",
            "hash": digest,
            "fingerprint": FINGERPRINT,
            "lengths": list(LENGTHS),
            "posenc_version": "0.2.0",
            "parameters": 1_048_576,
        },
    }
    evaluation = OTHER_SETTINGS["evaluation"] | changes.get("evaluation", {})
    return config | changes | {"evaluation": evaluation}


def row_of(length: int, loss: float, **changes: Any) -> dict[str, Any]:
    count, words, size = (
        changes.get(key, default)
        for key, default in (("count", SCORED_TOKENS), ("words", 20_000), ("bytes", 250_000))
    )
    row = {
        "data": FINGERPRINT,
        "data_name": "python_stdlib",
        "split": "validation",
        "protocol": "nonoverlapping",
        "length": length,
        "stride": None,
        "swap": None,
        "sum": loss * count,
        "count": count,
        "loss": loss,
        "perplexity": float(np.exp(loss)),
        "words": words,
        "bytes": size,
        "perplexity_per_word": float(np.exp(loss * count / words)),
        "perplexity_per_byte": float(np.exp(loss * count / size)),
        "seconds": 3.0,
        "tokens_per_second": 27306.7,
        "peak_memory_mb": 512.0,
    }
    return row | changes


def by_position(length: int, train_length: int, slope: float, mean: float) -> dict[str, np.ndarray]:
    """Return the sums and counts of losses by position in the window.

    Losses fall with position, change in proportion to `slope` beyond `train_length`, and average
    to `mean`.
    """
    position = np.arange(1, length + 1)
    noise = np.random.default_rng(length).normal(0, 0.05, length)
    beyond = slope * np.maximum(0, np.log2(position / train_length))
    loss = 3.5 / position**0.6 + 1.5 * beyond + noise
    loss += mean - loss.mean()
    count = np.full(length, SCORED_TOKENS // length)
    return {"sum": loss * count, "count": count}


def write_run(
    folder: Path,
    config: dict[str, Any],
    rows: list[dict[str, Any]],
    *,
    positions: dict[str, np.ndarray] | None = None,
    speeds: tuple[float, ...] = (),
    **status: Any,
) -> Path:
    """Write a run directory; its state is `finished` unless `status` overrides it."""
    path = folder / config["planned"]["run"]
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(OmegaConf.to_yaml(config))
    tokens = config["tokens"]
    default_status = {
        "state": "finished",
        "phase": "evaluation",
        "step": 366,
        "tokens": tokens,
        "total_tokens": tokens,
        "started": 1_760_000_000,
        "updated": 1_760_100_000,
        "resolved": {
            "threads": 1,
            "device": "cpu",
            "kernel": "causal (requested)",
            "parameters": 1_048_576,
        },
    }
    (path / "status.json").write_text(json.dumps(default_status | status))
    (path / "metrics.jsonl").write_text(
        '{"step": 1, "tokens": 4096, "loss": 7.6, "learning_rate": 0.002}\n'
        f'{{"step": 366, "tokens": {tokens}, "loss": 3.6, "learning_rate": 0.0002,'
        ' "validation_loss": 3.61}\n'
    )
    (path / "run.log").write_text("trained\n")
    if speeds:
        lines = (json.dumps({"tokens_per_second": s, "memory_mb": 800.0}) + "\n" for s in speeds)
        (path / "timing.jsonl").write_text("".join(lines))
    if rows:
        (path / "evaluation.json").write_text(json.dumps({"rows": rows}))
    if positions:
        np.savez(path / "loss_by_position.npz", allow_pickle=False, **positions)
    return path


def write_full_run(
    folder: Path,
    encoding: str,
    train_length: int,
    seed: int,
    *,
    speeds: tuple[float, ...] = (),
    **changes: Any,
) -> dict[str, Any]:
    """Write a finished run with rows of two protocols and return its configuration.

    The rows are at those of LENGTHS that are at least `train_length`.
    """
    config = config_of(encoding, train_length, seed, **changes)
    lengths = [length for length in LENGTHS if length >= train_length]
    rows, positions = [], {}
    for length in lengths:
        loss = loss_of(encoding, train_length, seed, length)
        rows += [row_of(length, loss), row_of(length, loss, protocol="by_position")]
        for name, array in by_position(length, train_length, SLOPES[encoding], loss).items():
            positions[f"{FINGERPRINT}.validation.{length}.{name}"] = array
    write_run(folder, config, rows, positions=positions, speeds=speeds)
    return config


def write_experiment(folder: Path) -> Path:
    """Write runs of four encodings, two training lengths and two seeds.

    14 runs are finished, one has failed and one is pending.
    """
    names = []
    for train_length in (64, 128):
        for encoding in ENCODINGS:
            for seed in (1, 2):
                config = config_of(encoding, train_length, seed)
                names.append(config["planned"]["run"])
                if (encoding, train_length, seed) == ("nope", 128, 1):
                    write_run(folder, config, [], state="failed", error="loss is NaN", tokens=4096)
                elif (encoding, train_length, seed) == ("nope", 128, 2):
                    write_run(folder, config, [], state="pending", tokens=0, error=None)
                else:
                    write_full_run(folder, encoding, train_length, seed)
    plan = {
        "name": "trial",
        "experiment": None,
        "size": "laptop",
        "command": "posenc train name=trial encoding=sinusoidal,rope,alibi,nope seed=1,2",
        "about": {
            "title": "Trial",
            "question": "Which?",
            "interpretation": None,
            "limitations": None,
        },
        "runs": names,
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


@pytest.fixture(scope="session")
def fabricate() -> SimpleNamespace:
    """Functions that create configurations, evaluation rows and run directories."""
    return SimpleNamespace(config=config_of, row=row_of, run=write_run, full_run=write_full_run)


@pytest.fixture(scope="session")
def read_html() -> type[HtmlPage]:
    """A class that parses an HTML page."""
    return HtmlPage


@pytest.fixture
def console() -> Console:
    """A console of 200 columns that records its output."""
    return Console(file=io.StringIO(), width=200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an experiment, which the test may change; see `write_experiment`."""
    return write_experiment(tmp_path / "outputs" / "trial")


@pytest.fixture(scope="session")
def trial_report(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The report on `write_experiment` (`folder`, `index`, `printed`), which tests only read."""
    folder = write_experiment(tmp_path_factory.mktemp("trial_report") / "outputs" / "trial")
    console = Console(file=(printed := io.StringIO()), width=200)
    index = write_report(folder, console, full=True)
    return SimpleNamespace(folder=folder, index=index, printed=printed.getvalue())


def _report_with_plan(folder: Path, plan: dict[str, Any]) -> SimpleNamespace:
    (folder / "plan.json").write_text(json.dumps(plan))
    console = Console(file=(printed := io.StringIO()), width=200)
    index = write_report(folder, console, full=True)
    return SimpleNamespace(folder=folder, index=index, printed=printed.getvalue())


@pytest.fixture(scope="session")
def three_seed_report(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A report on two encodings with three seeds and timings; one has a published curve."""
    folder = tmp_path_factory.mktemp("various") / "various"
    for encoding in ("rope", "alibi"):
        for seed in (1, 2, 3):
            speeds = (10.0, 1000.0 + 100 * seed, 9000.0)
            write_full_run(folder, encoding, 64, seed, speeds=speeds)
    curve = {"encoding": "alibi", "train_length": 64, "unit": "perplexity"}
    values = {"64": 20.0, "128": 19.0, "512": 18.0}
    published = [{**curve, "values": values, "source": "Some & Others 2022, Table 9"}]
    return _report_with_plan(
        folder, {"published": published, "command": "posenc train name=various"}
    )


@pytest.fixture(scope="session")
def task_report(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A report on two tasks with different settings, two encodings and three seeds each.

    One encoding has a published curve on one of the tasks.
    """
    folder = tmp_path_factory.mktemp("tasks") / "tasks"
    task_settings = (("task_copy", "c0ffee", 4096), ("task_even_pairs", "beef", 2048))
    for task, fingerprint, batch in task_settings:
        for encoding, loss in (("rope", 0.13), ("alibi", 0.01)):
            for seed in (1, 2, 3):
                config = config_of(encoding, 64, seed, data={"name": task}, batch_tokens=batch)
                config["choices"] |= {"data": task}
                config["planned"] |= {"fingerprint": fingerprint}
                keys = {"data": fingerprint, "data_name": task, "protocol": "tasks"}
                rows = [
                    row_of(64 * n, 1.0, accuracy=0.99 - loss * n - 0.01 * seed, exact=0.0, **keys)
                    for n in (1, 2, 4)
                ]
                write_run(folder, config, rows)
    published = {"encoding": "alibi", "data": "task_copy", "train_length": 64, "unit": "accuracy"}
    published |= {"source": "Some & Others 2022, Table 9", "values": {"64": 1.0, "256": 0.7}}
    return _report_with_plan(
        folder, {"published": [published], "command": "posenc train name=tasks"}
    )


@pytest.fixture(scope="session")
def base_report(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A report on RoPE with two bases and on ALiBi, trained at L = 16."""
    folder = tmp_path_factory.mktemp("bases") / "bases"
    for base in (100, 10000):
        encoding = {"layout": "half", "spectrum": {"base": base}}
        rows = [row_of(16 * n, 3.0 + 0.1 * n + base / 1e6) for n in (1, 2)]
        write_run(folder, config_of("rope", 16, 1, encoding=encoding), rows)
    write_run(folder, config_of("alibi", 16, 1), [row_of(16, 3.0), row_of(32, 3.0)])
    return _report_with_plan(folder, {"command": "posenc train name=bases"})


class FakeRun(Run):
    """An in-memory run to which a test adds rows."""

    def add_ngram(self, order: int, loss: float, **changes: Any) -> "FakeRun":
        row = {"order": order, "data": FINGERPRINT, "split": "validation", "count": 1000}
        self.ngrams.append(row | {"loss": loss} | changes)  # pyrefly: ignore
        return self

    def add_row(self, length: int, loss: float, **changes: Any) -> "FakeRun":
        row = {"data": FINGERPRINT, "data_name": "stdlib", "split": "validation", "length": length}
        row |= {"protocol": "nonoverlapping", "stride": None, "swap": None, "count": 1000}
        self.rows.append(row | {"loss": loss, "tokens_hash": "a"} | changes)  # pyrefly: ignore
        return self


def fake_run(name: str, train_length: int, seed: int, **config: Any) -> FakeRun:
    """Return a run of the encoding `name` without rows; `config` overrides its configuration."""
    default = {
        "choices": {"encoding": name, "model": "tiny", "data": "python_stdlib"},
        "encoding": {},
        "train_length": train_length,
        "seed": seed,
        "evaluation": {"split": "validation"},
        "planned": {"fingerprint": FINGERPRINT},
    }
    config = default | config
    full_name = f"{name}-L{train_length}-s{seed}"
    return FakeRun(full_name, name, config, Status(), rows=[], timing=[], ngrams=[])


def judge_yaml(
    claims: str, runs: Sequence[FakeRun], command: str = "posenc train experiment=e"
) -> list[Verdict]:
    """Return the verdicts on claims written as YAML."""
    return judge(parse_claims(yaml.safe_load(claims)), Experiment("e", "outputs/e", command, runs))


def judge_with_premises(premises: str, claims: str, runs: Sequence[FakeRun]) -> Verdicts:
    """Return the verdicts on premises and claims written as YAML."""
    parsed = {
        "premises": parse_claims(yaml.safe_load(premises), "premises"),
        "claims": parse_claims(yaml.safe_load(claims)),
    }
    return judge_experiment(Experiment("e", "outputs/e", "posenc train", runs, **parsed))


def outcomes_of(claims: str, runs: Sequence[FakeRun]) -> dict[int | None, str]:
    """Return the outcomes of a claim by training length."""
    return {verdict.train_length: verdict.outcome for verdict in judge_yaml(claims, runs)}


@dataclass(frozen=True)
class Tools:
    fake: Callable[..., FakeRun] = fake_run
    verdicts: Callable[..., list[Verdict]] = judge_yaml
    with_premises: Callable[..., Verdicts] = judge_with_premises
    outcomes: Callable[..., Mapping[int | None, str]] = outcomes_of


@pytest.fixture
def tools() -> Tools:
    """Functions that fabricate runs and judge claims on them."""
    return Tools()
