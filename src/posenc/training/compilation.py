"""Decides whether to compile the model with torch.compile."""

from typing import NamedTuple

import torch
from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.model.device import select_device

MIN_STEPS = 1000
"""`auto` does not compile shorter runs, because compiling can take as long as it saves."""


class CompileChoice(NamedTuple):
    """Whether the model is compiled with torch.compile, and the reason."""

    enabled: bool
    reason: str


def choose_compile(
    setting: bool | str,
    device: torch.device,
    precision: str,
    num_steps: int | None = None,
    *,
    on_this_machine: bool = True,
) -> CompileChoice:
    """Return the choice for compile=`setting` (`auto`, true or false).

    `auto` compiles on a GPU, and in bf16 on CPUs with bfloat16 instructions, if a compiler is
    installed and the run has at least MIN_STEPS steps (not checked if `num_steps` is None). In
    float32 on a CPU, compiling would save only 6 to 8%, because it does not speed up the matrix
    products and attention, which dominate the time of a step. Raises ConfigError for `true` if no
    compiler is installed. Unless `on_this_machine`, a compiler is assumed to be installed.
    """
    missing_compiler = _missing_compiler if on_this_machine else lambda device: None
    if setting is False:
        return CompileChoice(False, "compile=false")
    if setting is True:
        if compiler := missing_compiler(device):
            raise ConfigError(f"compile=true requires {compiler}; install it or set compile=false")
        return CompileChoice(True, "compile=true")
    if device.type == "cpu" and precision != "bf16":
        return CompileChoice(False, f"saves little in {precision} on a CPU")
    if device.type == "cpu" and not has_bf16_instructions():
        return CompileChoice(False, "the CPU has no bfloat16 instructions")
    if compiler := missing_compiler(device):
        return CompileChoice(False, f"requires {compiler}, which is not installed")
    if num_steps is not None and num_steps < MIN_STEPS:
        return CompileChoice(False, f"fewer than {MIN_STEPS} steps")
    return CompileChoice(True, f"{precision} on {'a CPU' if device.type == 'cpu' else 'a GPU'}")


def should_compile(config: DictConfig) -> bool:
    """Return whether a benchmark compiles its model.

    Raises ConfigError if compile=true is impossible.
    """
    return choose_compile(config.compile, select_device(config), config.precision).enabled


def has_bf16_instructions() -> bool:
    """Return whether the CPU multiplies matrices in bfloat16 (AVX512_BF16 or AMX)."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _missing_compiler(device: torch.device) -> str | None:
    """Return the compiler that torch.compile needs for a device, or None if it is installed."""
    from torch._inductor.cpp_builder import get_cpp_compiler  # takes seconds to import
    from torch._inductor.exc import InvalidCxxCompiler
    from torch.utils._triton import has_triton

    if device.type != "cpu":
        return None if has_triton() else "Triton"
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "a C++ compiler such as g++"
    return None
