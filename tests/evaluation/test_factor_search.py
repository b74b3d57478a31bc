"""The search for LongRoPE's factors: on a known function, and on a trained run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from posenc.api import longrope_search
from posenc.cli import main
from posenc.evaluation.factor_search import (
    Factors,
    Generation,
    SearchSize,
    best_candidates,
    initial_factors,
    next_generation,
)
from posenc.runs.run_directory import RunDirectory

LENGTH, TOKENS = 61, 500
SIZE = ["population=6", "parents=4", "mutations=2", "crossovers=2"]
OPTIMUM = (1.0, 1.2, 1.5, 2.0, 2.1, 3.3, 3.4, 3.5)


def distance(factors: Factors) -> float:
    return sum((a - b) ** 2 for a, b in zip(factors, OPTIMUM, strict=True))


def search(generations: int, size: SearchSize, seed: int = 1) -> list[Generation]:
    starting = initial_factors(2 * len(OPTIMUM), 64, 1e4, 3.0)
    results: list[Generation] = []
    for _ in range(generations + 1):
        results.append(next_generation(results, starting.values(), 3.0, size, seed, distance))
    return results


def test_the_search_approaches_the_optimum_of_a_function() -> None:
    generations = search(30, SearchSize(32, 16, 16, 16))
    start, end = best_candidates(generations[:1], 1)[0][1], best_candidates(generations, 1)[0][1]
    assert end < 0.1 * start
    candidates = [factors for generation in generations for factors, _ in generation]
    assert len(set(candidates)) == len(candidates) > 900
    for factors in candidates:
        assert list(factors) == sorted(factors) and factors[0] >= 1 and factors[-1] <= 1 + 3


def test_candidates_depend_only_on_the_seed_and_the_earlier_generations() -> None:
    size = SearchSize(8, 4, 3, 3)
    assert search(4, size) == search(4, size)
    assert search(4, size)[:3] == search(2, size)
    assert search(4, size, seed=2) != search(4, size)


def test_the_search_starts_from_pi_ntk_and_yarn() -> None:
    starting = initial_factors(8, 64, 1e4, 4.0)
    assert starting["pi"] == (4, 4, 4, 4)
    assert starting["ntk"] == pytest.approx((1, 4 ** (1 / 3), 4 ** (2 / 3), 4), abs=1e-6)
    assert starting["yarn"] == pytest.approx((1, 1.6, 4, 4), abs=1e-6)
    (first,) = search(0, SearchSize(5, 1, 1, 1))
    assert len(first) == 5
    assert [f for f, _ in first[:3]] == [*initial_factors(16, 64, 1e4, 3.0).values()]


def test_a_request_for_more_candidates_than_exist_does_not_loop_forever() -> None:
    """There are about 5,000 increasing pairs of factors between 1 and 2."""
    size, results = SearchSize(6000, 100, 1, 1), list[Generation]()
    starting = initial_factors(4, 64, 1e4, 1.001)
    for _ in range(2):
        results.append(next_generation(results, starting.values(), 1.001, size, 1, sum))
    assert 3 < len({f for generation in results for f, _ in generation}) < 6000


@pytest.fixture
def copied(short_run: RunDirectory, tmp_path: Path) -> Callable[[str], Path]:
    """Copies the trained run, so that each search has its own files."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(short_run.path, tmp_path / name / short_run.name))

    return copy


def run_search(path: Path, *overrides: str) -> int:
    fixed = [f"run={path}", f"length={LENGTH}", f"tokens={TOKENS}", *SIZE]
    return main(["search-factors", *fixed, *overrides])


def read_state(path: Path) -> dict[str, list[Generation]]:
    return json.loads((path / "longrope" / f"search-{LENGTH}.json").read_text())


def test_the_factors_found_are_a_swap_with_the_loss_of_the_search(
    copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied("a")
    assert run_search(path, "generations=2") == 0
    printed = capsys.readouterr().out
    generations = read_state(path)["generations"]
    factors, lowest = min((c for g in generations for c in g), key=lambda c: c[1])
    assert lowest <= min(loss for _, loss in generations[0])
    assert f"longrope_{LENGTH}" in printed and f"{lowest:.6f}" in printed
    assert f"encoding.factors=[{','.join(map(repr, factors))}]" in printed
    (file,) = path.rglob("longrope_*.yaml")
    assert yaml.safe_load(file.read_text())["long_factor"] == factors
    swaps = [f"evaluation/swap=pi,longrope_{LENGTH}", "--config-dir", str(path / "longrope")]
    text = ["evaluation.split=train", f"evaluation.budget_tokens={TOKENS}"]
    lengths = [f"evaluation.lengths=[{LENGTH}]", "evaluation=nonoverlapping"]
    assert main(["evaluate", f"run={path}", *swaps, *text, *lengths]) == 0
    rows = {
        row["swap"]: row
        for row in RunDirectory(path).rows()
        if (row["protocol"], row["split"]) == ("nonoverlapping", "train")
    }
    (searched,) = (row for name, row in rows.items() if (name or "").startswith("longrope_"))
    assert searched["loss"] == lowest
    assert rows["pi"]["loss"] == pytest.approx(generations[0][0][1], abs=1e-6)


def test_an_interrupted_search_resumes_with_the_same_result(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    uninterrupted, stopped = copied("a"), copied("b")
    assert run_search(uninterrupted, "generations=2") == 0
    calls, measure = [], longrope_search.measure

    def stop_at_call_9(*args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return measure(*args, **kwargs)  # pyrefly: ignore

    monkeypatch.setattr(longrope_search, "measure", stop_at_call_9)
    assert run_search(stopped, "generations=2") == 130
    assert len(read_state(stopped)["generations"]) == 1
    assert run_search(stopped, "generations=1") == 0
    assert run_search(stopped, "generations=2") == 0
    # The second generation was repeated, and each command measured the best candidate again.
    assert len(calls) == 9 + 8 + 2
    assert read_state(stopped) == read_state(uninterrupted)
    for path in (uninterrupted, stopped):
        assert len(list(path.rglob("longrope_*.yaml"))) == 1
    first, second = (next(p.rglob("longrope_*.yaml")) for p in (uninterrupted, stopped))
    assert first.read_text() == second.read_text()


def test_invalid_searches_are_refused_before_anything_is_written(
    copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied("a")
    for overrides, message in [
        (["length=24"], "length=24 must be more than the training length 24"),
        (["population=2"], "population=2 must be at least 3"),
        (["split=validation"], "choose another split"),
        (["generations=0"], "generations=0 must be positive"),
        (["length=48,96"], "single value"),
    ]:
        assert run_search(path, *overrides) == 2
        assert message in capsys.readouterr().err
    assert not (path / "longrope").exists()


def test_another_search_of_the_same_length_is_not_overwritten(
    copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied("a")
    assert run_search(path, "generations=1") == 0
    before = read_state(path)
    assert run_search(path, "generations=1", "seed=2") == 2
    assert "seed=1 instead of 2" in capsys.readouterr().err
    assert read_state(path) == before


def test_a_corrupt_search_is_refused_and_its_file_is_named(
    copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied("a")
    assert run_search(path, "generations=1") == 0
    before = read_state(path)["generations"]
    factors, loss = before[0][0]
    file = path / "longrope" / f"search-{LENGTH}.json"
    for first in (
        [1, 2],
        [],
        before[1],
        before[0][1:],
        [*before[0], before[0][0]],
        *(
            [candidate, *before[0][1:]]
            for candidate in (
                [factors[:-1], loss],
                [["os.system", *factors[1:]], loss],
                [[-1.0, *factors[1:]], loss],
                [[[1.0], *factors[1:]], loss],
                [factors, "low"],
                [factors, True],
                [factors, 0.001],
            )
        ),
    ):
        contents = {**read_state(path), "generations": [first, before[1]]}
        file.write_text(json.dumps(contents))
        assert run_search(path, "generations=2") == 1, first
        error = capsys.readouterr().err
        assert str(file) in error and "delete it" in error
        assert json.loads(file.read_text()) == contents
