"""The YAML file of every corpus, task and tokenizer lists the parameters of its target."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import models

from posenc.config.components import build
from posenc.data.corpus import Corpus
from posenc.data.tasks.task import Task
from posenc.data.tokenizers import Tokenizer, TokenizerTrainer

CONF = Path(__file__).resolve().parents[2] / "conf"
FILES = [*sorted((CONF / "data").glob("*.yaml")), *sorted((CONF / "tokenizer").glob("*.yaml"))]
OPTIONS = [file for file in FILES if file.stem != "symbols"]


@pytest.fixture
def required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """The parameters that have no usable default, by option."""
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a")
    HuggingFaceTokenizer(models.WordLevel({"<|endoftext|>": 0})).save("tokenizer.json")
    return {
        "text": {"test": ["a.txt"]},
        "hub": {"path": "owner/name", "revision": "0" * 40},
        "pretrained": {"path": "tokenizer.json"},
    }


def _load(file: Path) -> DictConfig:
    config = OmegaConf.load(file)
    assert isinstance(config, DictConfig)
    config.pop("defaults", None)  # the tokenizer and evaluation of a task
    return config


def test_the_symbol_tokenizer_is_completed_by_a_task() -> None:
    config = _load(CONF / "tokenizer" / "symbols.yaml")
    assert build(config, name="tokenizer")(["<begin>", "a"]).vocab_size == 2


@pytest.mark.parametrize("file", OPTIONS, ids=lambda file: file.stem)
def test_every_option_can_be_built(file: Path, required: dict[str, dict[str, Any]]) -> None:
    config = _load(file)
    config.update(required.get(file.stem, {}))
    built = build(config, name=file.parent.name)
    assert isinstance(
        built, Corpus | Task if file.parent.name == "data" else Tokenizer | TokenizerTrainer
    )


@pytest.mark.parametrize("file", OPTIONS, ids=lambda file: file.stem)
def test_every_option_lists_every_parameter(file: Path) -> None:
    config = _load(file)
    parameters = inspect.signature(get_object(config.pop("_target_"))).parameters
    assert list(config) == list(parameters)
    for name, parameter in parameters.items():
        assert parameter.default in (inspect.Parameter.empty, None, config[name])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_option_is_described(file: Path) -> None:
    description = file.read_text().splitlines()[0]
    assert description.startswith("# ")
    assert len(description) <= 100
