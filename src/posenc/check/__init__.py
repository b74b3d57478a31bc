"""What every encoding must do, as properties of a subject, each with its verdict and evidence."""

import sys
import traceback
from collections.abc import Callable, Iterator

from posenc.check.knobs import instances_stay_apart, knobs_act
from posenc.check.numerics import half_precision_is_harmless, kernels_agree
from posenc.check.sequence import extrapolates, goes_by_differences, has_prefixes, is_causal
from posenc.check.structure import (
    builds,
    declares_with_reason,
    describes_itself,
    has_the_shapes,
    holds_no_fact_of_the_host,
)
from posenc.check.subject import SMALL, Subject
from posenc.check.verdict import Verdict, fails
from posenc.check.weights import gradients_are_right, gradients_reach, loads_at_any_length
from posenc.config.errors import ConfigError, one_line

__all__ = ["PROPERTIES", "SMALL", "Property", "Subject", "Verdict", "check", "in_words", "verdict"]

Property = Callable[[Subject], Verdict]

PROPERTIES: tuple[Property, ...] = (
    builds,
    describes_itself,
    holds_no_fact_of_the_host,
    declares_with_reason,
    has_the_shapes,
    is_causal,
    has_prefixes,
    goes_by_differences,
    extrapolates,
    loads_at_any_length,
    knobs_act,
    instances_stay_apart,
    gradients_reach,
    gradients_are_right,
    kernels_agree,
    half_precision_is_harmless,
)


def check(subject: Subject) -> Iterator[tuple[Property, Verdict]]:
    """The verdict on every property; on the first alone where the encoding cannot be built."""
    for property in PROPERTIES:
        found = verdict(property, subject)
        yield property, found
        if property is builds and found.kind == "fails":
            return


def verdict(property: Property, subject: Subject) -> Verdict:
    """A property's verdict; whatever the encoding raises is a failure, told in one line."""
    try:
        return property(subject)
    except Exception as error:  # an encoding of the user's own may raise anything
        kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
        return fails(f"{kind}{one_line(error)}{_place(error, subject)}")


def in_words(property: Property) -> str:
    """What a property says, for people."""
    return str(property.__doc__)


def _place(error: Exception, subject: Subject) -> str:
    """Where in the encoding's own module an error arose."""
    module = sys.modules.get(str(subject.config.encoding._target_).rpartition(".")[0])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if module is not None and frame.filename == module.__file__:
            return f" (line {frame.lineno} of {module.__name__})"
    return ""
