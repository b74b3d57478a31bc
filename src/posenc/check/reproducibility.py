"""Verifies that an encoding's outputs depend only on its inputs and on the state that it saves."""

import copy

import torch

from posenc.attention.reference import AttentionInputs, bias_arguments
from posenc.check.causality import (
    TOLERANCE,
    attention_hook_name,
    first_differing_hook,
    layer_outputs,
)
from posenc.check.encoding_under_test import absolute_difference, perturb_zero_parameters
from posenc.check.hook_calls import distinct_layers, float32_inputs
from posenc.check.hook_definitions import call_hook, encoding_error, hook_error
from posenc.check.hook_values import BATCH, LONGER_LENGTH, NUM_ROWS, supported_length
from posenc.config.errors import ConfigError
from posenc.encodings.base import Encoding
from posenc.model.transformer import restored_random_state, seed_cpu

PROGRESS = 0.3  # fraction of training completed
UNSAVED_STATE = (
    "depends on state that changes in training but is not saved; keep it in parameters, buffers"
    " (self.register_buffer) or get_extra_state"
)
UNSEEDED = (
    "depends, in training, on unsaved state or on random numbers that posenc does not seed, so a"
    " resumed run would differ; draw them with torch.rand or another function that uses the global"
    " generator of torch, numpy or random"
)


@torch.no_grad()
def verify_saved_state(encoding: Encoding) -> None:
    """Raise ConfigError if an encoding that loads the saved state has different outputs.

    In training mode, the global random number generators start from the same seeds.
    """
    with restored_random_state():
        trained, loaded = (copy.deepcopy(encoding).float() for _ in range(2))
        for tested in (trained, loaded):
            call_hook(tested, "set_training_progress", PROGRESS)
        perturb_zero_parameters(trained)
        inputs = float32_inputs(trained, supported_length(trained), batch=BATCH)
        for layer in distinct_layers(trained.train()):
            layer_outputs(trained, layer, inputs)
        _load_state(trained, loaded)
        for training, problem in ((False, UNSAVED_STATE), (True, UNSEEDED)):
            for layer in distinct_layers(trained.train(training)):
                outputs = layer_outputs(trained, layer, inputs)
                others = layer_outputs(loaded.train(training), layer, inputs)
                if hook := first_differing_hook(outputs, others):
                    raise _hook_error(trained, hook, problem)


def _load_state(trained: Encoding, loaded: Encoding) -> None:
    state = trained.state_dict()
    if changed := sorted(state.keys() ^ loaded.state_dict().keys()):
        raise encoding_error(
            trained,
            f"its hooks add {changed[0]} to its parameters and buffers, so saved weights could not"
            f" be loaded; create it in __init__",
        )
    loaded.load_state_dict(state, strict=True)


@torch.no_grad()
def verify_evaluation(encoding: Encoding) -> None:
    """Raise ConfigError if the same inputs can give different outputs in evaluation.

    Outputs must not depend on random numbers, on earlier inputs or on other sequences in the batch,
    and a bias must not depend on which other queries and keys it is computed with.
    """
    with restored_random_state():
        tested = copy.deepcopy(encoding).float().eval()
        perturb_zero_parameters(tested)
        call_hook(tested, "set_training_progress", 0.0)
        inputs = float32_inputs(tested, supported_length(tested), batch=BATCH)
        for layer in distinct_layers(tested):
            _verify_determinism(tested, layer, inputs)
            _verify_batch_independence(tested, layer, inputs)
            _verify_blocks(tested.at_layer(layer), inputs)


def _verify_determinism(encoding: Encoding, layer: int, inputs: AttentionInputs) -> None:
    seed_cpu(1)
    arguments = inputs.x.shape[1], inputs.x.device
    positions = [call_hook(encoding, "positions", *arguments) for _ in range(2)]
    hook = None if torch.equal(*positions) else "positions"
    (outputs, first_state), (others, second_state) = (
        (layer_outputs(encoding, layer, inputs, seed=seed), torch.get_rng_state())
        for seed in (1, 2)
    )
    if torch.equal(first_state, second_state):
        raise encoding_error(
            encoding,
            "a hook seeds torch's random number generator, so dropout would be the same in every"
            " step; use a torch.Generator that the hook creates and seeds with torch.randint",
        )
    if hook := hook or first_differing_hook(outputs, others):
        problem = "depends on random numbers in evaluation; draw them only if self.training is true"
        raise _hook_error(encoding, hook, problem)
    longer = float32_inputs(encoding, supported_length(encoding, LONGER_LENGTH))
    layer_outputs(encoding, layer, longer)
    if hook := first_differing_hook(outputs, layer_outputs(encoding, layer, inputs, seed=1)):
        problem = "depends on the lengths of earlier inputs; compute it from this input alone"
        raise _hook_error(encoding, hook, problem)


def _verify_batch_independence(encoding: Encoding, layer: int, inputs: AttentionInputs) -> None:
    together = layer_outputs(encoding, layer, inputs)
    for index in range(BATCH):
        sequence = slice(index, index + 1)
        x, q, k, v = (tensor[sequence] for tensor in inputs[:4])
        outputs = {
            hook: output if output is None else output[sequence]
            for hook, output in together.items()
        }
        alone = layer_outputs(encoding, layer, AttentionInputs(x, q, k, v, inputs.pos))
        if hook := first_differing_hook(outputs, alone):
            problem = "returns different values for a sequence if other sequences are in its batch"
            raise _hook_error(encoding, hook, problem)


def _verify_blocks(encoding: Encoding, inputs: AttentionInputs) -> None:
    length, heads = inputs.q.shape[2], encoding.geometry.heads
    blocks = [(slice(0, end), slice(0, end)) for end in (length, NUM_ROWS)]
    blocks.append((slice(max(0, length - NUM_ROWS), length), slice(0, length)))
    whole, *parts = (
        call_hook(encoding, "bias", *bias_arguments(heads, inputs.pos, *block, torch.float32))
        for block in blocks
    )
    for part, (rows, keys) in zip(parts, blocks[1:], strict=True):
        if whole is None or part is None:
            continue
        expected = whole.expand(*whole.shape[:-2], length, length)[..., rows, keys]
        expected, actual = torch.broadcast_tensors(expected, part)
        # Values that are not finite in both calls are reported by `shapes_are_correct`.
        equal = (expected == actual) | (expected.isnan() & actual.isnan())
        if absolute_difference(expected, actual).masked_fill(equal, 0).max() > TOLERANCE:
            raise hook_error(
                encoding,
                "bias",
                "returns a different value for a query and a key if other queries and keys are"
                " passed in the same call; compute it only from the head and the two positions",
            )


def _hook_error(encoding: Encoding, hook: str, problem: str) -> ConfigError:
    hook = attention_hook_name(encoding) if hook == "attention" else hook
    return hook_error(encoding, hook, problem)
