"""What every encoding of `conf/encoding/` must do, found by discovery: no list to edit."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from posenc.config.errors import ConfigError
from posenc.config.paths import options
from posenc.encodings.base import Encoding, Geometry
from posenc.model.build import build_encoding, build_model
from posenc.model.kernels import reference
from posenc.model.transformer import Transformer

NAMES = sorted(options("encoding"))
VOCABULARY = 50
LENGTH = 24
Configured = Callable[..., DictConfig]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def tokens(length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (2, length), generator=generator)


def model_of(config: DictConfig) -> Transformer:
    return build_model(config, VOCABULARY).double()


def numeric_knobs(node: Any, path: str) -> Iterator[tuple[str, float]]:
    for key, value in node.items():
        if isinstance(value, DictConfig):
            yield from numeric_knobs(value, f"{path}.{key}")
        elif type(value) in (int, float):
            yield f"{path}.{key}", value


def changed(configured: Configured, overrides: list[str], key: str, value: float) -> Transformer:
    """The model with a knob doubled, or halved where twice its value is refused."""
    try:
        return model_of(configured(*overrides, f"{key}={value * 2}"))
    except ConfigError:
        return model_of(configured(*overrides, f"{key}={value / 2}"))


def test_the_yaml_describes_itself(name: str) -> None:
    assert len(options("encoding")[name]) > 20


def test_shapes_and_precision(name: str, configured: Configured) -> None:
    model = model_of(configured(f"encoding={name}"))
    logits = model(tokens(LENGTH))
    assert logits.shape == (2, LENGTH, VOCABULARY)
    assert logits.dtype == torch.float64
    assert logits.isfinite().all()


@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
def test_no_token_sees_a_later_one(name: str, kernel: str, configured: Configured) -> None:
    model = model_of(configured(f"encoding={name}", f"kernel={kernel}"))
    before, after = tokens(LENGTH), tokens(LENGTH)
    after[:, 15:] = tokens(LENGTH, seed=1)[:, 15:]
    holds = torch.allclose(model(before)[:, :15], model(after)[:, :15], rtol=0, atol=1e-12)
    assert holds == ("causal" not in model.encoding.exceptions)


def test_a_prefix_does_not_know_how_long_the_sequence_is(name: str, configured: Configured) -> None:
    model = model_of(configured(f"encoding={name}"))
    whole, part = model(tokens(LENGTH)), model(tokens(LENGTH)[:, :11])
    holds = torch.allclose(whole[:, :11], part, rtol=0, atol=1e-12)
    assert holds == ("prefix" not in model.encoding.exceptions)


def test_eight_times_the_length_is_finite_or_refused_by_name(
    name: str, configured: Configured
) -> None:
    model = model_of(configured(f"encoding={name}"))
    limit = model.encoding.max_length()
    assert (limit is not None) == ("extrapolates" in model.encoding.exceptions)
    if limit is None:
        assert model(tokens(8 * LENGTH)).isfinite().all()
    else:
        with pytest.raises(ValueError, match=str(limit)):
            model(tokens(8 * LENGTH))


def test_the_gradient_reaches_every_parameter(name: str, configured: Configured) -> None:
    model = model_of(configured(f"encoding={name}"))
    model.losses(tokens(LENGTH), tokens(LENGTH, seed=1)).mean().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key


def test_weights_load_strictly_whatever_the_length(name: str, configured: Configured) -> None:
    short = model_of(configured(f"encoding={name}"))
    long = model_of(configured(f"encoding={name}", "train_length=96"))
    if "extrapolates" in short.encoding.exceptions:
        with pytest.raises(RuntimeError, match="size mismatch"):
            long.load_state_dict(short.state_dict(), strict=True)
    else:
        long.load_state_dict(short.state_dict(), strict=True)


def test_every_numeric_knob_changes_the_output(name: str, configured: Configured) -> None:
    overrides = [f"encoding={name}", "train_length=200"]
    plain = configured(*overrides)
    out = model_of(plain)(tokens(200))
    for key, value in numeric_knobs(plain.encoding, "encoding"):
        other = changed(configured, overrides, key, value)
        assert not torch.equal(out, other(tokens(200))), key


def test_two_instances_do_not_touch_each_other(name: str, configured: Configured) -> None:
    config = configured(f"encoding={name}")
    first = model_of(config)
    before = first(tokens(LENGTH))
    for key, value in numeric_knobs(config.encoding, "encoding"):
        changed(configured, [f"encoding={name}"], key, value)(tokens(LENGTH))
    assert torch.equal(before, first(tokens(LENGTH)))


def test_positions_count_by_their_differences_unless_added_to_the_stream(
    name: str, configured: Configured
) -> None:
    model = model_of(configured(f"encoding={name}", "train_length=96"))
    offset = 1000 if model.encoding.max_length() is None else 50
    here, moved = torch.arange(LENGTH), torch.arange(LENGTH) + offset
    holds = torch.allclose(
        model(tokens(LENGTH), here), model(tokens(LENGTH), moved), rtol=0, atol=1e-9
    )
    claims = type(model.encoding).embed is Encoding.embed
    assert holds == (claims and "shift" not in model.encoding.exceptions)


def outputs(encoding: Encoding, dtype: torch.dtype, pos: Tensor) -> list[Tensor]:
    """What the hooks give for fixed inputs in `dtype`, positions `pos`, as float64."""
    generator = torch.Generator().manual_seed(3)
    geometry, length = encoding.geometry, len(pos)
    drawn = torch.randn(3, 1, geometry.heads, length, geometry.head_width, generator=generator)
    x = torch.zeros(1, length, geometry.width, dtype=dtype)
    head = torch.arange(geometry.heads)[:, None, None]
    distance = (pos[:, None] - pos[None, :]).abs().to(dtype)
    found = [
        encoding.embed(x, pos),
        *encoding.rotate(x, drawn[0].to(dtype), drawn[1].to(dtype), pos),
    ]
    with torch.autocast("cpu", enabled=False):  # as the host calls it
        bias = encoding.bias(head, distance, pos[:, None])
    return [part.double() for part in [*found, bias] if part is not None]


def test_half_precision_around_it_does_not_degrade_it(name: str, configured: Configured) -> None:
    """At position 16,000, under autocast and after .bfloat16(), against float64."""
    config = (
        configured(f"encoding={name}", "train_length=16004")
        if name == "learned"
        else configured(f"encoding={name}")
    )
    encoding = build_encoding(config, [])
    pos = torch.tensor([0, 1, 15, 15_990, 15_999, 16_000])
    exact = outputs(encoding, torch.float64, pos)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = outputs(encoding, torch.float32, pos)
    for wanted, got in zip(exact, near, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=2e-6)
    if not list(encoding.parameters()):
        for wanted, got in zip(
            exact, outputs(encoding.bfloat16(), torch.float32, pos), strict=True
        ):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=2e-6)


def test_gradients_are_those_of_the_function(name: str, configured: Configured) -> None:
    encoding = build_encoding(configured(f"encoding={name}"), []).double()
    generator = torch.Generator().manual_seed(5)
    q, k, v = torch.randn(3, 1, 4, 5, 8, generator=generator, dtype=torch.float64).unbind(0)
    x = torch.randn(1, 5, 32, generator=generator, dtype=torch.float64)
    pos = torch.arange(5)

    def attended(x: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Tensor) -> Tensor:
        embedded = encoding.embed(x, pos)
        return (
            reference.attend(encoding, embedded, *encoding.rotate(embedded, q, k, pos), v, pos).sum(
                dim=(1, 2)
            )
            + embedded.sum()
        )

    inputs = [t.requires_grad_() for t in (x, q, k, v)]
    assert torch.autograd.gradcheck(attended, (*inputs, *encoding.parameters()))


def test_an_odd_head_count_and_width_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"heads=3 do not divide width=32"):
        Geometry(width=32, heads=3, layers=1, train_length=8)


def test_the_configuration_holds_no_fact_of_the_host(name: str, configured: Configured) -> None:
    knobs = OmegaConf.to_container(configured(f"encoding={name}").encoding)
    assert isinstance(knobs, dict)
    assert not {"width", "heads", "layers", "head_width", "train_length"} & set(knobs)
