"""Finds mistakes in an encoding's class before any hook is called: names and signatures."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from posenc.config.errors import ConfigError, describe_error
from posenc.config.user_code import definition_location, error_location
from posenc.encodings.base import Encoding
from posenc.encodings.nope import NoPE
from posenc.encodings.wrapper import equals_nope

HOOKS = tuple(
    name
    for name, value in vars(Encoding).items()
    if inspect.isfunction(value) and not name.startswith("_") and name != "overrides"
)
MIN_SIMILARITY = 0.75
"""The lowest `difflib` ratio at which a method's name is taken for a misspelled hook."""


def verify_definitions(encoding: Encoding) -> None:
    """Raise ConfigError for a misspelled or shadowed hook, a wrong signature or no hook at all.

    Also raises ConfigError for invalid `limitations` and for learnable tensors that are not
    registered.
    """
    registered = {id(parameter) for parameter in encoding.parameters()}
    for part in nested_encodings(encoding):
        encoding_class = type(part)
        _verify_names(encoding_class)
        _verify_limitations(part)
        _verify_registration(part, registered)
        for hook in HOOKS:
            _verify_signature(part, hook)
            if hook in vars(part):
                raise ConfigError(
                    f"{definition_location(encoding_class)}: {encoding_class.__name__} sets"
                    f" self.{hook}, which shadows the hook of that name; rename the attribute"
                )
    if equals_nope(encoding) and type(encoding) not in (Encoding, NoPE):
        raise ConfigError(
            f"{definition_location(type(encoding))}: {type(encoding).__name__} overrides no hook"
            f" that encodes positions, so it is equivalent to encoding=nope; override embed,"
            f" rotate, bias, content_bias, value_bias or window"
        )


def _verify_limitations(encoding: Encoding) -> None:
    declared: Any = encoding.limitations
    if not isinstance(declared, Mapping) or not all(isinstance(key, str) for key in declared):
        raise ConfigError(
            f"{definition_location(type(encoding))}: {type(encoding).__name__}.limitations ="
            f" {declared!r} must map limitations, such as any_length, to reasons"
        )


def _verify_registration(encoding: Encoding, registered: set[int]) -> None:
    module_attributes = vars(nn.Module())
    for name, value in vars(encoding).items():
        tensors = () if name in module_attributes else _tensors(value)
        if any(tensor.requires_grad and id(tensor) not in registered for tensor in tensors):
            raise encoding_error(
                encoding,
                f"self.{name} has learnable tensors that are not registered, so they would be"
                f" neither trained nor saved; use nn.Parameter, nn.ParameterList or"
                f" nn.ParameterDict, and compute other tensors in the hooks",
            )


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value, at any depth of lists, tuples and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def nested_encodings(encoding: Encoding) -> list[Encoding]:
    """Return the encoding and those that it contains, from the inside out."""
    return [part for part in encoding.modules() if isinstance(part, Encoding)][::-1]


def raising_line(error: BaseException, encoding: Encoding) -> str | None:
    """Return the innermost line of an encoding, or of one inside it, that `error` passed through.

    Returns None if there is no such line.
    """
    return error_location(error, [type(part) for part in nested_encodings(encoding)])


def user_encodings_and_self(encoding: Encoding) -> list[Encoding]:
    """Return the user's encodings inside an encoding, from the inside out, then this encoding.

    The encoding itself may be posenc's own.
    """
    return [*(part for part in user_encodings(encoding) if part is not encoding), encoding]


def user_encodings(encoding: Encoding) -> list[Encoding]:
    """Return the user's encodings inside an encoding, from the inside out, itself included."""
    return [part for part in nested_encodings(encoding) if not is_builtin(type(part))]


def is_builtin(encoding_class: type) -> bool:
    """Return whether a class is posenc's own, not a user's."""
    return encoding_class.__module__.startswith("posenc.")


def encoding_error(encoding: Encoding, problem: str) -> ConfigError:
    """Return an error that names the file, the line and the class of an encoding."""
    encoding_class = type(encoding)
    return ConfigError(
        f"{definition_location(encoding_class)}: {encoding_class.__name__}: {problem}"
    )


def hook_error(encoding: Encoding, hook: str, problem: str) -> ConfigError:
    """Return an error that names the file, the line and the signature of a hook."""
    location = definition_location(getattr(type(encoding), hook))
    return ConfigError(
        f"{location}: {type(encoding).__name__}.{hook} {problem}. Signature: {_signature(hook)}"
    )


def call_hook(encoding: Encoding, hook: str, *arguments: Any) -> Any:
    """Call a hook; an exception becomes a ConfigError that names the line that raised it.

    Also raises ConfigError if the hook changes an argument in place or torch's default dtype.
    """
    versions = [argument._version for argument in arguments if isinstance(argument, Tensor)]
    default_dtype = torch.get_default_dtype()
    try:
        result = getattr(encoding, hook)(*arguments)
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        location = raising_line(error, encoding)
        raised = f"raised {describe_error(error)}" + (f" ({location})" if location else "")
        raised += _shapes(hook, arguments)
        raise hook_error(encoding, hook, raised) from error
    if versions != [argument._version for argument in arguments if isinstance(argument, Tensor)]:
        raise hook_error(encoding, hook, "changes one of its arguments in place; change a copy")
    if torch.get_default_dtype() != default_dtype:
        torch.set_default_dtype(default_dtype)
        raise hook_error(encoding, hook, "changes torch's default dtype; leave it unchanged")
    return result


def _shapes(hook: str, arguments: Sequence[Any]) -> str:
    """Return the shapes of a hook's arguments, as ` with head [4, 1, 1], distance [3, 7]`."""
    names = list(inspect.signature(getattr(Encoding, hook)).parameters)[1:]  # without self
    tensors = {n: a for n, a in zip(names, arguments, strict=True) if isinstance(a, Tensor)}
    shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
    return f" with {shapes}" if shapes else ""


def _verify_names(encoding_class: type[Encoding]) -> None:
    """Raise ConfigError if a public method's name resembles a hook that is not overridden."""
    not_overridden = [
        hook for hook in HOOKS if getattr(encoding_class, hook) is getattr(Encoding, hook)
    ]
    for owner in encoding_class.__mro__:
        if is_builtin(owner) or not issubclass(owner, Encoding):
            continue
        for name, method in vars(owner).items():
            if not inspect.isfunction(method) or name.startswith("_") or hasattr(Encoding, name):
                continue
            nearest = _nearest_hook(name, method)
            if nearest in not_overridden:
                raise ConfigError(
                    f"{definition_location(method)}: {owner.__name__}.{name} is not a hook, so"
                    f" posenc never calls it; rename it to {nearest}, or to _{name} if it is a"
                    f" helper. Signature: {_signature(nearest)}"
                )


def _nearest_hook(name: str, method: Callable[..., Any]) -> str | None:
    """Return the hook that a method's name resembles, or None.

    `get_bias`, `compute_bias` and `bias_of_distance` contain the name of the hook `bias`, and
    resemble it if they accept its arguments. Other names have to be spelled similarly.
    """
    name = name.lower()
    contained = [hook for hook in HOOKS if hook in name and _accepts(method, hook)]
    close = get_close_matches(name, HOOKS, n=3, cutoff=MIN_SIMILARITY)
    same_arguments = [hook for hook in close if _accepts(method, hook)]
    return next(iter([*sorted(contained, key=len)[::-1], *same_arguments, *close]), None)


def _accepts(method: Callable[..., Any], hook: str) -> bool:
    """Return whether a method can be called with the arguments that posenc passes to a hook."""
    try:
        inspect.signature(method).bind(*inspect.signature(getattr(Encoding, hook)).parameters)
    except TypeError:
        return False
    return True


def _verify_signature(encoding: Encoding, hook: str) -> None:
    """Raise ConfigError if a hook cannot be called with the arguments that posenc passes."""
    encoding_class, method = type(encoding), getattr(type(encoding), hook)
    if not callable(method):
        raise ConfigError(
            f"{definition_location(encoding_class)}: {encoding_class.__name__}.{hook} is a"
            f" {type(method).__name__}, but must be a method. Signature: {_signature(hook)}"
        )
    if not _accepts(method, hook):
        arguments = ", ".join(inspect.signature(getattr(Encoding, hook)).parameters)
        problem = f"takes {inspect.signature(method)}, but must take ({arguments})"
        raise hook_error(encoding, hook, problem)


def _signature(hook: str) -> str:
    """Return the signature of a hook as `Encoding` declares it."""
    text = str(inspect.signature(getattr(Encoding, hook)))
    return f"{hook}{text}".replace("torch.Tensor", "Tensor")
