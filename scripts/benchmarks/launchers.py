"""Throughput of `pool` with two workers, of Hydra's joblib launcher, and of one after another.

    pip install --no-deps --target DIR hydra-joblib-launcher==1.2.0 joblib
    python scripts/benchmarks/launchers.py [--joblib DIR] [--rounds 3] [key=value ...]

Each round trains the same twelve runs by each way in turn, into folders of its own, and prints the
whole wall time: imports, planning and evaluation included.
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

RUNS = [
    *("encoding=nope,alibi,rope,t5", "seed=1,2,3", "name=sweep", "trainer=cpu", "logger=none"),
    *("data=task_copy", "data.examples=40", "evaluation.factors=[1,2]", "validation.tokens=2000"),
    *("train_length=64", "tokens=1e5", "batch_tokens=2048"),
]
POOL = [sys.executable, "-m", "posenc", "train"]
JOBLIB = [sys.executable, __file__, "--app", "--multirun", "hydra/sweeper=basic"]
JOBLIB += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.output_subdir=null"]
WAYS = {
    "pool, two at a time": [*POOL, "hydra.launcher.jobs=2"],
    "one after another": [*POOL, "hydra.launcher.jobs=1"],
    "joblib, two at a time": JOBLIB,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--joblib", type=Path, help="where hydra-joblib-launcher is installed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*", default=[])
    options = parser.parse_intermixed_args()
    ways = dict(list(WAYS.items())[: 3 if options.joblib else 2])
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(options.rounds):
        for name in list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]:
            seconds[name].append(timed(ways[name], options.overrides, options.joblib))
            print(f"round {number + 1}: {name}: {seconds[name][-1]:.1f} s", flush=True)
    for name, measured in seconds.items():
        print(f"{name:22} median {median(measured):6.1f} s of {len(measured)}")


def timed(way: list[str], overrides: list[str], joblib: Path | None) -> float:
    """Seconds of one sweep into an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*way, *RUNS, *overrides, f"outputs_dir={folder}/outputs"]
        words += [f"hydra.sweep.dir={folder}/hydra"] if way is JOBLIB else []
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(joblib or "")]))
        jobs = (
            {**MALLOC_VARIABLES, **thread_variables(1)} if way is JOBLIB else {}
        )  # as the pool's have
        began = time.monotonic()
        subprocess.run(
            words,
            check=True,
            env=os.environ | {"PYTHONPATH": path} | jobs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        took = time.monotonic() - began
        ended = list(Path(folder).glob("outputs/sweep/*/evaluation.json"))
        assert len(ended) == 12, ended
        return took


def app() -> None:
    """What Hydra's own launchers run: plan one job and see it to its end in this process."""
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
