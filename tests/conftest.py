"""Fixtures for all tests: small configurations, a generated corpus, very small runs."""

import hashlib
import os
import random
import signal
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from compositions import composed, composer
from posenc.config import compose
from posenc.model.linear import ONEDNN_AVAILABLE
from posenc.runs.files import write_atomic
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
# Shell scripts start background processes with SIGINT ignored, and child processes inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)

SMALL_MODEL = [
    "model.width=32",
    "model.layers=2",
    "model.heads=4",
    "model.feed_forward=64",
    "train_length=24",
]
SHORT_RUN = [
    "tokens=7680",
    "batch_tokens=192",
    "validation.every_tokens=1920",
    "validation.tokens=480",
    "evaluation.factors=[1,4]",
    "trainer=cpu",
    "logger=none",
]


WIKITEXT = Path(__file__).resolve().parents[2] / "shared" / "data" / "wikitext103"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start slow tests first, so that no worker runs a slow test alone at the end.

    Deselects the tests that read WikiText-103 if it is not next to the checkout, and the tests of
    oneDNN's float32 product if posenc does not use oneDNN on this processor.
    """
    deselected = []
    if not WIKITEXT.is_dir():
        deselected += [item for item in items if "wikitext" in getattr(item, "fixturenames", ())]
    if not ONEDNN_AVAILABLE:
        deselected += [item for item in items if item.get_closest_marker("onednn")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def shared_compositions(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Share Hydra's compositions of posenc's own options between pytest workers, in files."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compositions"
    folder.mkdir(exist_ok=True)
    pickled_composition = compose._pickled_composition

    @cache
    def shared(*arguments: Any) -> bytes:
        key = repr((*arguments[:-1], sorted(arguments[-1])))
        path = folder / hashlib.sha256(key.encode()).hexdigest()
        if not path.exists():
            write_atomic(path, pickled_composition(*arguments))
        return path.read_bytes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "_pickled_composition", shared)
        yield


@pytest.fixture(autouse=True)
def no_trusted_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Start each test with an empty record of trusted classes and functions."""
    state = tmp_path_factory.getbasetemp() / "state" / token_hex(8)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))


@pytest.fixture
def configured() -> Callable[..., DictConfig]:
    """Composes a training configuration with a very small model."""

    def make(*overrides: str) -> DictConfig:
        config = composed(*SMALL_MODEL, *overrides)
        config.modules = []
        return config

    return make


@pytest.fixture
def small_run(small_job: list[str]) -> Callable[..., RunDirectory]:
    """Plans a very small run on the generated corpus: 40 steps of 8 windows."""

    def make(*overrides: str) -> RunDirectory:
        job = [*small_job, *overrides]
        return plan([job], [], "test", print, composer=composer())[0].run

    return make


@pytest.fixture
def small_job(corpus: Path, tmp_path: Path) -> list[str]:
    """The overrides of a run that trains in seconds and writes to `tmp_path`."""
    return [
        *SMALL_MODEL,
        "data=text",
        *(f"data.{split}={corpus}/{split}.txt" for split in ("train", "validation", "test")),
        "tokenizer=byte",
        *SHORT_RUN,
        f"outputs_dir={tmp_path}/outputs",
    ]


@pytest.fixture(scope="session")
def task_job(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The overrides of a run that trains on a synthetic task in seconds."""
    outputs = tmp_path_factory.mktemp("task") / "outputs"
    return [
        *SMALL_MODEL,
        "data=task_copy",
        "data.examples=40",
        *SHORT_RUN,
        f"outputs_dir={outputs}",
    ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.txt, validation.txt and test.txt of random sentences."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 7))) for _ in range(300)]
    for name, sentences in (("train", 4000), ("validation", 150), ("test", 100)):
        lines = (" ".join(rng.choices(words, k=rng.randint(4, 12))) for _ in range(sentences))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def wikitext() -> Path:
    """The folder with WikiText-103's validation.txt and test.txt, next to the checkout."""
    return WIKITEXT


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test is a failure")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    report = yield
    if report.skipped and item.config.getoption("--no-skips"):
        report.outcome = "failed"
    return report
