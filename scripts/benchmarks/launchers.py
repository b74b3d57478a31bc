"""Time a sweep with the pool launcher (one and two workers) and, with --joblib, Hydra's joblib.

    pip install --no-deps --target DIR hydra-joblib-launcher==1.2.0 joblib
    python scripts/benchmarks/launchers.py [--joblib DIR] [--rounds 3] [key=value ...]

Each round trains the same twelve runs with each launcher in an empty folder, and prints the
wall-clock time, which includes imports, planning and evaluation.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from posenc.runs.environment import MALLOC_VARIABLES, thread_variables

RUNS = """
encoding=nope,alibi,rope,t5 seed=1,2,3 name=sweep trainer=cpu logger=none data=task_copy
data.examples=40 evaluation.factors=[1,2] validation.tokens=2000 train_length=64 tokens=1e5
batch_tokens=2048
""".split()
POOL = [sys.executable, "-m", "posenc", "train"]
JOBLIB = [sys.executable, __file__, "--app", "--multirun", "hydra/sweeper=basic"]
JOBLIB += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.output_subdir=null"]
COMMANDS = {
    "pool, two at a time": [*POOL, "hydra.launcher.jobs=2"],
    "pool, one at a time": [*POOL, "hydra.launcher.jobs=1"],
    "joblib, two at a time": JOBLIB,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--joblib", type=Path, help="DIR; without it, joblib is not timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*", default=[])
    options = parser.parse_intermixed_args()
    commands = dict(list(COMMANDS.items())[: 3 if options.joblib else 2])
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(options.rounds):
        first = number % len(commands)  # rotate the order
        for name in [*commands][first:] + [*commands][:first]:
            seconds[name].append(time_sweep(commands[name], options.overrides, options.joblib))
            print(f"round {number + 1}: {name}: {seconds[name][-1]:.1f} s", flush=True)
    for name, measured in seconds.items():
        print(f"{name:22} median {median(measured):6.1f} s of {len(measured)}")


def time_sweep(command: list[str], overrides: list[str], joblib: Path | None) -> float:
    """Run a sweep in an empty folder and return its wall-clock time in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*command, *RUNS, *overrides, f"outputs_dir={folder}/outputs"]
        arguments += [f"hydra.sweep.dir={folder}/hydra"] if command is JOBLIB else []
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(joblib or "")]))
        # The pool launcher sets these variables for its jobs; the joblib launcher does not.
        variables = MALLOC_VARIABLES | thread_variables(1) if command is JOBLIB else {}
        started = time.monotonic()
        subprocess.run(
            arguments,
            check=True,
            env=os.environ | {"PYTHONPATH": path} | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        elapsed = time.monotonic() - started
        finished = list(Path(folder).glob("outputs/sweep/*/evaluation.json"))
        assert len(finished) == 12, finished
        return elapsed


def app() -> None:
    """Plan one job and run it in this process; Hydra's launcher calls this application."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig

    from posenc.config.paths import conf_dir
    from posenc.jobs.job import main as job
    from posenc.sweeps.plan import plan

    def task(config: DictConfig) -> None:
        overrides = list(HydraConfig.get().overrides.task)
        (planned,) = plan([overrides], [], "", lambda line: None)
        assert job([str(planned.run.path)]) == 0

    sys.argv.remove("--app")
    hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="train")(task)()


if __name__ == "__main__":
    app() if "--app" in sys.argv else main()
