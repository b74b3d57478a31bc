"""Property checks for gradients, attention kernels and low precision."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from posenc.attention import UnsupportedKernelError, reference
from posenc.attention.choice import KERNELS, kernel_function, layer_choices
from posenc.attention.reference import AttentionInputs
from posenc.check.encoding_under_test import (
    SEED,
    EncodingUnderTest,
    Result,
    absolute_difference,
    compute_logits,
    failed,
    max_difference,
    passed,
    random_tokens,
)
from posenc.check.hook_calls import (
    NUM_QUERIES,
    call_layer_hooks,
    convert,
    distinct_layers,
    random_inputs,
)
from posenc.config.errors import plural
from posenc.encodings.base import Encoding
from posenc.model.block import Attention
from posenc.model.transformer import Decoder, seed_cpu

GRADCHECK_LENGTH = 5
KERNEL_TEST_LENGTH = 280  # longer than a block of query rows
KERNEL_TOLERANCE = 1e-9
KERNEL_TOLERANCE_FLOAT32 = 1e-4
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 2e-6  # for outputs in float32 or wider
BFLOAT16_TOLERANCE = 2**-6  # relative to the largest magnitude
BFLOAT16_REMEDY = (
    "compute angles and cumulative sums in float64 and without matrix products, which autocast"
    " rounds; convert parameters before computing with them, in `bias` to the dtype of `distance`;"
    " and compute constants in the hook, because .bfloat16() rounds buffers"
)


def gradients_reach_parameters(under_test: EncodingUnderTest) -> Result:
    """every parameter gets a gradient"""
    model = under_test.configured_model
    for training in (False, True):
        model.zero_grad()
        logits = compute_logits(model, random_tokens(under_test.train_length), training=training)
        targets = random_tokens(under_test.train_length, seed=1)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            grad = parameter.grad
            if grad is None or not grad.isfinite().all() or not grad.any():
                problem = "None" if grad is None else "zero" if not grad.any() else "not finite"
                mode = "training" if training else "evaluation"
                return failed(f"the gradient of {name} is {problem} in {mode}")
    in_encoding, in_model = (
        sum(parameter.requires_grad for parameter in module.parameters())
        for module in (model.encoding, model)
    )
    elsewhere = in_model - in_encoding
    return passed(f"{plural(in_encoding, 'tensor')} in the encoding, {elsewhere} elsewhere")


def gradients_are_correct(under_test: EncodingUnderTest) -> Result:
    """gradients match finite differences"""
    encoding = under_test.build_encoding({}).double()
    inputs = random_inputs(encoding, GRADCHECK_LENGTH)
    leaves = {name: getattr(inputs, name).requires_grad_() for name in ("x", "q", "k", "v")}
    leaves |= dict(encoding.named_parameters())
    for layer in distinct_layers(encoding):
        if _gradients_match(encoding, layer, inputs, leaves):
            continue
        for name, tensor in leaves.items():
            if not _gradients_match(encoding, layer, inputs, {name: tensor}):
                return failed(f"the gradient with respect to {name} is wrong in layer {layer}")
        return failed(f"the joint gradient is wrong in layer {layer}")
    return passed(f"with respect to {', '.join(leaves)}")


def _gradients_match(
    encoding: Encoding, layer: int, inputs: AttentionInputs, leaves: Mapping[str, Tensor]
) -> bool:
    """Return whether autograd and finite differences with respect to `leaves` agree in a layer."""
    x, q, k, v, pos = inputs

    def attend(*_: Tensor) -> Tensor:  # gradcheck perturbs the leaves in place
        seed_cpu(SEED)
        embedded = encoding.embed(x, pos)
        layer_encoding = encoding.at_layer(layer)
        rotated = layer_encoding.rotate(embedded, q, k, pos)
        out = reference.attend(layer_encoding, embedded, *rotated, v, pos)
        return torch.cat([out.sum(dim=(1, 2)).flatten(), embedded.sum()[None]])

    return torch.autograd.gradcheck(
        attend, tuple(leaves.values()), fast_mode=True, raise_exception=False
    )


def kernels_agree(under_test: EncodingUnderTest) -> Result:
    """every kernel matches the reference"""
    length, changes = under_test.supported_train_length(KERNEL_TEST_LENGTH)
    encoding = under_test.build_encoding(changes)
    if list(distinct_layers(encoding)) == [0]:  # all layers are alike; test two that share a bias
        changes = {**changes, "model.layers": min(2, encoding.geometry.layers)}
    model = under_test.build_model(changes)
    expected = _kernel_results(model, "reference", length)
    max_errors: dict[str, float] = {}
    for kernel in _kernels_to_compare(encoding):
        try:
            actual = _kernel_results(model, kernel, length)
        except UnsupportedKernelError:
            continue
        for name, tensor in expected.items():
            difference = max_difference(tensor, actual[name]) / max(1.0, tensor.abs().max().item())
            float32 = name == "float32 outputs"
            if difference > (KERNEL_TOLERANCE_FLOAT32 if float32 else KERNEL_TOLERANCE):
                return failed(f"{kernel}, {name}: off by {difference:.1e} at {length} tokens")
            max_errors[kernel] = max(max_errors.get(kernel, 0.0), 0.0 if float32 else difference)
    errors = ", ".join(f"{kernel} {error:.1e}" for kernel, error in max_errors.items())
    return passed(f"max error: {errors}")


def _kernels_to_compare(encoding: Encoding) -> list[str]:
    """Return auto and all kernels except the reference and, if auto always uses one, that one."""
    auto = {
        choice.name
        for dtype in (torch.float64, torch.float32)
        for choice in layer_choices("auto", encoding, torch.device("cpu"), dtype)
    }
    return ["auto", *(name for name in KERNELS if name != "reference" and {name} != auto)]


def _kernel_results(fresh_model: Decoder, kernel: str, length: int) -> dict[str, Tensor]:
    """Return float64 outputs and gradients, outputs under no_grad, and float32 outputs.

    They are computed with a copy of `fresh_model`, which has not run yet, so that no kernel sees
    what the encoding cached for another kernel.
    """
    model = copy.deepcopy(fresh_model)
    for module in model.modules():
        if isinstance(module, Attention):
            module.attend = kernel_function(kernel)
    tokens = random_tokens(length, batch=1)
    logits = compute_logits(model, tokens)
    weights = torch.linspace(-1, 1, logits.shape[-1], dtype=logits.dtype)
    (logits * weights).sum().backward()
    results = {"outputs": logits.detach()}
    for name, p in model.named_parameters():
        results[f"gradient of {name}"] = torch.zeros_like(p) if p.grad is None else p.grad
    with torch.no_grad():
        results["outputs under no_grad"] = compute_logits(model, tokens)
        results["float32 outputs"] = compute_logits(model.float(), tokens).double()
    return results


@torch.no_grad()
def bfloat16_is_safe(under_test: EncodingUnderTest) -> Result:
    """bfloat16 is safe for angles and biases"""
    length, changes = under_test.supported_length(under_test.largest_position + 1)
    encoding = under_test.build_encoding(changes)
    if encoding.positions(1, torch.device("cpu")).ndim > 1:
        length = under_test.train_length  # coordinates do not grow with the length of the sequence
    inputs = random_inputs(encoding, length)
    exact = rounded = copy.deepcopy(encoding).double()
    if list(encoding.parameters()):
        rounded = copy.deepcopy(exact)
        for parameter in rounded.parameters():
            parameter.copy_(parameter.bfloat16())
    converted = copy.deepcopy(encoding).bfloat16()
    bf16, fp32 = torch.bfloat16, torch.float32
    dtype = bf16 if list(encoding.parameters()) else fp32
    cases = (
        ("under autocast", encoding, exact, convert(inputs, fp32, fp32)),
        ("under autocast, bfloat16 inputs", encoding, exact, convert(inputs, fp32, bf16)),
        ("after .bfloat16()", converted, rounded, convert(inputs, dtype, dtype)),
    )
    worst_ratio, evidence = 0.0, ""
    for layer in distinct_layers(encoding):
        float64_outputs = cache(partial(_float64_outputs, layer=layer, inputs=inputs))
        for name, tested, counterpart, case_inputs in cases:
            with torch.autocast("cpu", dtype=bf16, enabled=tested is encoding):
                actual = _float64_outputs(tested, layer, case_inputs)
            for hook, output in actual.items():
                ratio, error = _error_over_tolerance(output, float64_outputs(counterpart)[hook])
                if ratio >= worst_ratio:
                    worst_ratio = ratio
                    evidence = f"{hook} of layer {layer} is off by {error:.1e} {name}"
    evidence = f"worst case: {evidence}, up to position {length - 1}"
    if worst_ratio <= 1:
        return passed(evidence)
    return failed(f"{evidence}; {BFLOAT16_REMEDY}")


@dataclass(frozen=True)
class HookOutput:
    """A hook's output in float64, the summed magnitude of its terms, and its original dtype."""

    value: Tensor
    magnitude: Tensor
    dtype: torch.dtype


def _float64_outputs(
    encoding: Encoding, layer: int, inputs: AttentionInputs
) -> dict[str, HookOutput]:
    """Return the hooks' outputs in float64, with scores in place of rotated queries and keys.

    Errors that affect queries and keys equally, such as a common rotation, cancel in the scores.
    """
    outputs = call_layer_hooks(encoding, layer, inputs)
    q, k = (outputs.pop(name) for name in ("rotate", "rotate (keys)"))
    dtype, scale = q.dtype, inputs.v.shape[-1] ** -0.5
    q, k = q[:, :, -NUM_QUERIES:].double() * scale, k.double()
    diagonal = k.shape[-2] - q.shape[-2]
    with torch.autocast("cpu", enabled=False):
        scores, magnitude = ((a @ b.mT).tril(diagonal) for a, b in ((q, k), (q.abs(), k.abs())))
    other_outputs = {
        hook: HookOutput(tensor.double(), tensor.double().abs(), tensor.dtype)
        for hook, tensor in outputs.items()
    }
    return {"rotate": HookOutput(scores, magnitude, dtype), **other_outputs}


def _error_over_tolerance(output: HookOutput, exact: HookOutput) -> tuple[float, float]:
    """Return the worst ratio of an element's error to its tolerance, and that element's error."""
    error = absolute_difference(output.value, exact.value)
    magnitude = exact.magnitude.clamp(min=1)
    if output.dtype == torch.bfloat16:
        tolerance = BFLOAT16_TOLERANCE * magnitude.max()
    else:
        tolerance = RELATIVE_TOLERANCE * exact.value.abs() + ABSOLUTE_TOLERANCE * magnitude
    ratio = error / tolerance
    index = int(ratio.argmax())
    return ratio.flatten()[index].item(), error.flatten()[index].item()
