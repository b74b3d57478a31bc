"""Each config group may use only callables of its own kind, from posenc and from libraries."""

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

import posenc
from posenc.config.component_types import (
    GROUP_TYPES,
    LIBRARY_TYPES,
    group_type,
    in_library,
    is_allowed,
)
from posenc.config.components import NUM_POSITIONAL_ARGS, check
from posenc.config.errors import ConfigError
from posenc.config.paths import conf_dir

FOLDERS = {group: group.replace(".", "/") for group in GROUP_TYPES}
FUNCTIONS = {
    "tokenizer": {"pretrained", "load_tokenizer"},
    "encoding.spectrum": {
        "dynamic_ntk", "dynamic_ntk_hf", "geometric", "geometric_d1", "geometric_t2t",
        "half_truncated", "hope", "longrope", "ntk", "ntk_by_parts", "p_rope", "p_rope_reversed",
        "position_interpolation", "power", "powers_of_two", "resonance", "yarn", "yarn_paper",
    },
    "logger": {"build_tracker", "find_tracker"},
    "optimizer": {"adamw", "lion", "muon", "nag"},
    "schedule": {"constant", "cosine", "cosine_restarts"},
}  # fmt: skip
"""The functions that a group may call, besides its classes.

load_tokenizer, build_tracker and find_tracker need arguments that a configuration cannot have.
"""


@cache
def public_callables() -> dict[str, Any]:
    """Return every callable in the modules of the package, by dotted name."""
    return {
        f"{module.name}.{name}": value
        for module in pkgutil.walk_packages(posenc.__path__, "posenc.")
        if not module.name.endswith("__main__")
        for name, value in vars(importlib.import_module(module.name)).items()
        if callable(value) and not name.startswith("__")
    }


def library_callables(group: str) -> dict[str, Any]:
    """Return every callable in the package of the library classes that a group accepts."""
    package = LIBRARY_TYPES[group].rpartition(".")[0]
    module = importlib.import_module(package)
    modules = [package]
    if hasattr(module, "__path__"):
        submodules = pkgutil.walk_packages(module.__path__, f"{package}.")
        modules += [submodule.name for submodule in submodules]
    return {
        f"{name}.{key}": value
        for name in modules
        for key, value in vars(importlib.import_module(name)).items()
        if callable(value)
    }


@pytest.mark.parametrize("group", GROUP_TYPES)
def test_a_group_may_use_only_callables_of_its_own_kind(group: str) -> None:
    annotation = group_type(group)
    allowed = {
        value
        for value in public_callables().values()
        for is_factory in (False, True)
        if is_allowed(value, annotation, group, is_factory=is_factory)
        and not in_library(f"{value.__module__}.{value.__name__}", group)
    }
    package = ".".join(GROUP_TYPES[group].split(".")[:2])
    functions = {value.__name__ for value in allowed if not isinstance(value, type)}
    assert all(value.__module__.startswith(package) for value in allowed)
    assert functions == FUNCTIONS.get(group, set())
    assert len(allowed) < len(set(map(id, public_callables().values()))) / 10


@pytest.mark.parametrize("group", LIBRARY_TYPES)
def test_a_group_may_use_only_library_classes_of_its_own_kind(group: str) -> None:
    candidates = library_callables(group)
    base, package = candidates[LIBRARY_TYPES[group]], LIBRARY_TYPES[group].rpartition(".")[0]
    allowed = {
        (value, is_factory)
        for value in candidates.values()
        for is_factory in (False, True)
        if is_allowed(value, group_type(group), group, is_factory=is_factory)
    }
    classes = {value for value, _ in allowed}
    assert base in classes and all(issubclass(value, base) for value in classes)
    assert all(value.__module__.startswith(package) for value in classes)
    assert len({is_factory for _, is_factory in allowed}) == 1
    assert 3 < len(classes) < len(set(map(id, candidates.values()))) / 2


@pytest.mark.parametrize(
    ("group", "target"),
    [
        ("optimizer", "torch.load"),
        ("optimizer", "torch.hub.load"),
        ("optimizer", "torch.optim.lr_scheduler.StepLR"),
        ("optimizer", "torch.optim.swa_utils.update_bn"),
        ("schedule", "torch.optim.SGD"),
        ("schedule", "torch.optim.lr_scheduler.partial"),
        ("encoding", "torch.optim.SGD"),
        ("data", "torch.optim.SGD"),
    ],
)
def test_a_library_callable_of_another_kind_is_refused(group: str, target: str) -> None:
    for partial in (False, True):
        with pytest.raises(ConfigError, match=r"cannot be used|outside posenc"):
            check(OmegaConf.create({"_target_": target, "_partial_": partial}), name=group)


@pytest.mark.parametrize("group", GROUP_TYPES)
def test_every_shipped_option_is_allowed(group: str) -> None:
    files = sorted((conf_dir() / FOLDERS[group]).glob("*.yaml"))
    options = [OmegaConf.load(file) for file in files]
    nodes = [*options]
    if group == "callbacks":  # an option is a mapping of components
        nodes = [option[key] for option in options for key in option]
    targets = [node for node in nodes if isinstance(node, DictConfig) and "_target_" in node]
    assert targets
    for node in targets:
        is_factory = bool(node.get("_partial_") or NUM_POSITIONAL_ARGS.get(group))
        path = node["_target_"]
        target = (
            library_callables(group)[path] if in_library(path, group) else public_callables()[path]
        )
        assert is_allowed(target, group_type(group), group, is_factory=is_factory), target


@pytest.mark.parametrize(
    "target",
    [
        "posenc.jobs.job.main",
        "posenc.cli.main.main",
        "posenc.config.components.instantiate",
        "posenc.runs.delete_run.remove_run",
        "posenc.tracking.tracker.RunDirectory",
        "posenc.encodings.rope.Tensor",
    ],
)
@pytest.mark.parametrize("group", GROUP_TYPES)
def test_a_callable_of_another_kind_is_refused(group: str, target: str) -> None:
    for partial in (False, True):
        with pytest.raises(ConfigError, match="cannot be used"):
            check(OmegaConf.create({"_target_": target, "_partial_": partial}), name=group)


def test_a_parameter_takes_only_components_of_its_own_kind() -> None:
    rope = {"_target_": "posenc.encodings.rope.Rope"}
    for spectrum in (
        {"_target_": "posenc.jobs.job.main", "_partial_": True},
        {"_target_": "posenc.encodings.nope.NoPE", "_partial_": True},
        {"_target_": "posenc.training.schedule.constant", "_partial_": True},
        {"_target_": "posenc.encodings.spectra.geometric"},  # would be called at once
    ):
        with pytest.raises(ConfigError, match=r"encoding.spectrum._target_"):
            check(OmegaConf.create({**rope, "spectrum": spectrum}), name="encoding")


def test_a_custom_encoding_without_annotations_takes_encodings_and_spectra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unannotated.py").write_text(
        "class Mine:\n    def __init__(self, geometry, inner): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def check_inner(target: str) -> None:
        inner = {"_target_": target, "_partial_": True}
        node = OmegaConf.create({"_target_": "unannotated.Mine", "inner": inner})
        check(node, name="encoding", modules=["unannotated"])

    check_inner("posenc.encodings.spectra.geometric")
    check_inner("posenc.encodings.alibi.Alibi")
    with pytest.raises(ConfigError, match="cannot be used"):
        check_inner("posenc.jobs.job.main")


def test_a_target_inside_a_list_is_refused() -> None:
    logger = {
        "_target_": "posenc.tracking.wandb_tracker.WandbTracker",
        "tags": [{"_target_": "posenc.jobs.job.main", "argv": ["run"]}],
    }
    with pytest.raises(ConfigError, match="inside a list"):
        check(OmegaConf.create(logger), name="logger")
