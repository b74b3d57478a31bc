"""Facts that hold for the jobs of a sweep, whatever their encoding."""

import torch

from posenc.config.steps import training_steps
from posenc.data.build_data import build_data
from posenc.jobs.job_config import compose_job
from posenc.jobs.validate import validate
from posenc.model.build import build_meta_model, build_model
from posenc.training.batches import micro_batch_loader


def test_every_encoding_sees_the_same_tokens(small_job: list[str]) -> None:
    tokens = []
    for name in ("nope", "t5"):
        config = compose_job([*small_job, f"encoding={name}"], [])
        data = build_data(config, lambda _: None)
        batches = data.training_batches(config.train_length, config.seed)
        inputs = [x for x, *_ in micro_batch_loader(batches, training_steps(config), 30)]
        tokens.append(torch.stack(inputs))
    assert len(tokens[0]) == 10
    assert torch.equal(*tokens)


def test_parameters_are_counted_without_building_the_model(small_job: list[str]) -> None:
    for name in ("t5", "learned", "rope"):
        config = compose_job([*small_job, f"encoding={name}", "evaluation.factors=[1]"], [])
        vocab_size = build_data(config, lambda _: None).vocab_size
        expected = build_model(config, vocab_size).parameter_count()
        assert build_meta_model(config, vocab_size, validate(config)).parameter_count() == expected
