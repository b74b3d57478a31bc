"""The help messages of the commands that are not in `help_runs`."""

HELP = {
    "plan": """
        usage: posenc plan [key=value ...] [machine=NAME] [--config-dir DIR] [--json]

        Takes the keys of posenc train, and estimates the parameters, memory per device, FLOPs and
        time of every run. Nothing is trained, downloaded or prepared.

          posenc plan experiment=alibi_extrapolation
          posenc plan experiment=alibi_extrapolation size=paper devices=8 machine=h100
          posenc plan encoding=alibi,t5 model=gpt2_124m train_length=1024 machine=a100 \\
              machine.utilization=0.4

        keys in addition to those of train
          machine               this machine (default; each model is timed for a second), or a GPU,
                                estimated from its data sheet
          machine.utilization   fraction of the data sheet's FLOP/s that runs reach

        flags
          --json             print JSON, in bytes, FLOPs and seconds
    """,
    "sync": """
        usage: posenc sync EXPERIMENT | experiment=NAME [size=SIZE] | name=NAME [--offline]

        Uploads an experiment's runs from their run directories, and the figures of its report.
        EXPERIMENT is the name of a folder in outputs/. Needs an API key (wandb login or
        WANDB_API_KEY). Skips runs in progress; repeating the command uploads nothing twice. With
        --offline, recreates missing or incomplete offline W&B files instead, which needs no API
        key.

          posenc sync quickstart
    """,
    "dashboard": """
        usage: posenc dashboard EXPERIMENT | experiment=NAME [size=SIZE] | name=NAME [--spec]

        Creates or updates a W&B workspace and a W&B report of an experiment. They show the runs
        that were logged online or uploaded by posenc sync.

          posenc dashboard quickstart --spec

        flags
          --spec   only write both as JSON to outputs/NAME/dashboard.json; needs no network
    """,
    "tune": """
        usage: posenc tune key=interval(LOW,HIGH) [key=value ...] [trials=10] [--config-dir DIR]

        Searches intervals for the lowest validation loss with Optuna (install the optuna extra).
        Each job (for example, each encoding) has its own search. Takes the keys of posenc train.
        The same command resumes an interrupted search or, with more trials, continues a finished
        one.

          posenc tune encoding=alibi,rope trials=12 \\
              optimizer.learning_rate='tag(log,interval(1e-3,1e-1))'

        keys
          trials                                 the number of trials of each job (default: 10)
    """,
    "search-factors": """
        usage: posenc search-factors run=PATH length=TOKENS [key=value ...]

        Searches for the LongRoPE factors, one per frequency of the run's rotary encoding, that
        minimize the loss in windows of TOKENS tokens, and writes them as a swap to PATH/longrope.
        The same command resumes an interrupted search; more generations continue a finished one.

          posenc search-factors run=outputs/scratch/rope-L256-s1 length=1024 generations=10

        keys
          run, length            a run directory; the window length, above the training length
          split                  data split to search on (default: train); must differ from the
                                 run's evaluation split
          tokens, batch_tokens   tokens scored for each candidate; tokens per forward pass
          generations, population, parents, mutations, crossovers     size of the search
          seed                   the same seed gives the same factors
          modules                trusted modules that the run's configuration may import
    """,
    "wandb-sweep": """
        usage: posenc wandb-sweep experiment=NAME [size=SIZE] [key=value ...]

        Writes the experiment's jobs as W&B grid sweeps, usually one per grid, to
        outputs/NAME/wandb-sweep-1.yaml and so on, and prints the commands that register them. Takes
        the keys of posenc train.

          posenc wandb-sweep experiment=alibi_extrapolation seed=1,2,3

        With an interval, writes a search for each job instead, such as a search over learning rates
        for each encoding. The metric is the validation loss.

          posenc wandb-sweep encoding=alibi,rope method=bayes min_iter=3 \\
              optimizer.learning_rate='tag(log,interval(1e-3,1e-1))'

        keys
          method                                 bayes (default) or random
          min_iter                               Hyperband may stop poor trials after this many
                                                 validations; default: do not stop trials
    """,
    "check": """
        usage: posenc check [encoding=NAME] [key=value ...] [--config-dir DIR]

        Tests the properties that encodings should have, on very small models: causality, shift
        invariance, precision at position 16,000, whether every parameter has an effect, and others.
        Each result is pass, known limitation, hint (advice) or fail (exit code 1). Without
        encoding=NAME, checks all encodings.

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
        measures peak memory in separate processes. Comma-separated values define variants. Prints
        tables and writes index.html and bench.json, csv, md, png and svg files to
        outputs/NAME/bench/.

          posenc bench encoding=nope,rope,alibi kernel=auto,reference train_length=512,1024
          posenc bench encoding=alibi,fox passes='[step]' model=gpt2_124m precision=bf16
          posenc bench experiment=alibi_cost

        keys
          encoding, encoding/spectrum, model, optimizer, trainer, experiment, size  config groups
          kernel, train_length                  attention kernel; context length
          passes                                default: [forward,step]; attention_forward and
                                                attention_step measure the attention of one layer
          batch_tokens, micro_batch_tokens      tokens per pass; tokens per micro-batch
          vocab_size, precision, compile, gradient_clip
          threads, rounds                       CPU threads; timed rounds, after a warm-up
          name, outputs_dir                     results go to outputs_dir/name/bench
    """,
    "inspect": """
        usage: posenc inspect encoding=NAME|all [key=value ...] [--config-dir DIR]
               posenc inspect run=PATH | experiment=NAME | name=NAME [FILTER=value ...]

        Measures properties of encodings side by side, without training, or analyzes the attention
        of a trained model. Prints tables and writes index.html, csv, md, png and svg files to
        outputs/NAME/inspect/ or to inspect/ in the run directory.

          posenc inspect encoding=sinusoidal,alibi,rope encoding.spectrum.base=1e4
          posenc inspect encoding=all
          posenc inspect run=outputs/quickstart/alibi-L64-s1-3f9c2a1b

        keys
          encoding, encoding/spectrum, model    config groups; model.width, .heads, .layers
          train_length                          L; extrapolation is measured at 4L
          seed                                  random seed of the encoding's parameters
          run                                   a run directory, or a unique prefix of its name
          experiment, size, name                with run: search only this experiment for it;
                                                without run: inspect one of its finished runs
          encoding, train_length, seed          with experiment, or a name that has runs: filters
                                                that select one run
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
