"""Cores and memory within a cgroup's limits, and GPUs by CUDA_VISIBLE_DEVICES or nvidia-smi."""

import os
import stat
from pathlib import Path

import pytest

from posenc.runs.hardware import cores, gpus, memory_bytes

LISTING = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
  MIG 1g.10gb     Device  0: (UUID: MIG-1)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "1600000 100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
    ],
)
def test_cores_are_limited_by_the_quota_of_the_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cores(tmp_path) == expected


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
def test_memory_is_limited_by_the_cgroup(tmp_path: Path, name: str) -> None:
    physical = memory_bytes(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    for limit, expected in (("1000000", 1_000_000), (str(2**62), physical)):
        (tmp_path / name).write_text(limit + "\n")
        assert memory_bytes(tmp_path) == expected
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes(tmp_path) == physical


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("", []), ("-1", []), ("0", ["0"]), ("2, 5", ["2", "5"]), ("GPU-a,MIG-b", ["GPU-a", "MIG-b"])],
)
def test_gpus_are_those_in_cuda_visible_devices(
    monkeypatch: pytest.MonkeyPatch, visible: str, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus() == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [(f"cat <<'E'\n{LISTING}E", ["0", "1"]), ("echo failed; exit 9", []), (None, [])],
)
def test_without_cuda_visible_devices_gpus_are_those_that_nvidia_smi_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, expected: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if script is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == expected
