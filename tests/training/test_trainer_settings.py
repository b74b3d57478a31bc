"""Lightning's Trainer has only the settings that posenc passes to it."""

from collections.abc import Callable

import pytest
from omegaconf import DictConfig

from posenc.config.steps import training_steps
from posenc.training.trainer import build_trainer


def test_variables_of_lightning_do_not_change_training(
    configured: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PL_TRAINER_OVERFIT_BATCHES", "1")
    monkeypatch.setenv("PL_TRAINER_LIMIT_TRAIN_BATCHES", "2")
    config = configured("train_length=64", "trainer=cpu")
    settings = vars(build_trainer(config, "cpu", training_steps(config), []))
    assert settings["overfit_batches"] == 0 and settings["limit_train_batches"] == 1.0
