"""`posenc inspect`: what an encoding is, or what a trained run has made of it."""

from importlib import import_module

from posenc.cli.arguments import Arguments
from posenc.config.errors import ConfigError
from posenc.config.overrides import root_key

OF_RUN = ("lengths", "windows", "sentence")
OF_BOTH = ("run", "logger", "modules")


def run(arguments: Arguments) -> int:
    """ConfigError for a key that only the other kind of inspection reads."""
    roots = {word: root_key(word) for word in arguments.overrides}
    of_run = "run" in roots.values()
    for word, root in roots.items():
        if of_run and root not in OF_RUN + OF_BOTH:
            keys = ", ".join(OF_BOTH + OF_RUN)
            raise ConfigError(f"{word}: with run=PATH the run says the rest; give only {keys}")
        if not of_run and root in OF_RUN:
            raise ConfigError(f"{word}: this is read with run=PATH alone; give that, or leave it")
    kind = "inspect_run" if of_run else "inspect_encoding"  # Lightning is slow to import
    return import_module(f"posenc.cli.{kind}").run(arguments)
