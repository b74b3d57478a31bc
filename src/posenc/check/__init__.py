"""The properties that every encoding must have, and a quicker verification for planning."""

from collections.abc import Callable, Iterator

import torch

from posenc.check import definition, numerics, parameters, sequences
from posenc.check.causality import verify_causality
from posenc.check.encoding_under_test import EncodingUnderTest, Result, failed
from posenc.check.hook_definitions import (
    nested_encodings,
    raising_line,
    user_encodings,
    verify_definitions,
)
from posenc.check.hook_values import verify_values, verify_values_on_longer_input
from posenc.check.reproducibility import verify_evaluation, verify_saved_state
from posenc.config.errors import ConfigError, describe_error, one_line
from posenc.config.user_code import user_code_error
from posenc.encodings.base import Encoding

Property = Callable[[EncodingUnderTest], Result]

PROPERTIES: tuple[Property, ...] = (
    definition.builds,
    definition.has_description,
    definition.omits_model_hyperparameters,
    definition.declares_limitations,
    definition.hooks_are_valid,
    definition.shapes_are_correct,
    definition.is_reproducible,
    sequences.is_causal,
    sequences.is_prefix_consistent,
    sequences.is_shift_invariant,
    sequences.any_length,
    sequences.loads_at_any_length,
    parameters.parameters_have_effect,
    parameters.instances_are_independent,
    numerics.gradients_reach_parameters,
    numerics.gradients_are_correct,
    numerics.kernels_agree,
    numerics.bfloat16_is_safe,
)


def verify_encoding(encoding: Encoding, dtype: torch.dtype, *, for_training: bool = True) -> None:
    """Call the hooks on tiny inputs; raise ConfigError for the first mistake found.

    `dtype` is that of queries, keys and values. If `for_training` is false, checks that apply only
    to training are skipped, and the encoding need not have an effect on short inputs. Planning
    calls this for every distinct encoding before training; the properties in PROPERTIES cover more,
    but take seconds to test.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more threads would take five times as long on tiny inputs
    try:
        verify_definitions(encoding)
        if for_training:
            verify_values(encoding, [(torch.float32, dtype)])
        verify_values_on_longer_input(encoding, (torch.float32, dtype))
        verify_causality(encoding)
        for part in user_encodings(encoding):
            if for_training:
                verify_saved_state(part)
            verify_evaluation(part)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # a user's encoding may raise anything
        raise user_code_error(
            error, type(encoding), map(type, nested_encodings(encoding))
        ) from error
    finally:
        torch.set_num_threads(threads)


def check(under_test: EncodingUnderTest) -> Iterator[tuple[Property, Result]]:
    """Yield the result of every property; only the first if the encoding cannot be built.

    If several properties raise the same exception, or exceptions of the same type on the same line
    of the encoding, only the first result has the message.
    """
    reported: set[str] = set()
    for prop in PROPERTIES:
        result = check_property(prop, under_test, reported)
        yield prop, result
        if prop is definition.builds and result.status == "fail":
            return


def check_property(
    prop: Property, under_test: EncodingUnderTest, reported: set[str] | None = None
) -> Result:
    """Return a property's result; any exception is a failure, with its message on one line.

    `reported` holds the messages and the locations of exceptions that earlier properties raised;
    new ones are added.
    """
    reported = set() if reported is None else reported
    try:
        return prop(under_test)
    except (Exception, SystemExit) as error:  # a user's encoding may raise anything
        original = error.__cause__ or error
        cause = describe_error(original)
        location = _location(original, under_test)
        origin = f"{type(original).__name__} in {location}" if location else cause
        if cause in reported:
            return failed("the same error as above")
        if origin in reported:
            return failed(f"{type(original).__name__} on the same line as above")
        reported.update((cause, origin))
        if isinstance(error, ConfigError):
            return failed(one_line(error))
        return failed(f"{cause}{f' ({location})' if location else ''}")


def _location(error: BaseException, under_test: EncodingUnderTest) -> str | None:
    """Return the line of user code that raised the error; None if the encoding cannot be built."""
    try:
        return raising_line(error, under_test.configured_model.encoding)
    except ConfigError:
        return None


def description(prop: Property) -> str:
    """Return the description of a property that `posenc check` prints."""
    return str(prop.__doc__)
