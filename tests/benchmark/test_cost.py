"""Estimates, compared with real models and with numbers computed by hand."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from compositions import composer
from posenc.attention import factored
from posenc.benchmark import estimate as estimate_module
from posenc.benchmark import training_memory
from posenc.benchmark.estimate import Estimate, estimate, estimate_runs, expected_data, mean_length
from posenc.benchmark.estimate_tables import total_cost
from posenc.benchmark.throughput import DataSheetGpu, ThisMachine
from posenc.benchmark.training_memory import TrainingMemory, optimizer_bytes, saved_activation_bytes
from posenc.config.components import build
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.grids import expand_config
from posenc.config.steps import training_steps
from posenc.data.build_data import build_data
from posenc.data.tokenizers.word import WordTrainer
from posenc.evaluation.requests import measurement_requests, requested_row_keys, training_fraction
from posenc.jobs.job_config import compose_job
from posenc.model.build import build_meta_model, build_model
from posenc.model.flops import evaluation_flops

GPU = DataSheetGpu(float32=1e12, bf16=4e12, utilization=0.5, memory=1e9)
ADAPTIVE = ["model=wikitext103_247m", "model.cutoffs=[20,60]", "model.width=64", "model.layers=3"]


@pytest.fixture
def make_config(small_job: list[str]) -> Callable[..., DictConfig]:
    return lambda *overrides: compose_job([*small_job, *overrides], composer())


@pytest.mark.parametrize(
    "overrides",
    [
        ["encoding=rope"],
        ["encoding=t5", "model.tied=false", "model.activation=swiglu"],
        ["encoding=learned", "encoding.max_length=96", "model.bias=true", "model.norm=rms_norm"],
        ["encoding=sinusoidal", *ADAPTIVE],
    ],
)
def test_parameters_equal_those_of_the_model(
    make_config: Callable[..., DictConfig], overrides: list[str]
) -> None:
    config = make_config(*overrides)
    result, model = estimate(config, GPU), build_model(config, 257)
    assert result.parameters == model.parameter_count()
    named = dict(model.named_parameters())
    excluded = [p for name, p in named.items() if name.startswith(("embedding.", "head."))]
    assert result.non_embedding_parameters == result.parameters - sum(p.numel() for p in excluded)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("encoding", ["rope", "alibi", "t5", "fire", "fox", "sinusoidal"])
def test_activations_equal_what_autograd_saves(
    make_config: Callable[..., DictConfig], encoding: str, precision: str
) -> None:
    """The estimate is within 1% of the bytes that a real forward pass saves."""
    overrides = [f"encoding={encoding}", f"precision={precision}"]
    config = make_config(*overrides, "model.width=64", "model.layers=4")
    real = bytes_saved_by_autograd(config)
    assert saved_activation_bytes(config, 257, 8, gpu=False) == pytest.approx(real, rel=0.01)


@pytest.mark.parametrize("encoding", ["alibi", "fox"])
def test_activations_of_factored_attention_on_a_gpu_are_those_of_its_implementation_there(
    make_config: Callable[..., DictConfig], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, the factors are additional columns of queries and keys; here, a CPU does this."""
    overrides = [f"encoding={encoding}", "precision=bf16", "kernel=factored"]
    config = make_config(*overrides, "model.width=64", "model.layers=4")
    on_gpu = partial(factored.attend, device=torch.device("cuda"))
    monkeypatch.setattr(factored, "attend", on_gpu)
    real = bytes_saved_by_autograd(config)
    monkeypatch.undo()
    assert saved_activation_bytes(config, 257, 8, gpu=True) == pytest.approx(real, rel=0.01)
    assert saved_activation_bytes(config, 257, 8, gpu=False) != pytest.approx(real, rel=0.05)


def bytes_saved_by_autograd(config: DictConfig) -> int:
    model = build_model(config, 257)
    saved: dict[int, torch.UntypedStorage] = {}
    weights = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    bf16 = torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bf16")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), bf16:
        model.hidden_states(torch.zeros(8, 24, dtype=torch.long))
    return sum(storage.nbytes() for storage in saved.values())


@pytest.mark.parametrize("encoding", ["t5", "fire", "window"])
def test_the_activations_of_many_sequences_follow_from_those_of_one_and_two(
    make_config: Callable[..., DictConfig], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(f"encoding={encoding}", "kernel=blocks", "model.layers=3")
    measured: list[int] = []
    measure = training_memory._saved_bytes
    monkeypatch.setattr(
        training_memory,
        "_saved_bytes",
        lambda *arguments: (measured.append(arguments[2]), measure(*arguments))[1],
    )
    total = saved_activation_bytes(config, 257, 8, gpu=True)
    assert measured == [1, 2]
    # these encodings override such a hook, so all sequences are traced
    monkeypatch.setattr(training_memory, "SEQUENCE_HOOKS", ("bias", "window"))
    exact = saved_activation_bytes(config, 257, 8, gpu=True)
    assert measured[2:] == [8] and total == pytest.approx(exact, rel=0.005)


@pytest.mark.parametrize("encoding", ["rope", "t5", "gemma4"])  # the layers of gemma4 differ
def test_the_activations_of_many_equal_layers_follow_from_the_first_few(
    make_config: Callable[..., DictConfig], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(f"encoding={encoding}", "model.layers=12")
    total = saved_activation_bytes(config, 257, 2, gpu=False)
    monkeypatch.setattr(training_memory, "TRACED_LAYERS", 12)
    assert total == saved_activation_bytes(config, 257, 2, gpu=False)


def test_runs_that_differ_only_in_their_seed_are_estimated_once(
    make_config: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    read = estimate_module.expected_data
    monkeypatch.setattr(
        estimate_module, "expected_data", lambda c: (calls.append(c.seed), read(c))[1]
    )
    configs = [make_config(f"encoding={e}", f"seed={s}") for e in ("rope", "nope") for s in (1, 2)]
    values: list[Any] = [OmegaConf.to_container(config) for config in configs]
    estimates = estimate_runs(values, GPU)
    assert [(run.encoding, run.seed) for run in estimates] == [
        ("rope", 1),
        ("rope", 2),
        ("nope", 1),
        ("nope", 2),
    ]
    assert calls == [1]
    for config, result in zip(configs, estimates, strict=True):
        assert result == estimate(config, GPU)


def test_memory_is_a_lower_bound_if_an_encoding_branches_on_values(
    make_config: Callable[..., DictConfig],
) -> None:
    plain, other = (estimate(make_config(f"encoding={name}"), GPU) for name in ("nope", "xpos"))
    assert (plain.memory_is_lower_bound, other.memory_is_lower_bound) == (False, True)
    assert other.memory.activations == plain.memory.activations


def test_a_gpu_saves_different_activations_for_relative_biases(
    make_config: Callable[..., DictConfig],
) -> None:
    sizes = {
        name: [
            saved_activation_bytes(make_config(f"encoding={name}"), 257, 8, gpu=gpu)
            for gpu in (False, True)
        ]
        for name in ("nope", "alibi", "t5")
    }
    assert sizes["nope"][0] == sizes["nope"][1] < sizes["alibi"][1]
    assert sizes["t5"][0] != sizes["t5"][1]


def test_flex_attention_saves_the_same_activations_as_causal_attention(
    make_config: Callable[..., DictConfig],
) -> None:
    wide = ["model.width=64", "model.heads=4"]
    configs = [
        make_config("encoding=nope", "kernel=causal", *wide),
        make_config("encoding=alibi", "kernel=flex", "trainer=gpu", *wide),
    ]
    causal, flex = (saved_activation_bytes(config, 257, 8, gpu=True) for config in configs)
    assert flex == causal


def test_flex_attention_also_saves_the_factors_of_a_content_dependent_bias(
    make_config: Callable[..., DictConfig],
) -> None:
    """FoX has one factor in three float32 tensors [B, H, 128]: 24 tokens, padded to a block."""
    wide = ["model.width=64", "model.heads=4", "model.layers=4"]
    causal, flex = (
        saved_activation_bytes(make_config(*overrides, *wide), 257, 8, gpu=True)
        for overrides in (["encoding=nope", "kernel=causal"], ["encoding=fox", "kernel=flex"])
    )
    layers, tensors, batch, heads, length, float32 = 4, 3, 8, 4, 128, 4
    assert flex >= causal + layers * tensors * batch * heads * length * float32


@pytest.mark.parametrize("name", ["adamw", "muon", "nag"])
def test_the_state_of_an_optimizer_has_the_estimated_size(
    make_config: Callable[..., DictConfig], name: str
) -> None:
    config = make_config(f"optimizer={name}", "encoding=t5", "model.tied=false")
    model = build_model(config, 257)
    optimizer = build(config.optimizer, name="optimizer")(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    values = [value for state in optimizer.state.values() for value in state.values()]
    state_bytes = sum(value.nbytes for value in values if value.ndim > 0)  # no step counters
    assert optimizer_bytes(config, build_meta_model(config, 257)) == state_bytes


def test_muon_stores_one_value_per_matrix_weight_in_blocks_and_two_per_other_weight(
    make_config: Callable[..., DictConfig],
) -> None:
    """2 layers of width 32, feed-forward width 64 and two norms; 257 tokens and a final norm."""
    config = make_config("optimizer=muon")
    matrices, others = 2 * (4 * 32 * 32 + 2 * 32 * 64), 2 * 2 * 32 + 257 * 32 + 32
    assert optimizer_bytes(config, build_meta_model(config, 257)) == 4 * (matrices + 2 * others)


def test_the_peak_is_that_of_the_phase_that_needs_the_most_memory() -> None:
    sizes = {"weights": 4, "gradients": 4, "optimizer": 8, "activations": 100, "logits": 10}
    memory = TrainingMemory(
        **sizes, validation_logits=0, layers=2, accumulates=False, process_bytes=0
    )
    assert memory.peak() == 12 + max(4 + 100 + 20, 100 + 30, 100 + 50)
    fewer = dataclasses.replace(memory, layers=4, accumulates=True)
    assert fewer.peak() == 12 + 100 + 30 + 4
    validated = dataclasses.replace(memory, validation_logits=500)
    assert validated.peak() == 12 + 4 + 1000
    on_cpu = dataclasses.replace(memory, process_bytes=1000)
    assert on_cpu.peak() == 1000 + round(1.45 * 162)
    checkpointed = dataclasses.replace(on_cpu, optimizer=800)
    assert checkpointed.peak() == 1000 + 4 + 3 * 804


def test_a_step_is_divided_among_devices(make_config: Callable[..., DictConfig]) -> None:
    one, four = (estimate(make_config(f"devices={n}"), GPU) for n in (1, 4))
    assert four.memory.activations == pytest.approx(one.memory.activations / 4, rel=0.02)
    assert four.memory.gradients == 2 * one.memory.gradients
    assert four.flops == one.flops
    assert four.seconds == one.seconds / 4
    with pytest.raises(ConfigError, match=r"devices=5.*batch_tokens=192"):
        estimate(make_config("devices=5"), GPU)


def test_with_fsdp_each_device_stores_a_shard_of_the_weights(
    make_config: Callable[..., DictConfig],
) -> None:
    replicated, sharded = (
        estimate(make_config("devices=4", "model.layers=3", f"trainer.strategy={name}"), GPU).memory
        for name in ("ddp", "fsdp")
    )
    block = 4 * (4 * 32 * 32 + 2 * 32 * 64 + 2 * 32)
    # a device gathers all weights outside the blocks, and those of two blocks
    gathered = replicated.weights - 3 * block + 2 * block
    assert sharded.weights == replicated.weights // 4 + gathered
    assert sharded.gradients == sharded.weights
    assert sharded.optimizer == replicated.optimizer // 4


def test_training_flops_equal_a_hand_calculation(make_config: Callable[..., DictConfig]) -> None:
    """2 layers of width 32, feed-forward width 64, vocabulary 257, L=24, 7680 training tokens."""
    matrices = 2 * (4 * 32 * 32 + 2 * 32 * 64) + 257 * 32
    per_token = 3 * (2 * matrices + 2 * 2 * 32 * 24)
    result = estimate(make_config("precision=bf16"), GPU)
    assert result.training_flops == per_token * 7680
    assert result.training_seconds == result.training_flops / 2e12


def test_evaluation_flops_equal_a_hand_calculation(make_config: Callable[..., DictConfig]) -> None:
    """They exclude the last feed-forward layer and the logits of the 88 tokens without a score."""
    block, feed_forward, head = 4 * 32 * 32 + 2 * 32 * 64, 2 * 32 * 64, 257 * 32
    all_tokens = 96 * (2 * (2 * block + head) + 2 * 2 * 32 * 48)
    model = build_meta_model(make_config(), 257)
    assert evaluation_flops(model, 48, 96, 96) == all_tokens
    assert evaluation_flops(model, 48, 96, 8) == all_tokens - 2 * (feed_forward + head) * 88


SLIDING = ["evaluation.protocols=[nonoverlapping,sliding]", "evaluation.stride=4"]


@pytest.mark.parametrize("overrides", [[], SLIDING, [*SLIDING, "evaluation.budget_tokens=400"]])
def test_an_estimate_includes_the_same_evaluation_as_the_run(
    make_config: Callable[..., DictConfig], overrides: list[str]
) -> None:
    """Even before the data is prepared, because token counts are exact with tokenizer=byte."""
    config = make_config(*overrides)
    before = estimate(config, GPU)
    assert before.includes_evaluation and not before.data_is_prepared
    data = build_data(config, print)
    after = estimate(config, GPU)
    assert after == dataclasses.replace(before, data_is_prepared=True)
    requests = measurement_requests(config, data, requested_row_keys(config, data.fingerprint))
    model = build_meta_model(config, 257)
    fraction = training_fraction(config, model, requests)
    assert after.training_flops / after.flops == pytest.approx(fraction)
    assert after.evaluation_seconds == after.evaluation_flops / 5e11


def test_a_sliding_window_costs_more_than_nonoverlapping_windows(
    make_config: Callable[..., DictConfig],
) -> None:
    nonoverlapping, sliding = (estimate(make_config(*o), GPU) for o in ([], SLIDING))
    assert sliding.evaluation_flops > 6 * nonoverlapping.evaluation_flops
    assert sliding.training_flops == nonoverlapping.training_flops


def test_the_time_budget_limits_the_evaluation_time(make_config: Callable[..., DictConfig]) -> None:
    result = estimate(make_config("evaluation.budget_seconds=1e-6"), GPU)
    assert result.evaluation_seconds == pytest.approx(2e-6)  # lengths L and 4L


@pytest.mark.parametrize(("tokenizer", "error"), [("word", 0), ("bpe", 0.4)])
def test_the_number_of_tokens_of_unprepared_data_is_estimated(
    make_config: Callable[..., DictConfig], corpus: Path, tokenizer: str, error: float
) -> None:
    config = make_config("tokenizer=bpe", "tokenizer.vocab_size=400")
    documents = [(corpus / "validation.txt").read_text()]
    trainer = WordTrainer() if tokenizer == "word" else build(config.tokenizer, name="tokenizer")
    expected = trainer.expected_tokens(documents)
    tokens = sum(map(len, trainer.train(documents).encode_documents(documents)))
    assert expected == pytest.approx(tokens, rel=error)


def test_evaluation_is_excluded_for_data_of_unknown_size(tmp_path: Path) -> None:
    overrides = ["data=wikitext103", "tokenizer=word", f"outputs_dir={tmp_path}"]
    result = estimate(compose_job(overrides, composer()), GPU)
    assert not result.includes_evaluation
    assert result.evaluation_flops == 0 and result.seconds == result.training_seconds


def test_the_mean_length_has_the_mean_time_per_token(
    make_config: Callable[..., DictConfig],
) -> None:
    config = make_config()
    data = build_data(config, print)
    requests = measurement_requests(config, data, requested_row_keys(config, data.fingerprint))
    assert mean_length(requests) == (24 + 4 * 24) / 2  # as many tokens at L and 4L
    assert mean_length([]) is None


def test_the_vocabulary_size_is_known_without_the_data(
    make_config: Callable[..., DictConfig], small_job: list[str]
) -> None:
    word_level = compose_job([*small_job[:5], "data=wikitext103", "tokenizer=word"], composer())
    assert expected_data(word_level).vocab_size == 267735
    bpe = make_config("tokenizer=bpe", "tokenizer.vocab_size=300")
    assert expected_data(bpe).vocab_size == 300
    with pytest.raises(ConfigError, match="tokenizer=word on data=text"):
        expected_data(make_config("tokenizer=word"))
    data = build_data(make_config("tokenizer=word"), print)
    prepared = expected_data(make_config("tokenizer=word"))
    assert prepared.vocab_size == data.vocab_size and prepared.is_prepared


def test_the_throughput_of_this_machine_is_measured(make_config: Callable[..., DictConfig]) -> None:
    config, machine = make_config("model.layers=3"), ThisMachine(seconds=0.01)
    assert min(machine.throughput(config, 257, evaluation_length=96)) > 1e6
    assert config.model.layers == 3
    training, evaluation = machine.throughput(config, 257, evaluation_length=None)
    assert evaluation == training


@pytest.mark.slow
def test_runs_on_a_cpu_are_timed_on_the_cpu_of_a_machine_with_a_gpu(
    make_config: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    machine = ThisMachine(seconds=0.01)
    assert machine.has_gpu
    assert machine.throughput(make_config("trainer=cpu"), 257, evaluation_length=None).training > 0
    assert estimate(make_config("trainer=cpu"), machine).memory.process_bytes > 0


def test_concurrent_runs_divide_the_time(make_config: Callable[..., DictConfig]) -> None:
    run: Estimate = estimate(make_config(), GPU)
    machine = DataSheetGpu(float32=1e12, bf16=1e12, utilization=1.0, memory=1.0)
    machine.concurrent_runs = 2
    assert total_cost([run] * 4, machine)["seconds"] == 2 * run.seconds
    assert total_cost([run], machine)["seconds"] == run.seconds


@pytest.mark.slow
def test_the_configuration_of_the_alibi_paper_has_its_steps_and_parameters(tmp_path: Path) -> None:
    experiment = ["experiment=alibi_extrapolation", "size=paper"]
    overrides = [*experiment, "encoding=alibi", "train_length=3072"]
    (job,) = expand_config(compose("train", experiment), overrides)
    config = compose_job([*job, "devices=8", f"outputs_dir={tmp_path}"], composer())
    assert training_steps(config).total == 286000
    result = estimate(config, GPU)
    assert round(result.parameters / 1e6) == 247
    assert result.memory.optimizer == result.memory.weights
    assert config.gradient_clip == 0.1 and config.precision == "bf16"
