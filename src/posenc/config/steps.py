"""How a token budget is divided into optimizer steps, micro-batches and devices."""

from dataclasses import dataclass

from omegaconf import DictConfig

from posenc.config.errors import ConfigError


@dataclass(frozen=True)
class TrainingSteps:
    """`total` optimizer steps, each on `sequences` sequences of the training length.

    A step's sequences are sharded over `devices`; each forward pass processes `micro_sequences`.
    """

    total: int
    sequences: int
    micro_sequences: int
    devices: int = 1

    @property
    def accumulate(self) -> int:
        """The number of forward passes that each device accumulates per optimizer step."""
        return self.sequences // (self.micro_sequences * self.devices)


def training_steps(
    config: DictConfig, *, devices: int | None = None, micro_batch_tokens: int | None = None
) -> TrainingSteps:
    """Return the steps of a run. Raises ConfigError if a batch cannot be divided evenly.

    `devices` and `micro_batch_tokens` override the values in `config`.
    """
    sequences, micro_sequences = sequences_per_step(config, micro_batch_tokens)
    devices = devices or config.devices
    if sequences % devices:
        raise ConfigError(
            f"devices={devices} does not divide the {sequences} sequences of an optimizer step"
            f" (batch_tokens={config.batch_tokens}, train_length={config.train_length}); use a"
            f" number of devices that divides {sequences}"
        )
    per_device = sequences // devices
    micro_sequences = min(micro_sequences, per_device)
    if per_device % micro_sequences:
        raise ConfigError(
            f"micro_batch_tokens={config.micro_batch_tokens} does not divide the"
            f" {per_device * config.train_length} tokens that each of {devices} devices processes"
            f" per step"
        )
    total = max(1, round(config.tokens / config.batch_tokens))
    return TrainingSteps(total, sequences, micro_sequences, devices)


def sequences_per_step(
    config: DictConfig, micro_batch_tokens: int | None = None
) -> tuple[int, int]:
    """Return the sequences per optimizer step and per forward pass.

    Raises ConfigError unless batch_tokens is a multiple of micro_batch_tokens, and both are
    multiples of train_length.
    """
    length, batch = config.train_length, config.batch_tokens
    if batch % length:
        nearest = max(1, round(batch / length)) * length
        raise ConfigError(
            f"batch_tokens={batch} is not a multiple of train_length={length};"
            f" the nearest is {nearest}"
        )
    micro = micro_batch_tokens or config.micro_batch_tokens or batch
    if micro % length or batch % micro:
        raise ConfigError(
            f"micro_batch_tokens={micro} must be a multiple of train_length={length}"
            f" and divide batch_tokens={batch}"
        )
    return batch // length, micro // length
