from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc.config.errors import ConfigError
from posenc.config.settings import SPLITS
from posenc.data.corpus import SplitFractions

FRACTIONS = st.just(0.0) | st.floats(0, 0.49)


@settings(deadline=None)
@given(st.text(alphabet="ab \n"), FRACTIONS, FRACTIONS)
def test_the_parts_of_a_document_concatenate_to_it(
    document: str, validation: float, test: float
) -> None:
    fractions = SplitFractions(validation, test)
    parts = [fractions.split_slice(document, split) for split in fractions.splits()]
    assert "".join(parts) == document


def test_parts_have_the_requested_size_and_consist_of_whole_lines() -> None:
    document = "".join(f"line {number:04}\n" for number in range(1000))
    fractions = SplitFractions(0.1, 0.2)
    sizes = {split: len(fractions.split_slice(document, split)) for split in SPLITS}
    assert sizes == {"train": 7000, "validation": 1000, "test": 2000}
    parts = [SplitFractions(0.1003, 0.2).split_slice(document, split) for split in SPLITS]
    assert all(part.endswith("\n") and part.startswith("line") for part in parts)


def test_a_cut_moves_to_a_line_start_only_if_the_next_part_keeps_some_text() -> None:
    document = "a" * 85 + "b" * 4 + "\n" + "c" * 9 + "\n"
    fractions = SplitFractions(0.1, 0.1)
    assert [len(fractions.split_slice(document, s)) for s in SPLITS] == [80, 10, 10]


def test_a_single_long_line_is_cut_anywhere() -> None:
    fractions = SplitFractions(0.1, 0.1)
    assert [len(fractions.split_slice("x" * 100, s)) for s in fractions.splits()] == [80, 10, 10]


def test_documents_are_assigned_by_their_hash() -> None:
    fractions = SplitFractions(validation=0.3, test=0.2)
    for number in range(100):
        key = str(number).encode()
        point = int(sha256(key).hexdigest()[:16], 16) / 16**16
        expected = "test" if point < 0.2 else "validation" if point < 0.5 else "train"
        assert fractions.assign_split(key) == expected


def test_a_fraction_of_zero_gives_no_split() -> None:
    assert SplitFractions(0, 0.1).splits() == ("train", "test")


@pytest.mark.parametrize(("validation", "test"), [(-0.1, 0.1), (0.5, 0.5), (1.0, 0.0)])
def test_impossible_fractions_are_an_error(validation: float, test: float) -> None:
    with pytest.raises(ConfigError, match=f"data.validation_fraction={validation}"):
        SplitFractions(validation, test)
