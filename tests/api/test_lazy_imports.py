"""`import posenc` is fast: it imports no dependency before a public name is used."""

import subprocess
import sys

import pytest

import posenc


def test_importing_posenc_imports_no_dependency() -> None:
    code = (
        "import sys; import posenc; dir(posenc);"
        "sys.exit(any(m in sys.modules for m in ('torch', 'hydra', 'rich', 'pandas', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_exists_and_has_a_docstring() -> None:
    assert set(dir(posenc)) == {*posenc.__all__, "__version__"}
    for name in posenc.__all__:
        assert getattr(posenc, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = posenc.trian  # pyrefly: ignore[missing-attribute]
