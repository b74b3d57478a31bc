"""Every encoding can be inspected after training, and its page written."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from posenc.config.paths import options
from posenc.inspect.run.findings import findings
from posenc.inspect.run.measure import Measured, Subject, measure
from posenc.inspect.write import write
from posenc.model.build import build_encoding, build_model

TRAINED, VOCABULARY = 24, 40
SENTENCE = torch.tensor([3, 7, 9, 11, 7])
LAYERS = {"rnope_swa": 4}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", sorted(options("encoding", [])))
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_an_encoding_is_measured_within_its_reach(
    configured: Callable[..., DictConfig], encoding: str, precision: str
) -> None:
    found = measured(configured, encoding, precision)
    rows = found.tables["heads"]
    assert {row["layer"] for row in rows} == set(range(LAYERS.get(encoding, 2)))
    for row in rows:
        assert 0 <= row["past"] <= 1 and 0 <= row["moved"] <= 1, row
        assert 0 <= row["distance"] <= row["length"] and row["entropy"] >= 0, row
    wanted = {"embeddings", "equal_tokens", "scores", "attention_by_position"}
    assert wanted <= set(found.tables)
    for table in findings("run", found, TRAINED).tables:
        assert all(len(line) == len(table.columns) for line in table.rows), table.file


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["t5", "fox", "pope", "learned", "fire"])
def test_a_page_is_written(
    configured: Callable[..., DictConfig], encoding: str, tmp_path: Path
) -> None:
    found = findings("run", measured(configured, encoding, "float32"), TRAINED)
    page = write(tmp_path, found, "posenc inspect run=run")
    for table in found.tables:
        assert (tmp_path / f"{table.file}.csv").is_file() and table.title in page.read_text()
    for picture in found.pictures:
        for kind in ("csv", "png", "svg"):
            assert (tmp_path / f"{picture.file}.{kind}").stat().st_size > 100


def measured(configured: Callable[..., DictConfig], encoding: str, precision: str) -> Measured:
    """What is found in a model that has not been trained."""
    layers = LAYERS.get(encoding, 2)
    words = [f"encoding={encoding}", f"model.layers={layers}", f"train_length={TRAINED}"]
    config = configured(*words)
    model = build_model(config, VOCABULARY)
    limit = model.encoding.max_length() or 3 * TRAINED
    generator = torch.Generator().manual_seed(1)
    windows = {
        length: torch.randint(VOCABULARY, (2, length), generator=generator)
        for length in (TRAINED, 3 * TRAINED)
        if length <= limit
    }
    initial = build_encoding(config, [])
    subject = Subject(model, initial, VOCABULARY, windows, SENTENCE, precision)
    return measure(subject, lambda what: None)
