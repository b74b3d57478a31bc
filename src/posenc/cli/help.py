"""The texts of `--help`, printed without importing anything heavy."""

from textwrap import dedent

COMMANDS = {
    "train": "train one model or a sweep, and evaluate beyond the training length",
    "evaluate": "evaluate a trained run at more lengths or on other data",
    "report": "tables, figures and a page of an experiment's results",
    "status": "progress of every run of an experiment, and how to finish it",
    "plan": "estimate parameters, memory, FLOPs and time of an experiment",
    "sync": "upload an experiment's runs to W&B",
    "dashboard": "create a W&B workspace and report of an experiment",
    "wandb-sweep": "write an experiment's grids as W&B sweeps",
    "check": "run the property tests of encodings",
    "bench": "measure time and memory of encodings",
    "inspect": "analyse an encoding without training, or the attention of a trained run",
    "clean": "delete selected runs",
    "list": "list every config group and option",
}

TEXTS = {
    "train": """
        usage: posenc train [key=value ...] [--config-dir DIR] [--cfg]

        Commas make a sweep. Finished runs are skipped, interrupted runs resume from their last
        checkpoint, failed runs are rerun with retry=true.

          posenc train experiment=quickstart
          posenc train encoding=alibi,rope train_length=256,512 seed=1,2,3
          posenc train encoding=rope encoding.spectrum.base=1e4,5e5
          posenc train encoding=alibi model=tiny data=text data.paths='[a.txt,b.parquet]' \\
              train_length=512 tokens=5e6 seed=1 evaluation.extra='[0,10,100,1000]'
          posenc train experiment=alibi_extrapolation size=laptop hydra.launcher.jobs=2

        keys (posenc list shows the options of config groups)
          encoding, encoding/spectrum, model, data, tokenizer, optimizer, schedule, trainer,
          logger, evaluation, experiment, size                             config groups
          train_length, tokens, batch_tokens, seed     context length L, token budget, tokens per
                                                       optimizer step, random seed
          evaluation.lengths | .extra | .factors       absolute, L+k, or multiples of L
          precision, kernel, compile, gradient_clip    numerics
          name, outputs_dir                            runs go to outputs_dir/name
          hydra/launcher, hydra.launcher.jobs          where jobs run; how many at a time
          retry                                        rerun failed runs

        flags
          --config-dir DIR   a folder with your own YAMLs, such as encoding/mine.yaml
          --cfg              print the configuration of every job and exit
    """,
    "evaluate": """
        usage: posenc evaluate run=PATH [key=value ...]

        Adds rows to the run's evaluation.json; an existing row of the same measurement is replaced.

          posenc evaluate run=outputs/quickstart/alibi-L64-s1-3f9c2a1b evaluation.lengths='[4096]'
          posenc evaluate run=outputs/scratch/rope-L256-s1-0c1d2e3f data=text data.test=book.txt
          posenc evaluate run=outputs/scratch/rope-L256-s1-0c1d2e3f evaluation=everything
          posenc evaluate run=outputs/scratch/rope-L256-s1-0c1d2e3f evaluation/swap=pi,yarn

        keys
          run                                     a run directory
          evaluation                              a protocol, or everything: a config group
          evaluation.lengths | .extra | .factors  default: the run's own lengths
          evaluation.split, .protocols, .batch_tokens
          evaluation.stride | .k | .targets       for sliding, last_k and fixed_target
          evaluation.budget_tokens, .budget_seconds   for each length of each protocol
          evaluation/swap                         exchange a part of the encoding: a config group
          evaluation.swaps                        several swaps: '[none,pi,"yarn factor=4"]'
          data                                    another corpus, in the run's tokenizer
          modules                                 modules outside posenc that the run's
                                                  configuration may import, if you trust them
    """,
    "report": """
        usage: posenc report experiment=NAME [size=laptop] | name=NAME [--strict]

        Prints tables and the verdicts on the experiment's claims, and writes
        outputs/NAME/report/: index.html, csv, md, tex, png and svg.

          posenc report experiment=quickstart
          posenc report experiment=alibi_extrapolation --strict
          posenc report name=scratch

        flags
          --strict   exit with code 1 if a claim fails
    """,
    "status": """
        usage: posenc status experiment=NAME [size=laptop] | name=NAME [--json | --watch]

        Shows every planned run: state, progress, time left, last error, and the command that
        finishes the experiment.

          posenc status experiment=quickstart
          posenc status name=scratch --watch

        flags
          --json     a list of runs with status, seconds left and the command to finish them
          --watch    refresh every second until all runs have finished or failed, or Ctrl-C
    """,
    "clean": """
        usage: posenc clean run=PATH[,PATH...] [--yes]
               posenc clean name=NAME | experiment=NAME [size=laptop] state=STATE[,STATE...] [--yes]

        Lists the selected runs with their size; with --yes, deletes them: the directory, its
        offline W&B files, its entry in the plan. A run that is being run is refused.

          posenc clean run=outputs/scratch/rope-L256-s1-0c1d2e3f
          posenc clean name=scratch state=failed,interrupted --yes

        keys
          run                                    run directories
          name, experiment, size, outputs_dir    an experiment's folder
          state                                  pending, interrupted, failed or finished
    """,
    "plan": """
        usage: posenc plan [key=value ...] [machine=NAME] [--config-dir DIR] [--json]

        Takes the keys of posenc train and estimates parameters, memory per device, FLOPs and time
        of every run. Nothing is trained, downloaded or prepared.

          posenc plan experiment=alibi_extrapolation
          posenc plan experiment=alibi_extrapolation size=paper devices=8 machine=h100
          posenc plan encoding=alibi,t5 model=gpt2_124m train_length=1024 machine=a100 \\
              machine.utilisation=0.4

        keys in addition to those of train
          machine               this machine, timed for a second, or a GPU by its data sheet
          machine.utilisation   fraction of the data sheet's FLOP/s that training reaches

        flags
          --json             numbers in bytes, FLOPs and seconds
    """,
    "sync": """
        usage: posenc sync EXPERIMENT | experiment=NAME [size=laptop] | name=NAME

        Uploads an experiment's runs from their run directories. EXPERIMENT is the name of a folder
        in outputs/. Needs an API key (wandb login or WANDB_API_KEY). It can be repeated: nothing is
        uploaded twice. Running runs are skipped.

          posenc sync quickstart
          posenc sync experiment=alibi_extrapolation
    """,
    "dashboard": """
        usage: posenc dashboard EXPERIMENT | experiment=NAME [size=laptop] | name=NAME [--spec]

        Creates or updates a W&B workspace and a W&B report of an experiment. The runs that they
        show are uploaded by posenc sync.

          posenc dashboard quickstart
          posenc dashboard quickstart --spec

        flags
          --spec   write both as JSON to outputs/NAME/dashboard.json, without a network
    """,
    "wandb-sweep": """
        usage: posenc wandb-sweep experiment=NAME [size=laptop] [key=value ...]

        Writes a W&B sweep for each of the experiment's grids to outputs/NAME/wandb-sweep-1.yaml
        and so on, and prints the commands that start them. Takes the keys of posenc train.

          posenc wandb-sweep experiment=rope_base
          posenc wandb-sweep experiment=alibi_extrapolation seed=1,2,3
    """,
    "check": """
        usage: posenc check [encoding=NAME] [key=value ...] [--config-dir DIR]

        Runs the tests that every encoding must pass on very small models: causality, shift
        invariance, an effect of every parameter, precision at position 16,000 and others. Each
        result is pass, known limitation or fail (exit code 1). Without an encoding, checks all.

          posenc check encoding=rope encoding.spectrum.base=5e5
          posenc check encoding=mine encoding.rate=0.5 --config-dir my_conf
          posenc check

        keys
          encoding, encoding/spectrum     the encoding; encoding.KEY its parameters
          model.width, .heads, .layers    of the small models
          train_length                    of the small models (default 24)
    """,
    "bench": """
        usage: posenc bench [key=value ...] [--config-dir DIR]

        Times a forward pass and a training step of every variant, interleaved in one process;
        measures peak memory in separate processes. Commas make variants. Prints a table and writes
        outputs/NAME/bench/: bench.json, csv, md, png and svg.

          posenc bench
          posenc bench encoding=nope,rope,alibi kernel=auto,reference train_length=512,1024
          posenc bench encoding=alibi,fox passes='[step]' model=gpt2_124m precision=bf16
          posenc bench experiment=alibi_cost

        keys
          encoding, encoding/spectrum, model, optimizer, trainer, experiment, size  config groups
          kernel, train_length                  attention kernel; context length
          passes                                [forward,step] or one of them
          batch_tokens, micro_batch_tokens      tokens per pass; tokens per forward pass
          vocab_size, precision, compile, gradient_clip
          threads, rounds                       CPU threads; how often each variant is timed
          name, outputs_dir                     results go to outputs_dir/name/bench
    """,
    "inspect": """
        usage: posenc inspect encoding=NAME|all [key=value ...] [--config-dir DIR]
               posenc inspect run=PATH [key=value ...]

        Measures properties of encodings side by side, without training; or analyses the attention
        of a trained run. Prints tables and writes outputs/NAME/inspect/, or the run's own
        inspect/: index.html, csv, png and svg.

          posenc inspect encoding=rope
          posenc inspect encoding=sinusoidal,alibi,rope encoding.spectrum.base=1e4
          posenc inspect encoding=all
          posenc inspect run=outputs/quickstart/alibi-L64-s1-3f9c2a1b

        keys
          encoding, encoding/spectrum, model    config groups; model.width, .heads, .layers
          train_length                          L; properties are measured up to 4L
          seed                                  of randomly drawn weights
          run                                   a run directory, instead of an encoding; with it
          lengths                                 evaluation lengths besides L; null: 2L and 4L
          windows                                 number of windows per length
          sentence                                a sentence with a repeated word
          logger                                logger=wandb also logs tables and figures
          name, outputs_dir                     results go to outputs_dir/name/inspect
    """,
    "list": """
        usage: posenc list [GROUP] [--config-dir DIR]

          posenc list
          posenc list encoding
          posenc list encoding --config-dir my_conf
    """,
}


def overview() -> str:
    """Return the text that `posenc` prints without a command."""
    commands = "\n".join(f"  {name:11} {text}" for name, text in COMMANDS.items())
    return (
        "posenc: what does a positional encoding do to a Transformer language model,\n"
        "at the length it was trained on and beyond it?\n\n"
        f"usage: posenc COMMAND [key=value ...]\n\n{commands}\n\n"
        "Start with `posenc train experiment=quickstart`; `posenc COMMAND --help` has examples."
    )


def command_help(command: str) -> str:
    """Return the text that `posenc COMMAND --help` prints."""
    return dedent(TEXTS[command]).strip()
