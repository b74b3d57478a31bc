"""The classes and functions that the `_target_` of each config group may name.

A saved configuration is untrusted input. A target in posenc must therefore be a class or function
from the group's package whose result has the type that the group needs; any other callable could
have side effects, such as running a job. Some groups also accept certain classes of a library, such
as torch's optimizers. Other modules must be listed explicitly as trusted (`modules`).
"""

import importlib
import inspect
import os
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.config.user_code import import_location
from posenc.config.values import walk

GROUP_TYPES = {
    "data": "posenc.data.build_data.DataSource",
    "tokenizer": "posenc.data.build_data.TokenizerSource",
    "model": "posenc.model.transformer.DecoderFactory",
    "encoding": "posenc.encodings.wrapper.EncodingFactory",
    "encoding.spectrum": "posenc.encodings.spectra.Spectrum",
    "optimizer": "posenc.training.optimizer.OptimizerFactory",
    "schedule": "posenc.training.schedule.Schedule",
    "callbacks": "posenc.training.callbacks.Callback",
    "logger": "posenc.tracking.tracker.Tracker",
    "profiler": "posenc.training.trainer.Profiler",
    "machine": "posenc.benchmark.throughput.Machine",
    "hydra.launcher": "posenc.sweeps.launcher.Launcher",
}
"""Config group -> the type of its components.

The types are given by name because this package imports no other package of posenc. The type of a
component that takes positional arguments is a Callable.
"""

LIBRARY_TYPES = {
    "optimizer": "torch.optim.Optimizer",
    "schedule": "torch.optim.lr_scheduler.LRScheduler",
    "callbacks": "pytorch_lightning.callbacks.Callback",
    "profiler": "pytorch_lightning.profilers.Profiler",
}
"""Config group -> the base class of the library components that it accepts.

The components must be defined in the package of the base class. If the group's own type is a
Callable, they are factories that are called with one positional argument.
"""

UNCONSTRAINED_TYPES = (Any, Callable, typing.Callable)


def group_type(group: str) -> Any:
    """Return the type of a config group's components: a class, a Callable or a union of these."""
    return _import(GROUP_TYPES[group])


def in_library(path: str, group: str) -> bool:
    """Whether a target is in the library package that a config group accepts (`LIBRARY_TYPES`)."""
    package = LIBRARY_TYPES.get(group, "").rpartition(".")[0]
    return bool(package) and path.startswith(f"{package}.")


def is_user_code(path: str, group: str) -> bool:
    """Whether a target is neither in posenc nor in the library that a config group accepts."""
    return not (f"{path}.".startswith("posenc.") or in_library(path, group))


def is_allowed(target: Any, annotation: Any, group: str, *, is_factory: bool) -> bool:
    """Whether `target`, a callable in posenc or a library, may be used for type `annotation`.

    A library class must be one that the group accepts (`LIBRARY_TYPES`). A target in posenc must be
    defined in the group's package. For a factory, `annotation` must be a Callable whose argument
    types match the target's first parameters and whose return type matches the target's. For any
    other target, the result must be of type `annotation`. If the annotation is too general to be
    checked, as it may be in an encoding outside posenc, the target must be a valid component of
    `group` or of a group whose components are in the same package.
    """
    if get_origin(annotation) in (Union, UnionType):
        members = get_args(annotation)
        return any(is_allowed(target, member, group, is_factory=is_factory) for member in members)
    if group in LIBRARY_TYPES and annotation == group_type(group):
        needs_factory = get_origin(annotation) is Callable
        if is_factory == needs_factory and _is_library_component(target, group):
            return True
    package = _package(group)
    if annotation in UNCONSTRAINED_TYPES or get_args(annotation)[:1] == (...,):
        return any(
            is_allowed(target, group_type(other), group, is_factory=is_factory)
            for other in GROUP_TYPES
            if _package(other) == package
        )
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        return False
    if not f"{target.__module__}.".startswith(f"{package}."):
        return False
    if get_origin(annotation) is not Callable:
        return not is_factory and _is_subtype(_return_type(target), annotation)
    argument_types, return_type = get_args(annotation)
    return (
        is_factory
        and _is_subtype(_return_type(target), return_type)
        and _accepts(target, argument_types)
    )


def is_alias(path: str, target: Any) -> bool:
    """Return whether a path in posenc names a target through a module that only imports it.

    Code that compares targets by their paths would not recognize such a path. A package may export
    what its modules define.
    """
    module, _, name = path.rpartition(".")
    is_exported = f"{target.__module__}.".startswith(f"{module}.")
    return path.startswith("posenc.") and not (is_exported and target.__qualname__ == name)


def import_target(
    node: Mapping[str, Any] | DictConfig, name: str, modules: Sequence[str], group: str = ""
) -> Callable[..., Any]:
    """Return the class or function that a node's `_target_` names.

    `name` is the node's key in error messages. Raises ConfigError if there is no `_target_`, if
    the target is neither in posenc, nor in `modules`, nor in the library of the config group
    `group` (then nothing is imported), if the import fails, or if the target is not callable.
    """
    if node.get("_target_") is None:
        raise ConfigError(f"{name} has no _target_; choose one of the group's options")
    check_trusted({"_target_": node["_target_"]}, name, modules, group)
    path = str(node["_target_"])
    if is_user_code(path, group):
        make_importable(path.partition(".")[0])
    try:
        imported = _import(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing a user's module may raise anything
        missing = isinstance(error, ModuleNotFoundError) and error.name == path.partition(".")[0]
        hint = "; run the command from the module's folder, or install it" if missing else ""
        if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
            hint = f"; its file is {getattr(error.obj, '__file__', 'unknown')}"
        raise ConfigError(
            f"{name}._target_={path} cannot be imported: {type(error).__name__}: {error}{hint}"
            f"{import_location(error)}"
        ) from None
    if not callable(imported):
        raise ConfigError(f"{name}._target_={path} is not a class or function")
    return imported


def check_trusted(values: Any, name: str, modules: Sequence[str], group: str = "") -> None:
    """Raise ConfigError if a `_target_` in nested mappings and lists is not in a trusted module.

    The package of the library classes of the config group `group` is trusted.
    """
    allowed = ["posenc", *modules]
    for _, path in _targets(values):
        module = path.rpartition(".")[0]
        is_trusted = any(f"{module}.".startswith(f"{package}.") for package in allowed)
        if not is_trusted and not in_library(path, group):
            if not module:
                raise ConfigError(f"{name}: _target_={path} has no module; write module.Class")
            trusted = ",".join([*modules, module.split(".")[0]])
            raise ConfigError(
                f"{name}: _target_={path} is outside {', '.join(allowed)}; if you trust it,"
                f" set modules='[{trusted}]'"
            )


def trusted_modules(values: Mapping[str, Any]) -> list[str]:
    """Return the modules listed in a configuration and the top-level modules of `user_targets`.

    Raises ConfigError if the top-level module of a listed one does not exist. No module is
    imported.
    """
    for module in values["modules"]:
        root = module.split(".")[0]
        if not root or (root not in sys.modules and find_module(root) is None):
            raise ConfigError(
                f"modules: {module!r} is neither in the current directory nor installed; correct"
                f" its name or leave it out"
            )
    roots = {target.split(".")[0] for target in user_targets(values)}
    return sorted({*values["modules"], *(roots - {""})})


def user_targets(values: Mapping[str, Any]) -> list[str]:
    """Return the targets of a plain configuration for which `is_user_code` is true."""
    return [target for key, target in _targets(values) if is_user_code(target, key.split(".")[0])]


def find_module(root: str) -> ModuleSpec | None:
    """Return the spec of a top-level module or package, without importing it; None if not found.

    Also finds modules in the current directory. Raises ValueError if the name is empty, or for a
    loaded module without a spec.
    """
    return find_spec(root) or PathFinder.find_spec(root, [os.getcwd()])


def make_importable(root: str) -> None:
    """Append the current directory to `sys.path` if only this folder has the module `root`.

    The folder comes last, so that no file in it shadows a library. If the module is found
    elsewhere, the folder is not added: it may be someone else's, and libraries could import
    optional packages from it.
    """
    with suppress(ValueError):  # `root` is empty, or a loaded module has no spec
        if find_spec(root) is None and find_module(root) is not None:
            sys.path.append(os.getcwd())


def _import(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _is_library_component(target: Any, group: str) -> bool:
    base = _import(LIBRARY_TYPES[group])
    is_subclass = inspect.isclass(target) and issubclass(target, base)
    return is_subclass and in_library(f"{target.__module__}.{target.__name__}", group)


def _package(group: str) -> str:
    """Return the package of a group's type, such as posenc.encodings."""
    return ".".join(GROUP_TYPES[group].split(".")[:2])


def _targets(node: Any) -> list[tuple[str, str]]:
    """Return the dotted key and the value of every `_target_` in nested mappings and lists."""
    return [(key, str(value)) for key, value in walk(node) if key.split(".")[-1] == "_target_"]


def _return_type(target: Callable[..., Any]) -> Any:
    return target if inspect.isclass(target) else type_hints(target).get("return")


def _accepts(target: Callable[..., Any], argument_types: Sequence[Any]) -> bool:
    """Return whether the first parameters of `target` are annotated with the argument types."""
    hints = type_hints(target.__init__ if inspect.isclass(target) else target)
    parameters = list(inspect.signature(target).parameters)[: len(argument_types)]
    return [hints.get(name) for name in parameters] == list(argument_types)


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved annotations of a function, or {} if one cannot be resolved."""
    try:
        return get_type_hints(function)
    except NameError:  # an annotation that is imported for type checkers only
        return {}


def _is_subtype(return_type: Any, annotation: Any) -> bool:
    if inspect.isclass(return_type) and inspect.isclass(annotation):
        return annotation in return_type.__mro__  # works for protocols, unlike issubclass
    return return_type == annotation
