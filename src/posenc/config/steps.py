"""Optimizer steps of a token budget, and how a step is split into micro-batches and devices."""

from dataclasses import dataclass

from omegaconf import DictConfig

from posenc.config.errors import ConfigError


@dataclass(frozen=True)
class TrainingSteps:
    """`total` optimizer steps of `sequences` windows each.

    A step's sequences are sharded over `devices`, with `micro_sequences` per forward pass.
    """

    total: int
    sequences: int
    micro_sequences: int
    devices: int = 1

    @property
    def accumulate(self) -> int:
        """Forward passes of a device per optimizer step."""
        return self.sequences // (self.micro_sequences * self.devices)


def training_steps(
    config: DictConfig, *, devices: int | None = None, micro_batch_tokens: int | None = None
) -> TrainingSteps:
    """Return the steps of a run; raises ConfigError for sizes that do not divide.

    `devices` and `micro_batch_tokens` default to those of `config`.
    """
    sequences, micro_sequences = sequences_per_step(config, micro_batch_tokens)
    devices = devices or config.devices
    if sequences % devices:
        raise ConfigError(
            f"devices={devices} does not divide batch_tokens={config.batch_tokens}, which is"
            f" {sequences} windows of train_length={config.train_length}; give a number of devices"
            f" that divides {sequences}"
        )
    per_device = sequences // devices
    micro_sequences = min(micro_sequences, per_device)
    if per_device % micro_sequences:
        raise ConfigError(
            f"micro_batch_tokens={config.micro_batch_tokens} does not divide the"
            f" {per_device * config.train_length} tokens per step of each of {devices} devices"
        )
    total = max(1, round(config.tokens / config.batch_tokens))
    return TrainingSteps(total, sequences, micro_sequences, devices)


def sequences_per_step(
    config: DictConfig, micro_batch_tokens: int | None = None
) -> tuple[int, int]:
    """Return the windows per optimizer step and per forward pass; ConfigError if not whole."""
    length, batch = config.train_length, config.batch_tokens
    micro = micro_batch_tokens or config.micro_batch_tokens
    if batch % length:
        nearest = max(1, round(batch / length)) * length
        raise ConfigError(
            f"batch_tokens={batch} is not a multiple of train_length={length};"
            f" the nearest is {nearest}"
        )
    micro = micro or batch
    if micro % length or batch % micro:
        raise ConfigError(
            f"micro_batch_tokens={micro} must be a multiple of train_length={length}"
            f" and divide batch_tokens={batch}"
        )
    return batch // length, micro // length
