"""The properties that every encoding must have, used by `posenc check` and the tests."""

import sys
import traceback
from collections.abc import Callable, Iterator

from posenc.check import definition, numerics, parameters, sequences
from posenc.check.under_test import EncodingUnderTest, Result, failed
from posenc.config.errors import ConfigError, one_line

Property = Callable[[EncodingUnderTest], Result]

PROPERTIES: tuple[Property, ...] = (
    definition.builds,
    definition.has_description,
    definition.omits_model_hyperparameters,
    definition.declares_limitations,
    definition.shapes_are_correct,
    sequences.is_causal,
    sequences.is_prefix_consistent,
    sequences.is_shift_invariant,
    sequences.extrapolates,
    sequences.loads_at_any_length,
    parameters.parameters_have_effect,
    parameters.instances_are_independent,
    numerics.gradients_reach_parameters,
    numerics.gradients_are_correct,
    numerics.kernels_agree,
    numerics.half_precision_is_safe,
)


def check(under_test: EncodingUnderTest) -> Iterator[tuple[Property, Result]]:
    """Yield the result of every property; only the first if the encoding cannot be built."""
    for prop in PROPERTIES:
        result = check_property(prop, under_test)
        yield prop, result
        if prop is definition.builds and result.status == "fail":
            return


def check_property(prop: Property, under_test: EncodingUnderTest) -> Result:
    """Return a property's result; any exception is a failure, with its message on one line."""
    try:
        return prop(under_test)
    except Exception as error:  # a user's encoding may raise anything
        kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
        return failed(f"{kind}{one_line(error)}{_location(error, under_test)}")


def description(prop: Property) -> str:
    """Return the description of a property that `posenc check` prints."""
    return str(prop.__doc__)


def _location(error: Exception, under_test: EncodingUnderTest) -> str:
    """Return the line of the encoding's module in which an error was raised, or an empty string."""
    module = sys.modules.get(str(under_test.config.encoding._target_).rpartition(".")[0])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if module is not None and frame.filename == module.__file__:
            return f" (line {frame.lineno} of {module.__name__})"
    return ""
