"""A very small run and the short text that it is evaluated on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan

TEXT_BYTES = 397
"""Size of the text; its 398 tokens (with end of text) are not a multiple of any length here."""


@pytest.fixture(scope="session")
def short_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """RoPE trained for 40 steps at 24 tokens, and evaluated at that length."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "short.txt").write_bytes((corpus / "validation.txt").read_bytes()[:TEXT_BYTES])
    model = {"width": 32, "layers": 2, "heads": 4, "feed_forward": 64}
    overrides = [
        *(f"model.{name}={value}" for name, value in model.items()),
        "encoding=rope",
        "train_length=24",
        "tokens=7680",
        "batch_tokens=192",
        "data=text",
        f"data.train={corpus}/train.txt",
        f"data.validation={folder}/short.txt",
        "tokenizer=byte",
        "validation.every_tokens=null",
        "trainer=cpu",
        "logger=none",
        "evaluation.lengths=[24]",
        "evaluation.protocols=[nonoverlapping]",
        f"outputs_dir={folder}/outputs",
    ]
    run = plan([overrides], [], "test", print)[0].run
    assert job([str(run.path)]) == FINISHED, run.status().error
    return run


@pytest.fixture
def short_tokens(short_run: RunDirectory) -> Tensor:
    """The tokens [398] that the run is evaluated on, read from the text file without posenc."""
    file = short_run.config().data.validation
    text = np.frombuffer(Path(file).read_bytes(), dtype=np.uint8).astype(np.int64)
    return torch.cat([torch.from_numpy(text), torch.tensor([256])])  # 256 is end of text
