"""The n-gram rows of a run come from its own training windows and its evaluation text."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig

from posenc.config.steps import training_steps
from posenc.data.build_data import build_data
from posenc.data.tokenized import TokenizedData
from posenc.evaluation import ngram_baseline
from posenc.evaluation.kneser_ney import KneserNey
from posenc.evaluation.ngram_baseline import ngram_rows
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory

Configured = Callable[..., DictConfig]
SmallRun = Callable[..., RunDirectory]


def prepared(
    configured: Configured, tmp_path: Path, *overrides: str
) -> tuple[DictConfig, TokenizedData]:
    words = np.random.default_rng(1).integers(0, 40, 6000)
    text = " ".join(f"w{word}" for word in words)
    for split in ("train", "validation"):
        (tmp_path / f"{split}.txt").write_text(text if split == "train" else text[: len(text) // 5])
    config = configured(
        "data=text",
        f"data.train={tmp_path}/train.txt",
        f"data.validation={tmp_path}/validation.txt",
        "tokenizer=byte",
        "train_length=16",
        f"cache_dir={tmp_path}/cache",
        *overrides,
    )
    data = build_data(config, print)
    assert isinstance(data, TokenizedData)
    return config, data


def num_steps(config: DictConfig) -> int:
    return training_steps(config).total


def test_ngrams_are_counted_in_the_windows_that_the_run_was_trained_on(
    configured: Configured, tmp_path: Path
) -> None:
    config, data = prepared(configured, tmp_path, "tokens=3200", "batch_tokens=320", "seed=3")
    batches = data.training_batches(16, 3)
    trained = [batches.batch(step, 20) for step in range(10)]
    windows = np.concatenate(
        [np.concatenate([inputs[:, :1], targets], axis=1) for inputs, targets in trained]
    )
    tokens = np.asarray(data.token_array("validation").tokens).astype(np.int64)
    text = np.concatenate(([data.token_array("validation").eos_id], tokens))
    rows = ngram_rows(config, data, num_steps(config))
    assert [row["order"] for row in rows] == [2, 3, 4, 5]
    for row in rows:
        expected = KneserNey(windows, data.vocab_size, row["order"]).losses(text, row["order"])[1:]
        assert row["count"] == len(tokens)
        np.testing.assert_allclose(row["sum"], expected.sum(), rtol=1e-9)


def test_several_epochs_count_each_window_once(configured: Configured, tmp_path: Path) -> None:
    once, data = prepared(configured, tmp_path, "tokens=40000", "batch_tokens=320")
    often, _ = prepared(configured, tmp_path, "tokens=400000", "batch_tokens=320", "seed=2")
    assert ngram_rows(once, data, num_steps(once)) == ngram_rows(often, data, num_steps(often))


def test_a_run_that_ended_early_is_compared_with_models_of_fewer_tokens(
    configured: Configured, tmp_path: Path
) -> None:
    long, data = prepared(configured, tmp_path, "tokens=3200", "batch_tokens=320")
    short, _ = prepared(configured, tmp_path, "tokens=960", "batch_tokens=320")
    assert num_steps(short) == 3
    assert ngram_rows(long, data, 3) == ngram_rows(short, data, 3) != ngram_rows(long, data, 10)


def test_models_in_the_cache_that_were_edited_or_renamed_are_computed_again(
    configured: Configured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, data = prepared(configured, tmp_path, "tokens=3200", "batch_tokens=320")
    rows = ngram_rows(config, data, num_steps(config))
    (file,) = (tmp_path / "cache" / "ngrams").glob("*.json")
    text = file.read_text()
    for changed in (text.replace('"order": 3', '"order": 6'), text.replace("-s1-", "-s2-")):
        file.write_text(changed)
        assert changed != text and ngram_rows(config, data, num_steps(config)) == rows
        assert file.read_text() == text and file.name in caplog.text
        caplog.clear()


def test_no_order_gives_no_rows(configured: Configured, tmp_path: Path) -> None:
    config, data = prepared(configured, tmp_path, "ngram_order=null")
    assert ngram_rows(config, data, num_steps(config)) == []


def test_orders_longer_than_a_window_are_left_out(configured: Configured, tmp_path: Path) -> None:
    config, data = prepared(configured, tmp_path, "train_length=2", "tokens=400", "batch_tokens=40")
    assert [row["order"] for row in ngram_rows(config, data, num_steps(config))] == [2, 3]


def test_a_finished_run_gets_the_ngram_models_that_a_later_command_asks_for(
    small_run: SmallRun,
) -> None:
    run = small_run("tokens=960", "ngram_order=null")
    assert job([str(run.path)]) == FINISHED and run.ngrams() == []
    assert small_run("tokens=960", "ngram_order=3").status().state == "pending"
    assert job([str(run.path)]) == FINISHED
    assert [row["order"] for row in run.ngrams()] == [2, 3]
    assert small_run("tokens=960", "ngram_order=3").status().state == "finished"


def test_ngram_models_of_another_split_are_added(small_run: SmallRun) -> None:
    for split in ("validation", "test"):
        run = small_run("tokens=960", "ngram_order=2", f"evaluation.split={split}")
        assert job([str(run.path)]) == FINISHED
    assert [row["split"] for row in run.ngrams()] == ["validation", "test"]


def test_a_cache_that_cannot_be_written_to_does_not_prevent_the_models(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, data = prepared(configured, tmp_path, "tokens=3200", "batch_tokens=320")
    expected = ngram_rows(config, data, num_steps(config))

    def read_only(path: Path, on_wait: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(ngram_baseline, "wait_for_lock", read_only)
    monkeypatch.setattr(ngram_baseline, "KneserNey", None)  # the cache can still be read
    assert ngram_rows(config, data, num_steps(config)) == expected
    monkeypatch.setattr(ngram_baseline, "KneserNey", KneserNey)
    shutil.rmtree(tmp_path / "cache" / "ngrams")
    assert ngram_rows(config, data, num_steps(config)) == expected
    assert not (tmp_path / "cache" / "ngrams").exists()
