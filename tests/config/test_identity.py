"""The hash in a run's name depends on every setting that can change results, and on no other."""

import importlib
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from omegaconf import OmegaConf

from compositions import composed
from posenc.config.errors import ConfigError
from posenc.config.identity import identity, identity_settings, short_hash, with_new_options


def digest(*overrides: str, fingerprint: str = "f00d") -> str:
    config = composed("encoding=rope", *overrides)
    return short_hash(identity(config, fingerprint))


@pytest.mark.parametrize(
    "override",
    [
        "encoding=alibi",
        "encoding.spectrum.base=5e5",
        "model.width=256",
        "model.qk_norm=true",
        "train_length=512",
        "tokens=1e6",
        "batch_tokens=8192",
        "optimizer.learning_rate=1e-3",
        "schedule=constant",
        "gradient_clip=null",
        "precision=bf16",
        "seed=2",
    ],
)
def test_a_setting_that_changes_results_changes_the_hash(override: str) -> None:
    assert digest(override) != digest()


def test_the_order_of_callbacks_changes_the_hash() -> None:
    """They are called in this order, so one may change what the next one sees."""
    first, second = (f"+callbacks.{name}={{_target_: own.{name}}}" for name in ("a", "b"))
    values = [composed("encoding=rope", *order) for order in ((first, second), (second, first))]
    plain: list[Any] = [OmegaConf.to_container(value, resolve=True) for value in values]
    assert plain[0] == plain[1]
    assert identity_settings(plain[0]) != identity_settings(plain[1])


@pytest.mark.parametrize(
    "override",
    [
        "evaluation.lengths=[7]",
        "logger=none",
        "outputs_dir=elsewhere",
        "name=other",
        "retry=true",
        "kernel=reference",
        "trainer=cpu",
        "checkpoint.every_seconds=1",
        "hydra.launcher.jobs=2",
    ],
)
def test_a_setting_that_cannot_change_results_keeps_the_hash(override: str) -> None:
    assert digest(override) == digest()


def test_the_data_fingerprint_changes_the_hash() -> None:
    assert digest(fingerprint="beef") != digest()


def test_an_option_that_older_runs_do_not_have_keeps_their_hash() -> None:
    older: Any = OmegaConf.to_container(composed("encoding=rope"), resolve=True)
    del older["model"]["qk_norm"]
    assert short_hash(identity(older, "f00d")) == digest()
    assert with_new_options(older["model"]) == {**older["model"], "qk_norm": False}


def test_notations_of_the_same_number_have_one_hash() -> None:
    assert digest("tokens=5e6") == digest("tokens=5000000") == digest("tokens=5000000.0")
    assert digest("encoding.spectrum.base=1e4") == digest("encoding.spectrum.base=10000")


USER_CODE = """
class Encoding: {0}
class Model: {1}
def optimizer(): {2}
def schedule(): {3}
class Callback: {4}
"""
TARGETS = (
    "encoding._target_=user_code.Encoding",
    "model._target_=user_code.Model",
    "optimizer._target_=user_code.optimizer",
    "schedule._target_=user_code.schedule",
    "+callbacks.own={_target_:user_code.Callback}",
)


@pytest.fixture
def user_code_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes user code with the given class and function bodies, and returns the run's hash."""
    monkeypatch.syspath_prepend(tmp_path)

    def compute(*bodies: str) -> str:
        (tmp_path / "user_code.py").write_text(USER_CODE.format(*bodies))
        linecache.clearcache()
        monkeypatch.delitem(sys.modules, "user_code", raising=False)
        importlib.invalidate_caches()
        return digest("modules=[user_code]", *TARGETS)

    return compute


@pytest.mark.parametrize("edited", range(len(TARGETS)))
def test_an_edit_of_any_custom_class_or_function_changes_the_hash(
    edited: int, user_code_digest: Callable[..., str]
) -> None:
    before = ["x = 1"] * 5
    after = [*before[:edited], "x = 2222", *before[edited + 1 :]]
    assert user_code_digest(*before) == user_code_digest(*before) != user_code_digest(*after)


def test_the_order_and_types_of_keys_that_user_code_receives_change_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ordered_code.py").write_text("class Encoding: ...")
    config: Any = OmegaConf.to_container(composed("modules=[ordered_code]"), resolve=True)

    def digest_with(**parameters: Any) -> str:
        encoding = {"_target_": "ordered_code.Encoding", **parameters}
        return short_hash(identity({**config, "encoding": encoding}, "f00d"))

    rates = ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {1: 2}, {"1": 2})
    values = (*rates, *([value] for value in rates))
    assert len({digest_with(rates=value) for value in values}) == len(values)
    assert digest_with(first=1, second=2) == digest_with(second=2, first=1)


def test_a_custom_component_without_source_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("no_file")
    module.optimizer = lambda: None
    monkeypatch.setitem(sys.modules, "no_file", module)
    with pytest.raises(ConfigError, match=r"no_file\.optimizer: its source code"):
        digest("modules=[no_file]", "optimizer._target_=no_file.optimizer")
