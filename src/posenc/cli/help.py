"""The commands and their help messages, without slow imports."""

from textwrap import dedent

from posenc.cli import help_runs, help_tools

COMMANDS = {
    "train": "train one model or a sweep, and evaluate beyond the training length",
    "evaluate": "evaluate a finished run at more lengths or on other data",
    "report": "write tables, figures and an HTML report of an experiment's results",
    "status": "show the progress of an experiment's runs, and how to finish them",
    "plan": "estimate parameters, memory, FLOPs and time of an experiment",
    "sync": "upload an experiment's runs to W&B, or recreate their offline files",
    "dashboard": "create a W&B workspace and a W&B report of an experiment",
    "tune": "search for settings, such as the learning rate, with the lowest validation loss",
    "search-factors": "search for LongRoPE factors for a finished run at a longer length",
    "wandb-sweep": "write an experiment's grids as W&B sweeps",
    "check": "run the property tests on encodings",
    "bench": "measure the time and memory that encodings take",
    "inspect": "analyze an encoding without training, or the attention of a trained model",
    "clean": "delete selected runs",
    "list": "list every config group and its options",
    "completion": "print a completion script for bash, zsh or fish",
}

HELP = {**help_runs.HELP, **help_tools.HELP}


def overview() -> str:
    """Return the message that `posenc` prints without a command."""
    commands = "\n".join(f"  {name:14} {summary}" for name, summary in COMMANDS.items())
    return (
        "posenc: how does the positional encoding affect a Transformer language model,\n"
        "at its training length and beyond?\n\n"
        f"usage: posenc COMMAND [key=value ...]\n\n{commands}\n\n"
        "Start with `posenc train experiment=quickstart`; `posenc COMMAND --help` has examples."
    )


def command_help(command: str) -> str:
    """Return the message that `posenc COMMAND --help` prints."""
    return dedent(HELP[command]).strip()
