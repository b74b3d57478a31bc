"""The copy of the package that the jobs of a sweep import."""

import os
import stat
from pathlib import Path

import pytest

from posenc.runs import code_snapshot


def test_the_copy_of_a_read_only_package_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "posenc"
    (package / "part").mkdir(parents=True)
    for file in (package / "__init__.py", package / "part" / "module.py"):
        file.touch()
        os.utime(file, (0, 0))  # not edited since the import of posenc
        file.chmod(0o444)
    (package / "part").chmod(0o555)
    monkeypatch.setattr(code_snapshot, "PACKAGE", package)
    copy = code_snapshot.snapshot_code(tmp_path / "experiment")
    assert all(path.stat().st_mode & stat.S_IWUSR for path in copy.rglob("*"))
    (package / "part").chmod(0o755)
