"""The jobs defined by an experiment's grids, its sizes and the command line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from posenc.config.errors import ConfigError
from posenc.config.grids import expand, expand_config

BASELINES = {"encoding": ["nope", "alibi"], "train_length": [512, 1024]}
BASES = {"encoding": "rope", "encoding.spectrum.base": [100, 10000.0, 5e5], "train_length": 512}
GRIDS = [BASELINES, BASES]


def as_dicts(jobs: list[list[str]]) -> list[dict[str, str]]:
    return [dict(text.split("=", 1) for text in job) for job in jobs]  # type: ignore[misc]


def test_without_a_sweep_there_is_one_job_with_the_overrides_unchanged() -> None:
    overrides = ["encoding=alibi", "+new='a, b'", "~old", "evaluation.lengths=[64,128]", "x.y=1e-3"]
    assert expand(None, overrides) == [overrides]
    assert expand([], []) == [[]]


def test_commas_make_a_product() -> None:
    assert expand(None, ["seed=1,2", "encoding=rope,alibi"]) == [
        ["seed=1", "encoding=rope"],
        ["seed=1", "encoding=alibi"],
        ["seed=2", "encoding=rope"],
        ["seed=2", "encoding=alibi"],
    ]


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("k=range(1,4)", ["1", "2", "3"]),
        ("k=range(0,1,0.5)", ["0.0", "0.5"]),
        ("k=choice(a,b)", ["a", "b"]),
        ("k='a, b','c d'", ["'a, b'", "'c d'"]),
        ("k=[1,2],[3]", ["[1,2]", "[3]"]),
        ("k=[1,2]", ["[1,2]"]),
        ("k='1,2'", ["'1,2'"]),
        ("k=null,true", ["null", "True"]),
        ("k=1.0,1,1e0", ["1.0"]),
    ],
)
def test_a_sweep_override_makes_one_job_per_distinct_value(
    override: str, values: list[str]
) -> None:
    assert expand(None, [override]) == [[f"k={value}"] for value in values]


def test_the_prefix_of_an_override_is_kept() -> None:
    assert expand(None, ["+k=1,2"]) == [["+k=1"], ["+k=2"]]


def test_the_last_override_of_a_key_wins() -> None:
    assert expand(None, ["seed=1,2", "seed=3"]) == [["seed=3"]]


def test_glob_selects_the_options_that_match(tmp_path: Path) -> None:
    (tmp_path / "encoding").mkdir()
    (tmp_path / "encoding" / "alibi_mine.yaml").touch()
    jobs = expand(None, ["encoding=glob(alibi_m*)"], [tmp_path])
    assert jobs == [["encoding=alibi_mine"]]
    assert ["encoding=alibi"] in expand(None, ["encoding=glob(a*)"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("encoding=glob(z*)", "matches no option"),
        ("seed=glob(*)", "seed is not a config group"),
        ("x=interval(0,1)", "an interval cannot be enumerated"),
        ("x=interval(0,1),5", "an interval cannot be enumerated"),
        ("x", "write overrides as key=value"),
    ],
)
def test_an_override_without_values_is_an_error(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(None, [override])


def test_the_jobs_are_the_union_of_the_grids_in_order() -> None:
    assert expand(GRIDS, []) == [
        ["encoding=nope", "train_length=512"],
        ["encoding=nope", "train_length=1024"],
        ["encoding=alibi", "train_length=512"],
        ["encoding=alibi", "train_length=1024"],
        ["encoding=rope", "encoding.spectrum.base=100", "train_length=512"],
        ["encoding=rope", "encoding.spectrum.base=10000.0", "train_length=512"],
        ["encoding=rope", "encoding.spectrum.base=500000.0", "train_length=512"],
    ]


def test_the_command_line_multiplies_the_grids() -> None:
    jobs = expand(GRIDS, ["seed=1,2,3"])
    assert len(jobs) == 7 * 3
    assert jobs[:2] == [[*expand(GRIDS, [])[0], "seed=1"], [*expand(GRIDS, [])[0], "seed=2"]]


def test_a_value_that_some_grids_have_keeps_only_those_grids() -> None:
    assert as_dicts(expand(GRIDS, ["encoding=alibi"])) == [
        {"encoding": "alibi", "train_length": "512"},
        {"encoding": "alibi", "train_length": "1024"},
    ]
    assert {job["encoding"] for job in as_dicts(expand(GRIDS, ["train_length=1024"]))} == {
        "nope",
        "alibi",
    }


def test_a_value_that_no_grid_has_replaces_the_values_in_all() -> None:
    jobs = as_dicts(expand(GRIDS, ["train_length=128"]))
    assert len(jobs) == 5
    assert {job["train_length"] for job in jobs} == {"128"}


def test_known_and_new_values_can_be_combined() -> None:
    jobs = as_dicts(expand([BASELINES], ["train_length=1024,128"]))
    assert {(job["encoding"], job["train_length"]) for job in jobs} == {
        ("nope", "1024"),
        ("nope", "128"),
        ("alibi", "1024"),
        ("alibi", "128"),
    }


def test_a_new_component_joins_the_grid_that_varies_no_parameter_of_it() -> None:
    jobs = as_dicts(expand(GRIDS, ["encoding=t5,rope"]))
    assert [job["encoding"] for job in jobs] == ["t5", "t5", "rope", "rope", "rope"]
    assert all(("encoding.spectrum.base" in job) == (job["encoding"] == "rope") for job in jobs)


def test_a_new_component_replaces_the_old_one_if_every_grid_varies_its_parameters() -> None:
    jobs = as_dicts(expand([BASES], ["encoding=sinusoidal"]))
    assert len(jobs) == 3
    assert {job["encoding"] for job in jobs} == {"sinusoidal"}


def test_a_parameter_of_a_component_keeps_only_the_grids_that_vary_it() -> None:
    assert as_dicts(expand(GRIDS, ["encoding.spectrum.base=500000,7"])) == [
        {"encoding": "rope", "train_length": "512", "encoding.spectrum.base": "500000"},
        {"encoding": "rope", "train_length": "512", "encoding.spectrum.base": "7"},
    ]


def test_a_key_that_no_grid_varies_is_added_to_all() -> None:
    jobs = expand(GRIDS, ["encoding.layout=interleaved"])
    assert len(jobs) == 7
    assert all(job[-1] == "encoding.layout=interleaved" for job in jobs)


def test_a_deletion_removes_the_key_from_a_grid() -> None:
    assert expand([BASELINES], ["~encoding"]) == [
        ["train_length=512", "~encoding"],
        ["train_length=1024", "~encoding"],
    ]


def test_duplicate_jobs_are_kept_once() -> None:
    grids = [{"a": [1, 2], "b": 5e5}, {"b": 500000, "a": [2.0, 3]}]
    assert expand(grids, []) == [["a=1", "b=500000.0"], ["a=2", "b=500000.0"], ["b=500000", "a=3"]]


def test_a_number_and_a_string_are_different_values() -> None:
    assert expand([{"a": [1, "1", True]}], []) == [["a=1"], ["a='1'"], ["a=true"]]


@given(st.sampled_from(["nope", "alibi", "rope", "t5"]), st.sampled_from([512, 1024, 128]))
def test_every_job_has_the_overrides_of_the_command_line(encoding: str, length: int) -> None:
    overrides = [f"encoding={encoding}", f"train_length={length}"]
    jobs = expand(GRIDS, overrides)
    assert jobs and all(set(overrides) <= set(job) for job in jobs)


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        ({"encoding": ["rope"]}, "must be a list of mappings"),
        (["encoding=rope"], r"grids\[0\]: 'encoding=rope' must be a mapping"),
        ([{"seed": 1}, {"encoding": []}], r"grids\[1\]\.encoding is an empty list"),
        ([{"encoding": [{"base": 3}]}], r"grids\[0\]\.encoding: \{'base': 3\} must be a number"),
    ],
)
def test_an_invalid_grid_is_an_error(grids: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(grids, [])


SIZED = OmegaConf.create(
    {
        "size": "laptop",
        "grids": [{"encoding": ["nope", "alibi"], "train_length": [512, 1024]}],
        "sizes": {
            "laptop": ["train_length=64,128", "tokens=1e6", "evaluation.offsets=[0,10]"],
            "paper": [],
        },
    }
)


def test_a_size_overrides_the_grids() -> None:
    jobs = expand_config(SIZED, ["seed=1,2"])
    assert len(jobs) == 2 * 2 * 2
    assert jobs[0] == [
        "encoding=nope",
        "train_length=64",
        "tokens=1e6",
        "evaluation.offsets=[0,10]",
        "seed=1",
    ]


def test_the_command_line_overrides_the_size() -> None:
    jobs = as_dicts(expand_config(SIZED, ["train_length=1024", "tokens=5"]))
    assert {(job["train_length"], job["tokens"]) for job in jobs} == {("1024", "5")}


def test_another_length_key_replaces_that_of_the_size() -> None:
    jobs = as_dicts(expand_config(SIZED, ["evaluation.lengths=[64]"]))
    assert all("evaluation.offsets" not in job for job in jobs)
    assert {job["evaluation.lengths"] for job in jobs} == {"[64]"}


def test_another_length_key_replaces_that_of_a_grid() -> None:
    grids = [{"encoding": ["rope"]}, {"encoding": ["learned"], "evaluation.factors": [[1]]}]
    assert expand(grids, ["evaluation.lengths=[64]"]) == [
        ["encoding=rope", "evaluation.lengths=[64]"],
        ["encoding=learned", "evaluation.lengths=[64]"],
    ]


def test_a_size_that_the_experiment_lacks_is_an_error() -> None:
    with pytest.raises(ConfigError, match="size=gpu_hour"):
        expand_config(OmegaConf.merge(SIZED, {"size": "gpu_hour"}), [])  # type: ignore[arg-type]


def test_an_experiment_without_sizes_has_only_the_default_size() -> None:
    config = OmegaConf.create({"size": "laptop", "sizes": None, "grids": None})
    assert expand_config(config, ["seed=1"]) == [["seed=1"]]
    with pytest.raises(ConfigError, match="size=paper"):
        expand_config(OmegaConf.merge(config, {"size": "paper"}), [])  # type: ignore[arg-type]


def test_interpolations_in_grids_are_left_to_the_jobs() -> None:
    config = OmegaConf.create(
        {"size": "laptop", "sizes": None, "grids": [{"tokens": "${train_length}"}]}
    )
    assert expand_config(config, []) == [["tokens='${train_length}'"]]
