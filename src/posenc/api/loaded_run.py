"""`posenc.load`: a run and its trained model as a Python object."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from posenc.api.run_evaluation import build_evaluation, evaluate_run
from posenc.api.saved_run import run_config, run_tokenizer
from posenc.config.compose import Composer
from posenc.config.console import Console
from posenc.config.errors import ConfigError, describe_path_error
from posenc.config.grids import expand
from posenc.config.identity import check_identity
from posenc.config.overrides import override_key
from posenc.config.resolve import compose_resolved
from posenc.data.tokenizers import Tokenizer
from posenc.evaluation.evaluate import load_model
from posenc.model.device import autocast, deterministic_numerics, select_device
from posenc.model.generation import generate
from posenc.model.transformer import Decoder
from posenc.runs.row_types import Row
from posenc.runs.run_directory import RunDirectory, find_run


class LoadedRun:
    """A run: configuration, tokenizer and trained model, with methods to score and continue text.

    Loading is safe for a run of unknown origin: components are built only from posenc, the trusted
    `modules` and code that the user has trained with, and no code in the weights is executed.
    """

    def __init__(self, directory: RunDirectory, modules: Sequence[str] = ()) -> None:
        self.directory = directory
        self._modules = [modules] if isinstance(modules, str) else list(modules)
        self.name, self.path = directory.name, directory.path

    def __repr__(self) -> str:
        return f"<posenc run {self.name}>"

    @cached_property
    def config(self) -> DictConfig:
        """The complete configuration of the run."""
        return self._read_config()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the run; `encode(text)` returns token ids, `decode(ids)` the text."""
        return run_tokenizer(self.directory, self.config)

    @cached_property
    def model(self) -> Decoder:
        """The model with its final weights, in evaluation mode.

        It is on a GPU if the configuration allows it and there is one. Called with tokens [B, T],
        it returns the logits [B, T, vocab_size] of the next token at each position. Raises RunError
        if training is not complete or its checkpoint is corrupt.
        """
        device = select_device(self.config)
        model = load_model(self.directory, self.config, self.tokenizer.vocab_size, device)
        return model.eval()

    @property
    def rows(self) -> list[Row]:
        """The evaluation rows of the run so far, as in `evaluation.json`."""
        return self.directory.rows(self.config.planned.hash)

    def score(self, text: str) -> Tensor:
        """Return the log-probability of each token of a text in nats, float32 [T] on the CPU.

        T is `len(run.tokenizer.encode(text))`. The tokens form one window, which may be longer
        than the training length; as at the start of a split, the end-of-document token precedes the
        first one. Raises ConfigError for a text without tokens, and for one that is longer than the
        encoding supports.
        """
        tokens = self._encode(text, 0)
        with (
            deterministic_numerics(),
            torch.no_grad(),
            autocast(self.config.precision, tokens.device),
        ):
            return -self.model.losses(tokens[None, :-1], tokens[None, 1:])[0].float().cpu()

    def generate(
        self, prompt: str = "", *, tokens: int = 100, temperature: float = 1.0, seed: int = 0
    ) -> str:
        """Return the prompt followed by `tokens` more tokens, even beyond the training length.

        Tokens are drawn from softmax(logits / temperature); temperature=0 always takes the most
        likely token. An end-of-document token does not stop generation; it is omitted from the
        text (with tokenizer=word, it becomes a newline).

        Keys and values of earlier tokens are cached. Up to rounding, every prediction equals that
        of the model on the whole sequence. For models and encodings outside posenc, and if a
        token's output depends on how many tokens follow it (as with dynamic NTK scaling or
        randomized positions), nothing is cached and each prediction processes the whole sequence.
        Raises ConfigError if the encoding does not support that many tokens.
        """
        _check_generation(tokens, temperature, seed)
        ids = self._encode(prompt, tokens)
        with deterministic_numerics(), autocast(self.config.precision, ids.device):
            generated = list(generate(self.model, ids, int(tokens), float(temperature), int(seed)))
        return self.tokenizer.decode([*ids[1:].tolist(), *generated])

    def evaluate(self, overrides: str | Sequence[str] = ()) -> list[Row]:
        """Evaluate the run and return the rows that `posenc evaluate` with `overrides` measures.

        For example, `run.evaluate(["evaluation.lengths=[1024]", "evaluation/swap=yarn"])`. The rows
        are added to `evaluation.json`. Raises ConfigError for an invalid evaluation, and RunError
        if weights are missing or a loss is not finite.
        """
        composer, evaluations = Composer("evaluate"), []
        for job in expand(None, override_list(overrides)):
            user_keys = {override_key(override) for override in job}
            if load_keys := user_keys & {"run", "modules"}:
                keys = " and ".join(sorted(load_keys))
                raise ConfigError(f"{keys} cannot be overridden; set it in posenc.load")
            request = OmegaConf.create(compose_resolved(composer, job))
            config = self._read_config()
            evaluations.append(
                build_evaluation(self.directory, config, request, user_keys, self._modules)
            )
        console = Console(quiet=True)
        return [row for evaluation in evaluations for row in evaluate_run(evaluation, console)]

    def _read_config(self) -> DictConfig:
        def trust_hint(modules: list[str]) -> str:
            return f"posenc.load({str(self.path)!r}, modules={modules!r})"

        config = run_config(self.directory, self._modules, trust_hint)
        with suppress(ConfigError):  # the hash needs an untrusted class, which is not built
            check_identity(config)
        return config

    def _encode(self, text: str, num_generated: int) -> Tensor:
        """Return the end-of-document token and the tokens of `text` on the model's device.

        Raises ConfigError if the tokenizer rejects the text, if there is no token to score or
        generate, or if text and generated tokens together exceed the encoding's maximum length, and
        TypeError if the text is not a string.
        """
        if not isinstance(text, str):
            raise TypeError(f"the text must be a string, not {type(text).__name__}")
        try:
            ids = self.tokenizer.encode(text)
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}") from None
        length, limit = len(ids) + num_generated, self.model.encoding.max_length()
        if not length:
            raise ConfigError("the text has no tokens; pass a text with at least one")
        if limit is not None and length > limit:
            raise ConfigError(
                f"{length} tokens exceed the {limit} positions of"
                f" encoding={self.config.choices.encoding} in {self.name}; use fewer tokens"
            )
        return torch.tensor([self.tokenizer.eos_id, *ids], device=self.model.device)


def load(run: str | PathLike[str], *, modules: Sequence[str] = ()) -> LoadedRun:
    """Return the run in a directory, such as `outputs/quickstart/rope-L64-s1-3f9c2a1b`.

    A prefix that matches only one run in `outputs`, such as `rope-L64`, is enough.

    `modules` are the modules outside posenc that you trust the run to import, such as the one that
    defines your own encoding. Raises ConfigError if the directory is not a run directory or if the
    encoding needs an untrusted module in the current directory, and RunError if the configuration
    is corrupt or was edited.
    """
    try:
        loaded = LoadedRun(find_run(fspath(run)), modules)
    except OSError as error:  # such as a name that is too long
        raise ConfigError(describe_path_error(error)) from None
    loaded.config  # noqa: B018  # reads it, so that errors are raised here
    return loaded


def override_list(overrides: str | Sequence[str]) -> list[str]:
    """Return overrides as a list; a string is split into words as in a shell.

    Raises ConfigError if an override is not a string, or a quotation mark is not closed.
    """
    try:
        words = shlex.split(overrides) if isinstance(overrides, str) else list(overrides)
    except ValueError as error:
        raise ConfigError(f"{overrides}: {error}") from None
    if invalid := [word for word in words if not isinstance(word, str)]:
        raise ConfigError(f"{invalid[0]!r}: an override must be a string, such as 'seed=1'")
    return words


def _check_generation(tokens: Any, temperature: Any, seed: Any) -> None:
    """Raise ConfigError for invalid arguments of `LoadedRun.generate`."""
    for name, value in (("tokens", tokens), ("seed", seed)):
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise ConfigError(f"{name}={value!r} must be an integer")
    if not isinstance(temperature, Real):
        raise ConfigError(f"temperature={temperature!r} must be a number")
    if tokens < 1:
        raise ConfigError(f"tokens={tokens} must be at least 1")
    if not 0 <= float(temperature) < float("inf"):
        raise ConfigError(f"temperature={temperature} must be a finite non-negative number")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed={seed} must be a non-negative integer below 2^63")
