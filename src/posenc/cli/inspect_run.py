"""`posenc inspect run=...`: what a trained run has made of its encoding."""

from posenc.cli.arguments import Arguments
from posenc.config.errors import ConfigError


def run(arguments: Arguments) -> int:
    raise ConfigError("run: inspecting a trained run is not there yet")
