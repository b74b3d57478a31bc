"""Checkpoints with values that would take forever to hash or print are not loaded."""

import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzing import time_limit
from posenc.config.errors import RunError
from posenc.training.checkpoint import Checkpoint
from posenc.training.pickle_size import (
    MAX_OPCODES,
    OPCODES_PER_MEMBER,
    check_checkpoint,
    check_pickle,
)


def doubled(levels: int) -> Any:
    """Nested pairs that contain the same value twice, and so 2^levels values without sharing."""
    value: Any = ()
    for _ in range(levels):
        value = (value, value)
    return value


def with_key(value: bytes) -> bytes:
    """A pickle of a state_dict that has the pickled `value` as a key."""
    key = value.removeprefix(b"\x80\x02").removesuffix(b".")
    return b"\x80\x02}(X\x0a\x00\x00\x00state_dict}(" + key + b"K\x01uu."


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_shared_values_are_counted_each_time(protocol: int) -> None:
    check_pickle(pickle.dumps([doubled(10), OrderedDict(a={1, 2}), 2**70, b"ab"], protocol))
    with pytest.raises(ValueError, match="more than 10,000,000 values"):
        check_pickle(pickle.dumps(doubled(60), protocol))


@pytest.mark.parametrize("grow", [lambda a: a.append(a), lambda a: a.append([a])])
def test_a_list_that_contains_itself_is_an_error(grow: Any) -> None:
    value: list[Any] = []
    grow(value)
    with pytest.raises(ValueError, match="contains itself"):
        check_pickle(pickle.dumps(value, 2))


@pytest.mark.parametrize("data", [b"", b"\x80\x02q\x00.", b"\x80\x02h\x05."])
def test_a_corrupt_pickle_is_an_error(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        check_pickle(data)


def test_a_checkpoint_with_a_key_that_takes_forever_to_hash_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "step-000000001-0123456789abcdef.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", with_key(pickle.dumps(doubled(60), 2)))
        archive.writestr("archive/version", "3\n")
    with time_limit("load"), pytest.raises(RunError, match="more than 10,000,000 values"):
        Checkpoint(path, 1, "0123456789abcdef").load()


def saved(path: Path) -> Path:
    torch.save({"state_dict": {"a": torch.zeros(3)}}, path)
    return path


def rewritten(path: Path, names: dict[str, str], compression: int) -> None:
    """Write the archive again, with other names for some members."""
    with zipfile.ZipFile(saved(path)) as archive:
        contents = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, data in contents.items():
            stem, _, name = member.partition("/")
            archive.writestr(f"{stem}/{names.get(name, name)}", data)


@pytest.mark.slow
def test_a_pickle_with_millions_of_opcodes_is_refused_within_seconds() -> None:
    with pytest.raises(ValueError, match="opcodes"):
        check_pickle(b"N0" * 5_000_000 + b"N.")


@pytest.mark.slow
def test_a_checkpoint_of_a_model_with_a_thousand_layers_can_be_loaded(tmp_path: Path) -> None:
    """A layer has about 12 parameters, each with 3 values of AdamW: 48 tensors."""
    tensors = {f"model.blocks.0.attention.weight{n}": torch.zeros(1) for n in range(48_000)}
    torch.save({"state_dict": tensors}, path := tmp_path / "a.ckpt")
    check_checkpoint(path)


@pytest.mark.slow
@pytest.mark.parametrize("members", [0, 1000])
def test_the_number_of_opcodes_may_grow_with_the_number_of_members(members: int) -> None:
    limit = MAX_OPCODES + OPCODES_PER_MEMBER * members
    check_pickle(b"N0" * (limit // 2 - 1) + b"N.", members)
    with pytest.raises(ValueError, match="opcodes"):
        check_pickle(b"N0" * (limit // 2) + b"N.", members)


def test_a_pickle_before_the_zip_archive_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.ckpt")
    path.write_bytes(pickle.dumps(doubled(60), 2) + path.read_bytes())
    with pytest.raises(ValueError, match="not a zip file"):
        check_checkpoint(path)


@pytest.mark.parametrize("name", ["data.PKL", "constants.pkl", "code/a.py"])
def test_a_member_that_torch_does_not_write_is_refused(name: str, tmp_path: Path) -> None:
    rewritten(tmp_path / "a.ckpt", {"data.pkl": name}, zipfile.ZIP_STORED)
    with pytest.raises(ValueError, match=r"is not from torch\.save"):
        check_checkpoint(tmp_path / "a.ckpt")


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    rewritten(tmp_path / "a.ckpt", {}, zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match=r"is not from torch\.save"):
        check_checkpoint(tmp_path / "a.ckpt")


@pytest.mark.parametrize(
    "change", [{"optimizer_states": []}, {"lr_schedulers": None}, {"loops": 1}]
)
def test_a_checkpoint_without_the_state_of_training_cannot_be_resumed(
    change: dict[str, Any], tmp_path: Path
) -> None:
    state = {
        "state_dict": {}, "global_step": 1, "pytorch-lightning_version": "2", "loops": {},
        "callbacks": {}, "optimizer_states": [{}], "lr_schedulers": [{}], "run_hash": "a",
    }  # fmt: skip
    path = tmp_path / "step-000000001-0123456789abcdef.ckpt"
    torch.save(state, path)
    Checkpoint(path, 1, "0123456789abcdef").check_training_state("a")
    torch.save(state | change, path)
    with pytest.raises(RunError, match=f"{next(iter(change))} is missing or invalid"):
        Checkpoint(path, 1, "0123456789abcdef").check_training_state("a")


def test_a_checkpoint_of_an_optimizer_with_shared_settings_is_accepted(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW([{"params": [weight]} for weight in model.parameters()])
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    path = tmp_path / "model.ckpt"
    torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    check_checkpoint(path)
