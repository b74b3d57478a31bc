"""The help messages of the commands that train, evaluate, show and delete runs."""

HELP = {
    "train": """
        usage: posenc train [key=value ...] [--config-dir DIR] [--cfg]

        Comma-separated values define a sweep. Finished runs are skipped, interrupted runs resume
        from their last checkpoint, and failed runs are rerun only with retry=true.

          posenc train experiment=quickstart
          posenc train encoding=alibi,rope train_length=256,512 seed=1,2,3
          posenc train encoding=alibi model=tiny data=text data.paths='[a.txt,b.parquet]' \\
              train_length=512 tokens=5e6 seed=1 evaluation.offsets='[0,10,100,1000]'
          posenc train experiment=alibi_extrapolation size=laptop hydra.launcher.jobs=2

        keys (posenc list shows the options of config groups)
          encoding, encoding/spectrum, model, data, tokenizer, optimizer, schedule, trainer,
          callbacks, logger, profiler, evaluation, experiment, size, debug            config groups
          train_length, tokens, batch_tokens, seed     training length L, token budget, tokens per
                                                       optimizer step, random seed
          evaluation.lengths | .offsets | .factors     in tokens, as L+k, or as multiples of L
          precision, kernel, compile, gradient_clip    dtype, attention, torch.compile, clipping
          devices, micro_batch_tokens                  processes per run; tokens per forward pass
          validation.every_tokens, .tokens             how often, and on how many tokens
          checkpoint.every_seconds, ngram_order        see docs/runs.md and docs/evaluation.md
          modules                                      Python modules with your own classes
          name, outputs_dir                            runs go to outputs_dir/name
          hydra/launcher, hydra.launcher.jobs          where jobs run; how many at a time
          retry                                        true: rerun failed runs
          reuse                                        experiments whose finished runs are copied

        flags
          --config-dir DIR   a folder with custom YAML files, such as encoding/mine.yaml
          --cfg              print the configuration of every run and exit; other commands that
                             compose configurations also accept it (tune and wandb-sweep leave
                             out the overrides with intervals)
    """,
    "evaluate": """
        usage: posenc evaluate run=PATH | name=NAME | experiment=NAME [key=value ...]

        Adds rows to evaluation.json. A new row replaces one with the same data, protocol, length,
        swap, budget and scored tokens.

          posenc evaluate run=scratch/rope-L256-s1 data=text data.test=book.txt
          posenc evaluate run=scratch/rope-L256-s1 evaluation/swap=none,pi,yarn
          posenc evaluate name=scratch encoding=rope evaluation.lengths='[4096]'

        keys
          run                                     a run directory, or a unique prefix of its name
          name, experiment, size, outputs_dir     the finished runs of an experiment; with run=,
                                                  the experiment in which to look for that run
          encoding, train_length, seed            filters on these runs
          evaluation                              config group; posenc list evaluation
          evaluation.lengths | .offsets | .factors    default: the lengths of the run
          evaluation.split, .protocols, .batch_tokens
          evaluation.stride | .k | .targets       for sliding, last_k and fixed_target
          evaluation.budget_tokens, .budget_seconds   limits per protocol and length
          evaluation/swap                         context-extension methods; none: unchanged
          data                                    a different corpus, with the run's tokenizer
          modules                                 trusted modules that the run's configuration
                                                  may import
    """,
    "report": """
        usage: posenc report EXPERIMENT | experiment=NAME [size=SIZE] | name=NAME
                             [FILTER=value ...] [flags]
               posenc report run=PATH [name=NAME | experiment=NAME]

        Prints a table for each training length and a line for each of the experiment's premises
        and claims, and writes index.html, csv, md, tex, png and svg files to outputs/NAME/report/,
        or to outputs/NAME/report-selected/ for selected runs. EXPERIMENT is the name of a folder in
        outputs/.

          posenc report experiment=quickstart
          posenc report name=scratch encoding=rope,alibi --full

        keys
          encoding, train_length, seed           filters: the runs with one of these values
          run                                    a run: a path or a unique prefix of its name, in
                                                 the experiment if one is set

        flags
          --full     print all tables, the numbers behind the verdicts, setup and limitations
          --strict   exit with code 1 if a premise does not hold or a claim fails
    """,
    "status": """
        usage: posenc status EXPERIMENT | experiment=NAME | name=NAME [FILTER=value ...]
                             [--json | --watch]
               posenc status run=PATH [name=NAME | experiment=NAME] [--json | --watch]

        Shows every planned run: state, progress, time left, last error, and the command that
        finishes the experiment. EXPERIMENT is the name of a folder in outputs/.

          posenc status experiment=quickstart
          posenc status name=scratch encoding=rope,alibi --watch

        keys
          encoding, train_length, seed           filters: the runs with one of these values
          run                                    a run: a path or a unique prefix of its name, in
                                                 the experiment if one is set

        flags
          --json     print each run's status, seconds left and the command to finish it
          --watch    refresh every second until all runs have finished or failed, or Ctrl-C
    """,
    "clean": """
        usage: posenc clean run=PATH[,PATH...] [--yes]
               posenc clean name=NAME | experiment=NAME [size=SIZE] state=STATE[,STATE...] [--yes]

        Lists the selected runs and their sizes. With --yes, deletes their directories, their
        offline W&B files and their entries in the plan. Runs in progress cannot be deleted.

          posenc clean run=outputs/scratch/rope-L256-s1-0c1d2e3f
          posenc clean name=scratch state=failed,interrupted --yes

        keys
          run                                    run directories
          name, experiment, size, outputs_dir    an experiment's folder
          state                                  pending, interrupted, failed or finished
    """,
}
