"""Runs with every combination of hooks can be analyzed, and the analysis writes a page."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from compositions import ONE_PER_HOOKS, num_layers
from posenc.config.errors import RunError
from posenc.inspect.inspection import write_inspection
from posenc.inspect.run.run_measurements import RunMeasurements, TrainedRun, measure_run
from posenc.inspect.run.run_tables import run_results
from posenc.model.build import build_encoding, build_model

TRAIN_LENGTH, VOCABULARY = 24, 40
BF16_ENCODINGS = ["alibi", "cope", "dape_alibi", "fire", "fox", "learned", "path", "rope", "t5"]
SENTENCE = torch.tensor([3, 7, 9, 11, 7])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "precision"),
    [*product(ONE_PER_HOOKS, ["float32"]), *product(BF16_ENCODINGS, ["bf16"])],
)
def test_an_encoding_is_measured_up_to_its_maximum_length(
    configured: Callable[..., DictConfig], encoding: str, precision: str
) -> None:
    measurements = measure_untrained(configured, encoding, precision)
    rows = measurements.tables["heads"]
    assert {row["layer"] for row in rows} == set(range(num_layers(encoding)))
    for row in rows:
        assert 0 <= row["beyond"] <= 1 and 0 <= row["shift"] <= 1, row
        assert 0 <= row["distance"] <= row["length"] and row["entropy"] >= 0, row
    expected = {"embeddings", "equal_tokens", "scores", "attention_by_position"}
    assert expected <= set(measurements.tables)
    for part in run_results("run", encoding, measurements, TRAIN_LENGTH).tables:
        assert all(len(row) == len(part.table.columns) for row in part.table.rows), part.file_stem


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["t5", "fox", "pope", "learned", "fire"])
def test_a_page_is_written(
    configured: Callable[..., DictConfig], encoding: str, tmp_path: Path
) -> None:
    measurements = measure_untrained(configured, encoding, "float32")
    results = run_results("run", encoding, measurements, TRAIN_LENGTH)
    page = write_inspection(tmp_path, results, "posenc inspect run=run").read_text()
    for part in results.tables:
        assert (tmp_path / f"{part.file_stem}.csv").is_file() and part.table.title in page
    for figure in results.figures:
        for kind in ("csv", "png", "svg"):
            assert (tmp_path / f"{figure.file_stem}.{kind}").stat().st_size > 100


def test_a_page_of_a_model_without_weights_omits_what_is_not_defined(
    configured: Callable[..., DictConfig], tmp_path: Path
) -> None:
    measurements = measure_untrained(configured, "rope", "float32", weight=0.0)
    write_inspection(tmp_path, run_results("run", "rope", measurements, TRAIN_LENGTH), "command")


def test_attention_that_overflows_is_an_error(configured: Callable[..., DictConfig]) -> None:
    with pytest.raises(RunError, match="NaN or infinite in windows of 24 tokens"):
        measure_untrained(configured, "rope", "float32", weight=1e38)


def measure_untrained(
    configured: Callable[..., DictConfig],
    encoding: str,
    precision: str,
    weight: float | None = None,
) -> RunMeasurements:
    """Measure a model that has not been trained, optionally with one value for all weights."""
    layers = f"model.layers={num_layers(encoding)}"
    config = configured(f"encoding={encoding}", layers, f"train_length={TRAIN_LENGTH}")
    model = build_model(config, VOCABULARY)
    if weight is not None:
        for parameter in model.parameters():
            torch.nn.init.constant_(parameter, weight)
    limit = model.encoding.max_length() or 3 * TRAIN_LENGTH
    generator = torch.Generator().manual_seed(1)
    windows = {
        length: torch.randint(VOCABULARY, (2, length), generator=generator)
        for length in (TRAIN_LENGTH, 3 * TRAIN_LENGTH)
        if length <= limit
    }
    initial = build_encoding(config)
    run = TrainedRun(model, initial, VOCABULARY, windows, SENTENCE, precision)
    return measure_run(run, lambda message: None)
