"""`posenc inspect`: what an encoding is, or what a trained run has made of it."""

from posenc.cli import inspect_encoding, inspect_run
from posenc.cli.arguments import Arguments
from posenc.config.explain import key_of


def run(arguments: Arguments) -> int:
    of_run = any(key_of(override) == "run" for override in arguments.overrides)
    return (inspect_run if of_run else inspect_encoding).run(arguments)
