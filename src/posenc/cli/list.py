"""`posenc list`: every config group and option, with the first line of its YAML."""

from posenc.cli.arguments import Arguments
from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import groups, options


def run(arguments: Arguments) -> int:
    known = groups()
    selected = list(arguments.overrides) or known
    for group in selected:
        if group not in known:
            hint = did_you_mean(group, known)
            raise ConfigError(f"unknown group {group}{hint} (available: {', '.join(known)})")
    for group in selected:
        print(group)
        for name, description in options(group, arguments.config_dirs).items():
            print(f"  {name:22} {description}")
    return 0
