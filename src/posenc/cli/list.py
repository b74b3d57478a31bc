"""`posenc list`: every config group and option, with the line that heads its YAML."""

from posenc.cli.arguments import Arguments
from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import groups, options


def run(arguments: Arguments) -> int:
    known = groups()
    wanted = list(arguments.overrides) or known
    for group in wanted:
        if group not in known:
            hint = did_you_mean(group, known)
            raise ConfigError(
                f"{group}: there is no such group{hint}; there are {', '.join(known)}"
            )
    for group in wanted:
        print(group)
        for name, description in options(group, list(arguments.config_dirs)).items():
            print(f"  {name:22} {description}")
    return 0
