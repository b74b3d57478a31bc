"""`posenc list`: print the options of all or some config groups with their descriptions."""

from posenc.cli.arguments import Arguments
from posenc.config.errors import ConfigError, did_you_mean, printable
from posenc.config.paths import groups, options


def run(arguments: Arguments) -> int:
    available = groups()
    selected = list(arguments.overrides) or available
    for group in selected:
        if group not in available:
            hint = did_you_mean(group, available)
            raise ConfigError(f"unknown group {group}{hint} (available: {', '.join(available)})")
    for group in selected:
        print(group)
        descriptions = options(group, arguments.config_dirs)
        width = max(map(len, descriptions), default=0)
        for name, description in descriptions.items():
            print(printable(f"  {name:{width}}  {description}"))
    return 0
