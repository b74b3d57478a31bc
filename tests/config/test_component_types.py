"""Which callables of the package each config group may build."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

import posenc
from posenc.config.component_types import GROUP_TYPES, group_type, is_allowed
from posenc.config.components import check
from posenc.config.errors import ConfigError
from posenc.config.paths import conf_dir
from posenc.jobs.job_config import NUM_POSITIONAL_ARGS

FOLDERS = {group: group.replace(".", "/") for group in GROUP_TYPES}
FUNCTIONS = {
    "tokenizer": {"pretrained", "load_tokenizer"},
    "encoding.spectrum": {
        "dynamic_ntk", "dynamic_ntk_hf", "geometric", "geometric_d1", "geometric_t2t",
        "half_truncated", "hope", "longrope", "ntk", "ntk_by_parts", "p_rope", "p_rope_reversed",
        "position_interpolation", "power", "powers_of_two", "resonance", "yarn", "yarn_paper",
    },
    "logger": {"find_tracker"},
    "optimizer": {"adamw", "muon", "nag"},
    "schedule": {"constant", "cosine", "cosine_restarts"},
}  # fmt: skip
"""The functions that a group may call, besides its classes.

load_tokenizer and find_tracker need arguments that a configuration cannot have.
"""


def public_callables() -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of everything callable in a module of the package."""
    for module in pkgutil.walk_packages(posenc.__path__, "posenc."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                if callable(value) and not name.startswith("__"):
                    yield f"{module.name}.{name}", value


CALLABLES = dict(public_callables())


@pytest.mark.parametrize("group", GROUP_TYPES)
def test_of_all_callables_a_group_may_use_only_those_of_its_own_kind(group: str) -> None:
    annotation = group_type(group)
    allowed = {
        value
        for value in CALLABLES.values()
        for is_factory in (False, True)
        if is_allowed(value, annotation, group, is_factory=is_factory)
    }
    package = ".".join(GROUP_TYPES[group].split(".")[:2])
    functions = {value.__name__ for value in allowed if not isinstance(value, type)}
    assert all(value.__module__.startswith(package) for value in allowed)
    assert functions == FUNCTIONS.get(group, set())
    assert len(allowed) < len(set(map(id, CALLABLES.values()))) / 10


@pytest.mark.parametrize("group", GROUP_TYPES)
def test_every_option_that_is_shipped_is_allowed(group: str) -> None:
    files = sorted((conf_dir() / FOLDERS[group]).glob("*.yaml"))
    nodes = [OmegaConf.load(file) for file in files]
    targets = [node for node in nodes if isinstance(node, DictConfig) and "_target_" in node]
    assert targets
    for node in targets:
        is_factory = bool(node.get("_partial_") or NUM_POSITIONAL_ARGS.get(group))
        target = CALLABLES[node["_target_"]]
        assert is_allowed(target, group_type(group), group, is_factory=is_factory), target


@pytest.mark.parametrize(
    "target",
    [
        "posenc.jobs.job.main",
        "posenc.cli.main.main",
        "posenc.config.components.instantiate",
        "posenc.runs.run_directory.remove_run",
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
            check(OmegaConf.create({**rope, "spectrum": spectrum}), name="encoding", num_args=1)


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
        check(node, name="encoding", modules=["unannotated"], num_args=1)

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
