from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from posenc.config.errors import ConfigError
from posenc.data import packages
from posenc.data.packages import PackagesCorpus, required_packages

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package that only this test can see; `requires` lists its requirements."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> None:
        module, record = name.replace("-", "_"), []
        for path, text in files.items():
            file = tmp_path / module / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            digest = urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{module}/{path},sha256={digest},{len(text)}")
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (info / "METADATA").write_text("\n".join(lines))
        (info / "RECORD").write_text("\n".join(record))

    return write


@pytest.fixture
def corpus(install: Install, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], PackagesCorpus]:
    """Makes a corpus of the source of first-dep, second-dep and third-dep; the last is held out."""
    install("app-under-test", {}, ("first-dep>=1", "second_dep", "absent; extra == 'docs'"))
    install("first-dep", {"a.py": source("a"), "tests/t.py": source("t"), "notes.txt": "text"})
    install("second-dep", {"b.py": source("b"), "copy_of_c.py": source("c")}, ("third-dep",))
    install("third-dep", {"c.py": source("c"), "empty.py": "\n", "_vendor/v.py": source("v")})
    required = required_packages("app-under-test")
    monkeypatch.setattr(packages, "required_packages", lambda _: required)
    return lambda overlap: PackagesCorpus(["third-dep"], [], overlap)


def source(name: str) -> str:
    return "".join(f"def {name}_{number}(): ...\n" for number in range(10))


def test_requirements_are_followed_and_extras_are_not(corpus: object) -> None:
    assert packages.required_packages("").keys() == {"first-dep", "second-dep", "third-dep"}


def test_no_package_is_in_two_splits(corpus: Callable[[float], PackagesCorpus]) -> None:
    assert list(corpus(0.7).documents("validation")) == [source("c")]
    assert list(corpus(0.7).documents("train")) == [source("a"), source("b")]
    assert list(corpus(0.7).documents("test")) == []


def test_the_validation_split_is_read_without_the_train_split(
    corpus: Callable[[float], PackagesCorpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda p: (read.append(p.name), read_bytes(p))[1])
    assert list(corpus(0.7).documents("validation")) == [source("c")]
    assert sorted(read) == ["c.py", "empty.py"]


def test_a_near_duplicate_is_kept_in_the_held_out_split_only(
    corpus: Callable[[float], PackagesCorpus], install: Install
) -> None:
    changed = source("c").replace("c_9", "d_9")
    install("second-dep", {"b.py": source("b"), "copy_of_c.py": changed}, ("third-dep",))
    assert changed not in list(corpus(0.89).documents("train"))
    assert changed in list(corpus(0.9).documents("train"))


def test_a_changed_file_changes_the_digest(
    corpus: Callable[[float], PackagesCorpus], install: Install
) -> None:
    before = corpus(0.7).split_digest("train")
    assert corpus(0.7).split_digest("train") == before
    assert corpus(0.5).split_digest("train") != before
    install("first-dep", {"a.py": source("a") + "x = 1\n"})
    assert corpus(0.7).split_digest("train") != before


def test_a_held_out_package_must_be_required(corpus: object) -> None:
    with pytest.raises(ConfigError, match=r"missing-dep.*first-dep, second-dep, third-dep"):
        list(PackagesCorpus(["missing-dep"], [], 0.7).documents("validation"))


def test_a_package_in_both_held_out_splits_is_refused() -> None:
    with pytest.raises(ConfigError, match="both contain first-dep"):
        PackagesCorpus(["first-dep"], ["first-dep", "second-dep"], 0.7)


def test_an_overlap_above_1_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_overlap=1\.5"):
        PackagesCorpus([], [], 1.5)


@pytest.mark.parametrize("text", ["x = 1\n", None])
def test_a_file_that_was_changed_or_deleted_after_its_installation_is_an_error(
    text: str | None, corpus: Callable[[float], PackagesCorpus], tmp_path: Path
) -> None:
    file = tmp_path / "first_dep" / "a.py"
    file.unlink() if text is None else file.write_text(text)
    assert list(corpus(0.7).documents("validation")) == [source("c")]
    with pytest.raises(ConfigError, match=r"first_dep/a.py is missing or .* reinstall"):
        list(corpus(0.7).documents("train"))


def test_the_shipped_splits_name_packages_that_posenc_requires() -> None:
    names = required_packages("posenc")
    file = Path(__file__).parents[2] / "conf" / "data" / "python_packages.yaml"
    shipped = yaml.safe_load(file.read_text())
    assert {*shipped["validation"], *shipped["test"]} <= names.keys()
    assert {"torch", "numpy", "hydra-core"} <= names.keys()
