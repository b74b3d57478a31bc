"""Only rows of one evaluation budget and with the same fixed targets are compared and averaged."""

from typing import Any

from posenc.runs.evaluation_rows import common_budgets, select_comparable

Row = dict[str, Any]
COMPLETE, SMALL = (None, None), (None, 50)


def row(count: int, budget_tokens: int | None = None, length: int = 64) -> Row:
    names = ("data", "split", "protocol", "stride", "swap", "at_tokens", "budget_seconds")
    return {
        **dict.fromkeys(names),
        "length": length,
        "count": count,
        "full_count": 200,
        "budget_tokens": budget_tokens,
    }


def test_the_budget_of_most_runs_is_chosen_and_on_a_tie_the_largest() -> None:
    majority = [(64, [row(50, 50)]), (64, [row(50, 50)]), (64, [row(200)])]
    assert set(common_budgets(majority).values()) == {SMALL}
    tie = [(64, [row(50, 50)]), (64, [row(200)])]
    assert set(common_budgets(tie).values()) == {COMPLETE}


def test_a_budget_larger_than_the_split_counts_as_a_complete_evaluation() -> None:
    assert set(common_budgets([(64, [row(200, 900)]), (64, [row(200)])]).values()) == {COMPLETE}


def test_a_run_with_several_budgets_is_compared_by_the_common_one() -> None:
    runs = [(64, [row(200), row(50, 50)]), (64, [row(50, 50)]), (64, [row(200, length=128)])]
    selected = select_comparable(runs)
    assert [[r["count"] for r in rows.comparable] for rows in selected] == [[50], [50], [200]]
    assert [rows.others for rows in selected] == [[], [], []]


def test_rows_of_one_budget_of_seconds_count_once_and_the_largest_is_compared() -> None:
    timed = [{**row(n), "budget_seconds": 0.1, "tokens_hash": str(n)} for n in (20, 64)]
    runs = [(64, timed), *[(64, [row(50, 50)])] * 2]
    assert set(common_budgets(runs).values()) == {SMALL}
    assert select_comparable(runs[:1])[0] == ([timed[1]], [])


def test_a_run_without_the_common_budget_keeps_its_largest_row() -> None:
    runs = [(64, [row(20, 20), row(50, 50)]), *[(64, [row(200)])] * 2]
    assert select_comparable(runs)[0] == ([], [row(50, 50)])


def fixed_row(length: int, longest: int) -> Row:
    return {**row(200, length=length), "protocol": "fixed_target", "longest": longest}


def test_rows_whose_fixed_targets_depend_on_another_longest_length_are_not_compared() -> None:
    extended = [fixed_row(64, 256), fixed_row(96, 128), fixed_row(256, 256)]
    (selected,) = select_comparable([(64, extended)])
    assert [r["length"] for r in selected.comparable] == [64, 256]
    assert [r["length"] for r in selected.others] == [96]


def test_the_fixed_targets_of_most_runs_are_compared_and_on_a_tie_those_of_longer_windows() -> None:
    short, long = [fixed_row(64, 128), fixed_row(128, 128)], [fixed_row(64, 256)]
    majority = select_comparable([(64, short), (64, short), (64, long)])
    assert [len(rows.comparable) for rows in majority] == [2, 2, 0]
    tie = select_comparable([(64, short), (64, long), (32, short)])
    assert [len(rows.comparable) for rows in tie] == [0, 1, 2]


def test_rows_of_two_definitions_of_a_custom_swap_are_not_compared() -> None:
    def swapped(digest: str) -> list[Row]:
        return [{**row(200), "swap": "mine", "swap_digest": digest}]

    selected = select_comparable([(64, swapped("a")), (64, swapped("b")), (64, swapped("b"))])
    assert [len(rows.comparable) for rows in selected] == [0, 1, 1]
