"""The help messages of all commands, in a module without slow imports."""

from textwrap import dedent

COMMANDS = {
    "train": "train one model or a sweep, and evaluate beyond the training length",
    "evaluate": "evaluate a trained run at more lengths or on other data",
    "report": "write tables, figures and an HTML report of an experiment's results",
    "status": "show the progress of every run of an experiment, and how to finish it",
    "plan": "estimate parameters, memory, FLOPs and time of an experiment",
    "sync": "upload an experiment's runs to W&B, or rewrite their offline files",
    "dashboard": "create a W&B workspace and a W&B report of an experiment",
    "wandb-sweep": "write an experiment's grids as W&B sweeps",
    "check": "run the property tests on encodings",
    "bench": "measure the time and memory that encodings take",
    "inspect": "analyze an encoding without training, or the attention of a trained run",
    "clean": "delete selected runs",
    "list": "list every config group and its options",
    "completion": "print a completion script for bash, zsh or fish",
}

HELP = {
    "train": """
        usage: posenc train [key=value ...] [--config-dir DIR] [--cfg]

        Commas make a sweep. Finished runs are skipped, interrupted runs resume from their last
        checkpoint, and failed runs are rerun only with retry=true.

          posenc train experiment=quickstart
          posenc train encoding=alibi,rope train_length=256,512 seed=1,2,3
          posenc train encoding=alibi model=tiny data=text data.paths='[a.txt,b.parquet]' \\
              train_length=512 tokens=5e6 seed=1 evaluation.extra='[0,10,100,1000]'
          posenc train experiment=alibi_extrapolation size=laptop hydra.launcher.jobs=2

        keys (posenc list shows the options of config groups)
          encoding, encoding/spectrum, model, data, tokenizer, optimizer, schedule, trainer,
          callbacks, logger, profiler, evaluation, experiment, size, debug            config groups
          train_length, tokens, batch_tokens, seed     training length L, token budget, tokens per
                                                       optimizer step, random seed
          evaluation.lengths | .extra | .factors       in tokens, as L+k, or as multiples of L
          precision, kernel, compile, gradient_clip    numerics
          name, outputs_dir                            runs go to outputs_dir/name
          hydra/launcher, hydra.launcher.jobs          where jobs run; how many at a time
          retry; reuse             true: rerun failed runs; experiments to copy finished runs from

        flags
          --config-dir DIR   a folder with custom YAML files, such as encoding/mine.yaml
          --cfg              print all configurations; evaluate, plan, bench, inspect, check too
    """,
    "evaluate": """
        usage: posenc evaluate run=PATH | name=NAME | experiment=NAME [key=value ...]

        Adds rows to evaluation.json, replacing those of the same measurements and budget.

          posenc evaluate run=scratch/rope-L256-s1 data=text data.test=book.txt
          posenc evaluate run=scratch/rope-L256-s1 evaluation/swap=none,pi,yarn
          posenc evaluate name=scratch encoding=rope evaluation.lengths='[4096]'

        keys
          run                                     a run directory, or a unique prefix of its name
          name, experiment, size, outputs_dir     instead of run: the finished runs of an experiment
          encoding, train_length, seed            filters of these runs
          evaluation                              a protocol, or everything (a config group)
          evaluation.lengths | .extra | .factors  default: the lengths of the run
          evaluation.split, .protocols, .batch_tokens
          evaluation.stride | .k | .targets       for sliding, last_k and fixed_target
          evaluation.budget_tokens, .budget_seconds   limits per protocol and length
          evaluation/swap                         replace a part of the encoding; none: unchanged
          data                                    a different corpus, with the run's tokenizer
          modules                                 trusted modules that the run's configuration
                                                  may import
    """,
    "report": """
        usage: posenc report experiment=NAME [size=laptop] | name=NAME [FILTER=value ...] [flags]
               posenc report run=PATH

        Prints a table for each training length and a line for each of the experiment's premises
        and claims, and writes index.html, csv, md, tex, png and svg files to outputs/NAME/report/,
        or to outputs/NAME/report-selected/ for selected runs.

          posenc report experiment=quickstart
          posenc report name=scratch encoding=rope,alibi --full

        keys
          encoding, train_length, seed           filters: the runs with one of these values
          run                                    a run: a path or a unique prefix of its name

        flags
          --full     print all tables, the numbers of the verdicts, setup and limitations
          --strict   exit with code 1 if a premise does not hold or a claim fails
    """,
    "status": """
        usage: posenc status experiment=NAME | name=NAME [FILTER=value ...] [--json | --watch]
               posenc status run=PATH [--json | --watch]

        Shows every planned run: state, progress, time left, last error, and the command that
        finishes the experiment.

          posenc status experiment=quickstart
          posenc status name=scratch encoding=rope,alibi --watch

        keys
          encoding, train_length, seed           filters: the runs with one of these values
          run                                    a run: a path or a unique prefix of its name

        flags
          --json     print each run's status, seconds left and the command to finish it
          --watch    refresh every second until all runs have finished or failed, or Ctrl-C
    """,
    "clean": """
        usage: posenc clean run=PATH[,PATH...] [--yes]
               posenc clean name=NAME | experiment=NAME [size=laptop] state=STATE[,STATE...] [--yes]

        Lists the selected runs and their sizes. With --yes, deletes their directories, their
        offline W&B files and their entries in the plan. Running runs cannot be deleted.

          posenc clean run=outputs/scratch/rope-L256-s1-0c1d2e3f
          posenc clean name=scratch state=failed,interrupted --yes

        keys
          run                                    run directories
          name, experiment, size, outputs_dir    an experiment's folder
          state                                  pending, interrupted, failed or finished
    """,
    "plan": """
        usage: posenc plan [key=value ...] [machine=NAME] [--config-dir DIR] [--json]

        Takes the keys of posenc train, and estimates the parameters, memory per device, FLOPs and
        time of every run. Nothing is trained, downloaded or prepared.

          posenc plan experiment=alibi_extrapolation
          posenc plan experiment=alibi_extrapolation size=paper devices=8 machine=h100
          posenc plan encoding=alibi,t5 model=gpt2_124m train_length=1024 machine=a100 \\
              machine.utilization=0.4

        keys in addition to those of train
          machine               this machine, benchmarked for a second, or the data sheet of a GPU
          machine.utilization   fraction of the data sheet's FLOP/s that training reaches

        flags
          --json             print JSON, in bytes, FLOPs and seconds
    """,
    "sync": """
        usage: posenc sync EXPERIMENT | experiment=NAME [size=laptop] | name=NAME [--offline]

        Uploads an experiment's runs from their run directories. EXPERIMENT is the name of a folder
        in outputs/. Needs an API key (wandb login or WANDB_API_KEY). Running runs are skipped, and
        repeating the command uploads nothing twice. With --offline, instead writes missing or
        incomplete offline W&B files again, which needs no API key.

          posenc sync quickstart
    """,
    "dashboard": """
        usage: posenc dashboard EXPERIMENT | experiment=NAME [size=laptop] | name=NAME [--spec]

        Creates or updates a W&B workspace and a W&B report of an experiment. They show the runs
        that posenc sync has uploaded.

          posenc dashboard quickstart --spec

        flags
          --spec   only write both as JSON to outputs/NAME/dashboard.json; needs no network
    """,
    "wandb-sweep": """
        usage: posenc wandb-sweep experiment=NAME [size=laptop] [key=value ...]

        Writes a W&B sweep for each of the experiment's grids to outputs/NAME/wandb-sweep-1.yaml
        and so on, and prints the commands that start them. Takes the keys of posenc train.

          posenc wandb-sweep experiment=alibi_extrapolation seed=1,2,3
    """,
    "check": """
        usage: posenc check [encoding=NAME] [key=value ...] [--config-dir DIR]

        Runs the tests that every encoding must pass, on very small models: causality, shift
        invariance, precision at position 16,000, whether every parameter has an effect, and others.
        Each result is pass, known limitation or fail (exit code 1). Without encoding=NAME, checks
        all encodings.

          posenc check encoding=rope encoding.spectrum.base=5e5
          posenc check encoding=mine encoding.rate=0.5 --config-dir my_conf

        keys
          encoding, encoding/spectrum     the encoding; encoding.KEY sets a parameter
          model.width, .heads, .layers    dimensions of the small models
          train_length                    context length of the small models (default 24)
    """,
    "bench": """
        usage: posenc bench [key=value ...] [--config-dir DIR]

        Times a forward pass and a training step of every variant, interleaved in one process, and
        measures peak memory in separate processes. Commas make variants. Prints a table and writes
        index.html and bench.json, csv, md, png and svg files to outputs/NAME/bench/.

          posenc bench encoding=nope,rope,alibi kernel=auto,reference train_length=512,1024
          posenc bench encoding=alibi,fox passes='[step]' model=gpt2_124m precision=bf16
          posenc bench experiment=alibi_cost

        keys
          encoding, encoding/spectrum, model, optimizer, trainer, experiment, size  config groups
          kernel, train_length                  attention kernel; context length
          passes                                [forward,step] or one of them
          batch_tokens, micro_batch_tokens      tokens per pass; tokens per micro-batch
          vocab_size, precision, compile, gradient_clip
          threads, rounds                       CPU threads; number of times to run each variant
          name, outputs_dir                     results go to outputs_dir/name/bench
    """,
    "inspect": """
        usage: posenc inspect encoding=NAME|all [key=value ...] [--config-dir DIR]
               posenc inspect run=PATH [key=value ...]

        Measures properties of encodings side by side, without training, or analyzes the attention
        of a trained run. Prints tables and writes index.html, csv, png and svg files to
        outputs/NAME/inspect/ or to inspect/ in the run directory.

          posenc inspect encoding=sinusoidal,alibi,rope encoding.spectrum.base=1e4
          posenc inspect encoding=all
          posenc inspect run=outputs/quickstart/alibi-L64-s1-3f9c2a1b

        keys
          encoding, encoding/spectrum, model    config groups; model.width, .heads, .layers
          train_length                          L; properties are measured up to 4L
          seed                                  seed of the randomly drawn weights
          run                                   a run directory, or a unique prefix of its name
          lengths, windows                      with run: lengths besides L; windows per length
          sentence                              with run: a sentence with a repeated word
          logger                                logger=wandb also logs tables and figures
          name, outputs_dir                     results go to outputs_dir/name/inspect
    """,
    "list": """
        usage: posenc list [GROUP] [--config-dir DIR]

        Prints the options of every config group, or of one group.

          posenc list encoding --config-dir my_conf
    """,
    "completion": """
        usage: posenc completion bash|zsh|fish

        Prints a script that completes commands, keys, options, experiments and run directories.

          eval "$(posenc completion bash)"            # in ~/.bashrc; zsh: in ~/.zshrc
          posenc completion fish | source             # in ~/.config/fish/config.fish
    """,
}


def overview() -> str:
    """Return the message that `posenc` prints without a command."""
    commands = "\n".join(f"  {name:11} {summary}" for name, summary in COMMANDS.items())
    return (
        "posenc: how does the positional encoding affect a Transformer language model,\n"
        "at its training length and beyond?\n\n"
        f"usage: posenc COMMAND [key=value ...]\n\n{commands}\n\n"
        "Start with `posenc train experiment=quickstart`; `posenc COMMAND --help` has examples."
    )


def command_help(command: str) -> str:
    """Return the message that `posenc COMMAND --help` prints."""
    return dedent(HELP[command]).strip()
