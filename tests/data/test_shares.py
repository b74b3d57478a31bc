from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc.config.errors import ConfigError
from posenc.data.splits import Shares

SHARES = st.floats(0, 0.49)


@settings(deadline=None)
@given(st.text(alphabet="ab \n"), SHARES, SHARES)
def test_parts_join_to_the_document(document: str, validation: float, test: float) -> None:
    shares = Shares(validation, test)
    parts = [shares.part_of(document, split) for split in ("train", "validation", "test")]
    assert "".join(parts) == document


def test_parts_are_of_the_size_asked_for_and_end_with_lines() -> None:
    document = "".join(f"line {number:04}\n" for number in range(1000))
    shares = Shares(0.1, 0.2)
    sizes = {s: len(shares.part_of(document, s)) for s in ("train", "validation", "test")}
    assert sizes == {"train": 7000, "validation": 1000, "test": 2000}
    parts = [Shares(0.1003, 0.2).part_of(document, s) for s in ("train", "validation", "test")]
    assert all(part.endswith("\n") and part.startswith("line") for part in parts)


def test_one_long_line_is_cut_all_the_same() -> None:
    shares = Shares(0.1, 0.1)
    assert [len(shares.part_of("x" * 100, s)) for s in shares.splits()] == [80, 10, 10]


def test_units_are_divided_by_their_hash() -> None:
    shares = Shares(validation=0.3, test=0.2)
    for number in range(100):
        key = str(number).encode()
        point = int(sha256(key).hexdigest()[:16], 16) / 16**16
        expected = "test" if point < 0.2 else "validation" if point < 0.5 else "train"
        assert shares.split_of(key) == expected


def test_a_share_of_nothing_is_no_split() -> None:
    assert Shares(0, 0.1).splits() == ("train", "test")


@pytest.mark.parametrize(("validation", "test"), [(-0.1, 0.1), (0.5, 0.5), (1.0, 0.0)])
def test_impossible_shares_are_refused(validation: float, test: float) -> None:
    with pytest.raises(ConfigError, match=r"data.validation_share"):
        Shares(validation, test)
