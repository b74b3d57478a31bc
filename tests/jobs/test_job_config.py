"""The jobs of a sweep: their data, their parameter counts, and how they are composed."""

from pathlib import Path

import pytest
import torch

from compositions import composer
from posenc.config.compose import Composer
from posenc.config.steps import training_steps
from posenc.data.build_data import build_data
from posenc.jobs.job_config import compose_job, compose_sweep_jobs
from posenc.jobs.validate import validate
from posenc.model.build import build_meta_model, build_model
from posenc.training.batches import micro_batch_loader


def test_every_encoding_sees_the_same_tokens(small_job: list[str]) -> None:
    tokens = []
    for name in ("nope", "t5"):
        config = compose_job([*small_job, f"encoding={name}"], composer())
        data = build_data(config, lambda _: None)
        batches = data.training_batches(config.train_length, config.seed)
        inputs = [x for x, *_ in micro_batch_loader(batches, training_steps(config), 30)]
        tokens.append(torch.stack(inputs))
    assert len(tokens[0]) == 10
    assert torch.equal(*tokens)


def test_parameters_are_counted_without_building_the_model(small_job: list[str]) -> None:
    for name in ("t5", "learned", "rope"):
        config = compose_job([*small_job, f"encoding={name}", "evaluation.factors=[1]"], composer())
        vocab_size = build_data(config, lambda _: None).vocab_size
        expected = build_model(config, vocab_size).parameter_count()
        assert build_meta_model(config, vocab_size, validate(config)).parameter_count() == expected


@pytest.mark.slow
def test_jobs_that_differ_in_their_seed_equal_separately_composed_ones(
    small_job: list[str], tmp_path: Path
) -> None:
    """In the schedules `seeded` and `listed`, the seed determines another setting."""
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "seeded.yaml").write_text(
        "_target_: posenc.training.schedule.cosine\nwarmup_fraction: 0.${seed}\nmin_lr_ratio: 0.1\n"
    )
    (tmp_path / "schedule" / "listed.yaml").write_text(
        "_target_: posenc.training.schedule.cosine\nwarmup_fraction: 0.1\n"
        "min_lr_ratio: ${oc.select:evaluation.factors.${seed}}\n"
    )
    seeded_composer = Composer("train", [tmp_path])
    for schedule in ("cosine", "seeded", "listed"):
        job = [*small_job, "encoding=rope", f"schedule={schedule}"]
        job.append("evaluation.factors=[1,0.5,0.5,0.2,0.3,1,1,1,1,1,1]")
        jobs = [["seed=1", *job], ["seed=2", *job], ["seed=3", *job, "tokens=999"]]
        jobs += [["seed=3", *job], [*job, "seed=4"], [*job, "seed=1e1"]]
        expected = [compose_job(overrides, seeded_composer) for overrides in jobs]
        assert compose_sweep_jobs(jobs, seeded_composer) == expected
