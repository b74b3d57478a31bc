"""Division of a token budget into optimizer steps and micro-batches, across devices."""

from dataclasses import dataclass
from itertools import pairwise

from omegaconf import DictConfig

from posenc.config.errors import ConfigError


@dataclass(frozen=True)
class TrainingSteps:
    """`total` optimizer steps, each on `sequences` sequences of the training length.

    A step's sequences are divided among `devices`; each forward pass processes
    `micro_batch_size` sequences.
    """

    total: int
    sequences: int
    micro_batch_size: int
    devices: int = 1

    @property
    def accumulation_steps(self) -> int:
        """The number of micro-batches whose gradients each device accumulates in a step."""
        return self.sequences // (self.micro_batch_size * self.devices)


def training_steps(
    config: DictConfig, *, devices: int | None = None, micro_batch_tokens: int | None = None
) -> TrainingSteps:
    """Return the steps of a run. Raises ConfigError if a batch cannot be divided evenly.

    `devices` and `micro_batch_tokens` override the values in `config`.
    """
    sequences, micro_batch_size = sequences_per_step(config, micro_batch_tokens)
    devices = devices or config.devices
    if sequences % devices:
        raise ConfigError(
            f"devices={devices} does not divide the {sequences} sequences of an optimizer step"
            f" (batch_tokens={config.batch_tokens}, train_length={config.train_length}); use a"
            f" number of devices that divides {sequences}"
        )
    per_device = sequences // devices
    micro_batch_size = min(micro_batch_size, per_device)
    if per_device % micro_batch_size:
        size, tokens = (n * config.train_length for n in (micro_batch_size, per_device))
        raise ConfigError(
            f"micro_batch_tokens={size} does not divide the {tokens} tokens that each of {devices}"
            f" devices processes per step; use a divisor of {tokens} that is a multiple of"
            f" train_length={config.train_length}"
        )
    total = _num_steps(config.tokens, config)
    return TrainingSteps(total, sequences, micro_batch_size, devices)


def evaluated_steps(config: DictConfig) -> dict[int | None, int]:
    """Map the token counts at which a run is evaluated to numbers of optimizer steps.

    The token counts are those of `evaluation.at_tokens`, followed by None for the end of training.
    A count that equals `tokens` is also the end of training and is not listed twice. Raises
    ConfigError if a count is not positive or exceeds `tokens`, or if the counts do not increase by
    at least one step each.
    """
    token_counts, limit = list(config.evaluation.at_tokens), config.tokens
    for tokens in token_counts:
        if not 0 < tokens <= limit:
            raise ConfigError(
                f"evaluation.at_tokens={tokens} must be between 1 and tokens={limit}; remove it"
                + (" or train for more tokens" if tokens > limit else "")
            )
    if token_counts[-1:] != [limit]:
        token_counts.append(limit)
    steps = [_num_steps(tokens, config) for tokens in token_counts]
    for (a, b), (step, next_step) in zip(pairwise(token_counts), pairwise(steps), strict=True):
        if step >= next_step:
            end = f" (tokens={b} is the end of training)" if b == limit else ""
            raise ConfigError(
                f"evaluation.at_tokens={a},{b}{end}: the values must increase by at least one"
                f" optimizer step of batch_tokens={config.batch_tokens}; sort them or remove one"
            )
    return {**dict(zip(token_counts[:-1], steps[:-1], strict=True)), None: steps[-1]}


def _num_steps(tokens: int, config: DictConfig) -> int:
    return max(1, round(tokens / config.batch_tokens))


def sequences_per_step(
    config: DictConfig, micro_batch_tokens: int | None = None
) -> tuple[int, int]:
    """Return the numbers of sequences per optimizer step and per forward pass.

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
