"""What `--help` says, ready at once."""

from textwrap import dedent

COMMANDS = {
    "train": "train models, one or a sweep, and evaluate them beyond their training length",
    "evaluate": "measure a trained run at more lengths or on another corpus",
    "report": "tables, figures and a page of an experiment's results",
    "status": "every run of an experiment, how far it is, and what would finish it",
    "plan": "what an experiment will take: parameters, memory, operations and time",
    "sync": "upload an experiment's runs to W&B from their own files",
    "dashboard": "a W&B workspace and report of an experiment's results",
    "wandb-sweep": "an experiment's grids as sweeps that W&B's agents run",
    "check": "what an encoding must do, and what of it holds",
    "bench": "what encodings cost in time and memory",
    "inspect": "what an encoding is, measured without training, or what a run has made of it",
    "clean": "remove runs that you name",
    "list": "every config group and option",
}

TEXTS = {
    "train": """
        usage: posenc train [key=value ...] [--config-dir DIR] [--cfg]

        Commas make a sweep. A finished run is skipped, a cut-off one goes on from its last
        checkpoint, a failed one is run again with retry=true.

          posenc train experiment=quickstart
          posenc train encoding=alibi,rope train_length=256,512 seed=1,2,3
          posenc train encoding=rope encoding.spectrum.base=1e4,5e5
          posenc train encoding=alibi model=tiny data=text data.paths='[a.txt,b.parquet]' \\
              train_length=512 tokens=5e6 seed=1 evaluation.extra='[0,10,100,1000]'
          posenc train experiment=alibi_extrapolation size=laptop hydra.launcher.jobs=2

        keys (`posenc list` names the options of the groups)
          encoding, encoding/spectrum, model, data, tokenizer, optimizer, schedule, trainer,
          logger, evaluation, experiment, size                             config groups
          train_length, tokens, batch_tokens, seed     L, token budget, tokens per step, seed
          evaluation.lengths | .extra | .factors       absolute, the k of L+k, or times L
          precision, kernel, compile, gradient_clip    numerics
          name, outputs_dir                            the folder is outputs_dir/name
          hydra.launcher.jobs                          processes at a time
          retry                                        run failed runs again

        flags
          --config-dir DIR   a folder with your own YAMLs, such as encoding/mine.yaml
          --cfg              print the configuration of every job and stop
    """,
    "evaluate": """
        usage: posenc evaluate run=PATH [key=value ...]

        Adds rows to the run's evaluation.json; a row that is there already is replaced.

          posenc evaluate run=outputs/quickstart/alibi-L64-s1-3f9c2a1b evaluation.lengths='[4096]'
          posenc evaluate run=outputs/scratch/rope-L256-s1-0c1d2e3f data=text data.test=book.txt
          posenc evaluate run=outputs/scratch/rope-L256-s1-0c1d2e3f evaluation=everything
          posenc evaluate run=outputs/scratch/rope-L256-s1-0c1d2e3f evaluation/swap=pi,yarn

        keys
          run                                     a run directory
          evaluation                              the protocol, or everything: a config group
          evaluation.lengths | .extra | .factors  the run's own lengths if none is given
          evaluation.split, .protocols, .batch_tokens
          evaluation.stride | .k | .targets       of sliding, last_k and fixed_target
          evaluation.budget_tokens, .budget_seconds   for each length of each protocol
          evaluation/swap                         what is exchanged in the encoding: a config group
          evaluation.swaps                        or several: '[none,pi,"yarn factor=4"]'
          data                                    another corpus, in the run's own tokenizer
          modules                                 modules outside posenc that the run's config
                                                  may build objects from, if you trust it
    """,
    "report": """
        usage: posenc report experiment=NAME [size=laptop] | name=NAME [--strict]

        Prints the verdicts on the experiment's claims and the tables, and writes
        outputs/NAME/report/: index.html, csv, md, tex, png and svg.

          posenc report experiment=quickstart
          posenc report experiment=alibi_extrapolation --strict
          posenc report name=scratch

        flags
          --strict   exit code 1 when a claim fails
    """,
    "status": """
        usage: posenc status experiment=NAME [size=laptop] | name=NAME [--json | --watch]

        Every run that was planned: its state, progress, time left and last error, and the command
        that finishes what is open.

          posenc status experiment=quickstart
          posenc status name=scratch --watch

        flags
          --json     a list of runs, each with its status, seconds left and finishing command
          --watch    shown anew every second until all have finished or failed, or Ctrl-C
    """,
    "clean": """
        usage: posenc clean run=PATH[,PATH...] [--yes]
               posenc clean name=NAME | experiment=NAME [size=laptop] state=STATE[,STATE...] [--yes]

        Lists the runs that are named, with their size; with --yes it removes them: the directory,
        its fragments of W&B, its place in the plan. A run that a process works on is refused.

          posenc clean run=outputs/scratch/rope-L256-s1-0c1d2e3f
          posenc clean name=scratch state=failed,interrupted --yes

        keys
          run                      run directories
          name, experiment, size, outputs_dir    a folder of runs
          state                    pending, interrupted, failed or finished: which of them
    """,
    "plan": """
        usage: posenc plan [key=value ...] [machine=NAME] [--config-dir DIR] [--json]

        Takes what `posenc train` takes and says, for each run, parameters, memory on a device,
        floating-point operations and time. Nothing is trained, downloaded or prepared.

          posenc plan experiment=alibi_extrapolation
          posenc plan experiment=alibi_extrapolation size=paper devices=8 machine=h100
          posenc plan encoding=alibi,t5 model=gpt2_124m train_length=1024 machine=a100 \\
              machine.utilisation=0.4

        keys besides those of train
          machine               this, which is timed for a second, or a GPU by its data sheet
          machine.utilisation   share of the data sheet's operations that training reaches

        flags
          --json             numbers in bytes, operations and seconds
    """,
    "sync": """
        usage: posenc sync EXPERIMENT | experiment=NAME [size=laptop] | name=NAME

        EXPERIMENT is the name of a folder in outputs/. Brings the W&B run of each of its runs
        level with the run's directory: what is there already is not sent again, so it can be
        repeated at will. Needs a key (`wandb login` or WANDB_API_KEY), but none of the files that
        W&B keeps of offline runs. Runs that are at work are left out.

          posenc sync quickstart
          posenc sync experiment=alibi_extrapolation
    """,
    "dashboard": """
        usage: posenc dashboard EXPERIMENT | experiment=NAME [size=laptop] | name=NAME [--spec]

        Creates a W&B workspace and a W&B report of an experiment, or updates those that this
        command has made before. `posenc sync` uploads the runs that they show.

          posenc dashboard quickstart
          posenc dashboard quickstart --spec

        flags
          --spec   write both as JSON to outputs/NAME/dashboard.json, without a network
    """,
    "wandb-sweep": """
        usage: posenc wandb-sweep experiment=NAME [size=laptop] [key=value ...]

        Writes a W&B sweep for each of the experiment's grids, outputs/NAME/wandb-sweep-1.yaml and
        so on, and prints the commands that start them. Takes what `posenc train` takes.

          posenc wandb-sweep experiment=rope_base
          posenc wandb-sweep experiment=alibi_extrapolation seed=1,2,3
    """,
    "check": """
        usage: posenc check [encoding=NAME] [key=value ...] [--config-dir DIR]

        Runs the tests that every encoding must pass on very small models: causality, shift
        invariance, an effect of every parameter, precision at position 16,000 and others. Each
        is a pass, a known limitation or a fail (exit code 1). Without an encoding, all of them.

          posenc check encoding=rope encoding.spectrum.base=5e5
          posenc check encoding=mine encoding.rate=0.5 --config-dir my_conf
          posenc check

        keys
          encoding, encoding/spectrum     the encoding; encoding.KEY its knobs
          model.width, .heads, .layers    of the small models, where it needs others
          train_length                    their training length, 24
    """,
    "bench": """
        usage: posenc bench [key=value ...] [--config-dir DIR]

        Times a forward pass and a training step of every variant, interleaved in one process;
        measures each one's peak memory in a process of its own. Commas make variants. Prints a
        table and writes outputs/NAME/bench/: bench.json, csv, md, png and svg.

          posenc bench
          posenc bench encoding=nope,rope,alibi kernel=auto,reference train_length=512,1024
          posenc bench encoding=alibi,fox passes='[step]' model=gpt2_124m precision=bf16
          posenc bench experiment=alibi_cost

        keys
          encoding, encoding/spectrum, model, optimizer, trainer, experiment, size  config groups
          kernel, train_length                  of attention; the length that is measured
          passes                                [forward,step] or one of them
          batch_tokens, micro_batch_tokens      tokens of a pass, and of it at once
          vocab_size, precision, compile, gradient_clip
          threads, rounds                       of a CPU; how often everything is timed
          name, outputs_dir                     the folder is outputs_dir/name/bench
    """,
    "inspect": """
        usage: posenc inspect encoding=NAME|all [key=value ...] [--config-dir DIR]
               posenc inspect run=PATH [key=value ...]

        Measures properties of encodings side by side, without training, and draws them; or what a
        trained run has made of its encoding. Prints tables and writes outputs/NAME/inspect/, or
        the run's own inspect/: index.html, csv, png and svg.

          posenc inspect encoding=rope
          posenc inspect encoding=sinusoidal,alibi,rope encoding.spectrum.base=1e4
          posenc inspect encoding=all
          posenc inspect run=outputs/quickstart/alibi-L64-s1-3f9c2a1b

        keys
          encoding, encoding/spectrum, model    config groups; model.width, .heads, .layers
          train_length                          L; what lies past it is looked at to 4L
          run                                   a run directory, instead of an encoding; with it
          lengths                                 of windows besides L: [512,2048]; null: 2L, 4L
          windows                                 how many of each length
          sentence                                that says a word twice
          seed                                  of weights that are drawn
          logger                                wandb mirrors tables and figures
          name, outputs_dir                     the folder is outputs_dir/name/inspect
    """,
    "list": """
        usage: posenc list [GROUP] [--config-dir DIR]

          posenc list
          posenc list encoding
          posenc list encoding --config-dir my_conf
    """,
}


def overview() -> str:
    """What `posenc` alone prints."""
    commands = "\n".join(f"  {name:11} {text}" for name, text in COMMANDS.items())
    return (
        "posenc: what does a positional encoding do to a Transformer language model,\n"
        "at the length it was trained on and beyond it?\n\n"
        f"usage: posenc COMMAND [key=value ...]\n\n{commands}\n\n"
        "Start with `posenc train experiment=quickstart`; `posenc COMMAND --help` has examples."
    )


def help_of(command: str) -> str:
    """What `posenc COMMAND --help` prints."""
    return dedent(TEXTS[command]).strip()
