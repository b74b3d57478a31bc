"""The variants of a command line, their labels, and errors in the command line."""

from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from posenc.benchmark.variants import Variant, variant_labels
from posenc.cli import main
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.model import linear
from posenc.model.build import build_model

Variants = Callable[..., list[Variant]]


def test_variants_are_a_product_of_options_ordered_by_length_and_pass(variants: Variants) -> None:
    selected = variants("encoding=nope,alibi", "kernel=auto,reference", "train_length=16,32")
    assert [(v.length, v.pass_, v.label, v.config.kernel) for v in selected] == [
        (length, pass_, encoding, kernel)
        for length in (16, 32)
        for pass_ in ("forward", "step")
        for encoding in ("nope", "alibi")
        for kernel in ("auto", "reference")
    ]


def test_a_variant_has_the_kernel_that_auto_chooses(variants: Variants) -> None:
    selected = variants("encoding=nope,alibi,cope", "passes=[step]", "train_length=16")
    assert [v.kernels for v in selected] == ["causal", "toeplitz", "blocks"]
    assert "content_bias" in selected[2].kernel_reason
    (explicit,) = variants("encoding=alibi", "kernel=factored", "passes=[step]", "train_length=16")
    assert (explicit.kernels, explicit.kernel_reason) == ("factored", "factored (requested)")


def test_keys_of_an_experiment_that_only_training_reads_are_ignored(variants: Variants) -> None:
    selected = variants(
        "experiment=rope_base", "train_length=512", "batch_tokens=512", "passes=[forward]"
    )
    bases = ("100", "1000", "10000", "500000")
    assert [v.label for v in selected] == [
        *(f"rope spectrum.base={b}" for b in bases),
        "nope",
        "alibi",
    ]
    assert {v.length for v in selected} == {512}


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment", ["alibi_cost", "alibi_extrapolation", "hybrids", "rope_base"]
)
def test_an_experiment_on_text_can_be_benchmarked(variants: Variants, experiment: str) -> None:
    overrides = ["batch_tokens=3072", "train_length=512", "model.layers=4"]
    selected = variants(f"experiment={experiment}", *overrides)
    assert {v.pass_ for v in selected} == {"forward", "step"}


def test_a_kernel_that_does_not_support_the_encoding_is_left_out_on_request(
    variants: Variants,
) -> None:
    overrides = ["encoding=nope,t5", "kernel=causal,toeplitz", "train_length=16"]
    with pytest.raises(ConfigError, match="t5: kernel=causal does not support T5"):
        variants(*overrides)
    selected = variants(*overrides, "skip_unsupported=true", "passes=[attention_step]")
    assert [(v.label, v.kernels, v.auto_kernels) for v in selected] == [
        ("nope", "causal", "causal"),
        ("nope", "toeplitz", "causal"),
        ("t5", "toeplitz", "toeplitz"),
    ]
    with pytest.raises(ConfigError, match="none of the requested kernels"):
        variants("encoding=t5", "kernel=causal", "train_length=16", "skip_unsupported=true")


def test_the_flops_of_attention_alone_exclude_linear_layers(variants: Variants) -> None:
    attention, forward = variants(
        "encoding=nope", "passes=[forward,attention_forward]", "train_length=16", "model.layers=1"
    )[::-1]
    weights = 4 * 32 * 32 + 2 * 32 * 64 + 50 * 32
    assert forward.flops - attention.flops == 2 * weights * 64


def test_attention_alone_has_the_kernel_of_the_layer_that_is_timed(variants: Variants) -> None:
    passes = "passes=[forward,attention_forward]"
    attention, forward = variants("encoding=llama4", passes, "train_length=16", "model.layers=4")[
        ::-1
    ]
    assert forward.kernels.split(", ")[0] == attention.kernels and "," not in attention.kernels
    assert "," in forward.kernels


def test_a_label_has_the_overrides_that_differ_within_an_encoding() -> None:
    jobs = [
        ["encoding=rope", "encoding.spectrum.base=10000.0", "model=tiny", "kernel=blocks"],
        ["encoding=rope", "encoding.spectrum.base=500000.0", "model=tiny", "kernel=auto"],
        ["encoding=rope", "encoding/spectrum=yarn", "model=tiny"],
        ["encoding=alibi", "encoding.slope=2", "model=tiny"],
    ]
    assert variant_labels(["rope", "rope", "rope", "alibi"], jobs) == [
        "rope spectrum.base=10000",
        "rope spectrum.base=500000",
        "rope spectrum=yarn",
        "alibi",
    ]


def test_flops_equal_those_counted_by_torch_with_causal_attention_halved(
    variants: Variants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch counts attention over all keys, twice as many as a causal mask leaves."""
    forward, step = variants("encoding=nope", "kernel=reference", "train_length=16")
    model = build_model(forward.config, 50)
    tokens = torch.zeros(4, 16, dtype=torch.long)
    masked = 2 * 2 * 32 * 16 * tokens.numel()  # 2 FLOPs x layers x width x length per token
    monkeypatch.setattr(linear, "ONEDNN_AVAILABLE", False)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.losses(tokens, tokens)
    assert forward.flops == counter.get_total_flops() - masked
    with FlopCounterMode(display=False) as counter:
        model.losses(tokens, tokens).mean().backward()
    assert step.flops == counter.get_total_flops() - 3 * masked


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            ["encoding=nope,alibi", "kernel=factored"],
            ["nope: kernel=factored", "NoPE"],
        ),
        (["encoding=nope", "train_length=3000"], ["batch_tokens=4096", "the nearest is 3000"]),
        (["encoding=learned", "encoding.max_length=8"], ["max_length=8", "at least 1024"]),
        (["tokens=3"], ["tokens=3", "unknown key", "batch_tokens"]),
        (["data=text"], ["data=text", "unknown key"]),
        (["encoding=nope", "+trainer.speed=1"], ["unknown key trainer.speed"]),
        (["encoding=nope", "passes=forward"], ["passes='forward'", "a list of strings"]),
        (["encoding=nope", "passes=[backward]"], ["passes=['backward']", "[forward,step,"]),
        (["encoding=nope", "rounds=0"], ["rounds=0", "positive"]),
        (["encoding=nope", "threads=1,2"], ["threads", "a single value"]),
        (["encoding=nope", "optimizer.betas=[1]"], ["betas=[1.0] must be two numbers"]),
    ],
)
def test_an_invalid_command_gives_one_message(
    overrides: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *overrides]) == 2
    message = capsys.readouterr().err
    assert message.startswith("posenc bench: ") and "Traceback" not in message
    for part in parts:
        assert part in message


def test_an_experiment_that_is_a_benchmark_cannot_be_trained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "experiment=alibi_cost", "seed=1,2"]) == 2
    assert "posenc bench experiment=alibi_cost" in capsys.readouterr().err


def test_a_variant_has_every_key_of_the_benchmark_config(variants: Variants) -> None:
    (variant, _) = variants("encoding=nope", "train_length=16")
    known = {str(key) for key in compose("bench", [])}
    assert known | {"choices", "seed"} == {str(key) for key in variant.config}
