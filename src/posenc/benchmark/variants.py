"""The variants of a benchmark: combinations of encoding, kernel, length and pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig

from posenc.attention import UnsupportedKernelError
from posenc.attention.choice import KernelChoice, describe_choices, layer_choices
from posenc.benchmark.bench_settings import ATTENTION_PASSES, PASSES
from posenc.config.errors import ConfigError
from posenc.config.steps import sequences_per_step
from posenc.jobs.validate import validate_optimizer
from posenc.jobs.verify import verify, verify_model
from posenc.model.build import build_encoding, build_meta_model
from posenc.model.device import attention_dtype, check_accelerator, select_device
from posenc.model.flops import BACKWARD_FACTOR, forward_flops, model_flops

COLUMN_KEYS = ("encoding", "kernel", "train_length", "passes")
"""Keys that labels omit, because a benchmark's tables show them in columns or titles."""


@dataclass(frozen=True)
class Variant:
    """One configuration and pass to measure; the passes of a model share one `config` object.

    `kernels` names the attention kernels that the layers use, and `auto_kernels` those that they
    would use with kernel=auto; `kernel_reason` explains the choice.
    """

    label: str
    config: DictConfig
    pass_: str
    kernels: str
    kernel_reason: str
    auto_kernels: str
    flops_per_token: int

    @property
    def length(self) -> int:
        return self.config.train_length

    @property
    def flops(self) -> int:
        """FLOPs of the whole pass; `flops_per_token` counts the forward pass only."""
        factor = 1 + BACKWARD_FACTOR if self.pass_ in ("step", "attention_step") else 1
        return factor * self.config.batch_tokens * self.flops_per_token

    def __str__(self) -> str:
        return f"{self.label}, kernel={self.config.kernel}, L={self.length}, {self.pass_}"


def build_variants(jobs: Sequence[tuple[Sequence[str], DictConfig]]) -> list[Variant]:
    """Return the variants of all jobs (overrides, configuration), ordered by length and pass.

    With `skip_unsupported`, variants whose kernel does not support the encoding are left out.
    Raises a single ConfigError listing the errors of all jobs.
    """
    labels = variant_labels(
        [config.choices.encoding for _, config in jobs], [job for job, _ in jobs]
    )
    variants: dict[tuple[str, str, int, str], Variant] = {}
    errors: dict[str, list[str]] = {}
    verified: set[str] = set()
    for label, (_, config) in zip(labels, jobs, strict=True):
        try:
            for variant in _build(label, config, verified):
                key = (label, config.kernel, config.train_length, variant.pass_)
                variants.setdefault(key, variant)
        except (ConfigError, ValueError) as error:
            if config.skip_unsupported and isinstance(error, UnsupportedKernelError):
                continue
            errors.setdefault(str(error), []).append(label)
    if errors:
        # A message that applies only to some encodings starts with their labels.
        lines = [
            message if len(names) == len(jobs) else f"{', '.join(dict.fromkeys(names))}: {message}"
            for message, names in errors.items()
        ]
        raise ConfigError("\n".join(lines))
    if not variants:
        raise ConfigError(
            "none of the requested kernels supports any of the encodings on this device; add"
            " kernel=auto"
        )
    return sorted(variants.values(), key=lambda v: (v.length, PASSES.index(v.pass_)))


def _build(label: str, config: DictConfig, verified: set[str]) -> Iterator[Variant]:
    """Yield the variants of one job after building its model on the meta device.

    Raises ValueError or ConfigError if the configuration is invalid.
    """
    sequences_per_step(config)  # raises ConfigError if batch_tokens is invalid
    check_accelerator(config)
    validate_optimizer(config)
    device, dtype = select_device(config), attention_dtype(config.precision)
    verify(config, build_encoding(config), verified)
    verify_model(config, config.vocab_size, verified)
    model = build_meta_model(config, config.vocab_size)
    limit = model.encoding.max_length()
    if limit is not None and config.train_length > limit:
        raise ConfigError(
            f"train_length={config.train_length} exceeds the encoding's limit of {limit} positions"
        )
    choices = layer_choices(config.kernel, model.encoding, device, dtype)
    auto_choices, length = choices, config.train_length
    if config.kernel != "auto":
        auto_choices = layer_choices("auto", model.encoding, device, dtype)
    for pass_ in config.passes:
        timed, auto, flops = choices, auto_choices, model_flops(model, length)
        if pass_ in ATTENTION_PASSES:  # these time layer 0 only
            timed, auto = choices[:1], auto_choices[:1]
            flops = forward_flops(0, 1, config.model.width, length)
        yield Variant(
            label=label,
            config=config,
            pass_=pass_,
            kernels=_names(timed),
            kernel_reason=describe_choices(timed),
            auto_kernels=_names(auto),
            flops_per_token=flops,
        )


def _names(choices: Sequence[KernelChoice]) -> str:
    return ", ".join(dict.fromkeys(choice.name for choice in choices))


def variant_labels(
    encodings: Sequence[str], jobs: Sequence[Sequence[str]], omitted: Sequence[str] = COLUMN_KEYS
) -> list[str]:
    """Return a label for each job: its encoding and the overrides that vary for that encoding.

    Labels do not include the keys in `omitted`. For example, two RoPE jobs are
    `rope spectrum.base=10000` and `rope spectrum.base=500000`, while a single ALiBi job is `alibi`.
    """
    overrides = [
        {key: value for key, _, value in (o.partition("=") for o in job) if key not in omitted}
        for job in jobs
    ]
    labels = []
    for encoding, values in zip(encodings, overrides, strict=True):
        peers = [o for name, o in zip(encodings, overrides, strict=True) if name == encoding]
        varying = [key for key in values if len({peer.get(key) for peer in peers}) > 1]
        labels.append(" ".join([encoding, *(_short_override(k, values[k]) for k in varying)]))
    return labels


def _short_override(key: str, value: str) -> str:
    return f"{key.removeprefix('encoding.').removeprefix('encoding/')}={value.removesuffix('.0')}"
