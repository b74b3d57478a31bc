"""The properties that every encoding must have, used by `posenc check` and the tests."""

import sys
import traceback
from collections.abc import Callable, Iterator

from posenc.check.definition import (
    builds,
    declares_limitations,
    has_description,
    omits_model_hyperparameters,
    shapes_are_correct,
)
from posenc.check.numerics import (
    gradients_are_correct,
    gradients_reach_parameters,
    half_precision_is_safe,
    kernels_agree,
)
from posenc.check.parameters import instances_are_independent, parameters_have_effect
from posenc.check.sequences import (
    extrapolates,
    is_causal,
    is_prefix_consistent,
    is_shift_invariant,
    loads_at_any_length,
)
from posenc.check.under_test import SMALL_MODEL, EncodingUnderTest, Result, failed
from posenc.config.errors import ConfigError, one_line

__all__ = [
    "PROPERTIES",
    "SMALL_MODEL",
    "EncodingUnderTest",
    "Property",
    "Result",
    "check",
    "check_property",
    "description",
]

Property = Callable[[EncodingUnderTest], Result]

PROPERTIES: tuple[Property, ...] = (
    builds,
    has_description,
    omits_model_hyperparameters,
    declares_limitations,
    shapes_are_correct,
    is_causal,
    is_prefix_consistent,
    is_shift_invariant,
    extrapolates,
    loads_at_any_length,
    parameters_have_effect,
    instances_are_independent,
    gradients_reach_parameters,
    gradients_are_correct,
    kernels_agree,
    half_precision_is_safe,
)


def check(under_test: EncodingUnderTest) -> Iterator[tuple[Property, Result]]:
    """Yield the result of every property; only the first if the encoding cannot be built."""
    for prop in PROPERTIES:
        result = check_property(prop, under_test)
        yield prop, result
        if prop is builds and result.status == "fail":
            return


def check_property(prop: Property, under_test: EncodingUnderTest) -> Result:
    """Return a property's result; any exception is a failure, with its message in one line."""
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
