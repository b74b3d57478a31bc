"""Which settings change the hash that names a run."""

import pytest

from compositions import composed
from posenc.config.identity import identity, run_hash


def digest(*overrides: str, fingerprint: str = "f00d") -> str:
    config = composed("encoding=rope", *overrides)
    return run_hash(identity(config, fingerprint))


@pytest.mark.parametrize(
    "override",
    [
        "encoding=alibi",
        "encoding.spectrum.base=5e5",
        "model.width=256",
        "train_length=512",
        "tokens=1e6",
        "batch_tokens=8192",
        "optimizer.learning_rate=1e-3",
        "schedule=constant",
        "gradient_clip=null",
        "precision=bf16",
        "seed=2",
    ],
)
def test_a_setting_that_changes_results_changes_the_hash(override: str) -> None:
    assert digest(override) != digest()


@pytest.mark.parametrize(
    "override",
    [
        "evaluation.lengths=[7]",
        "logger=none",
        "outputs_dir=elsewhere",
        "name=other",
        "retry=true",
        "kernel=reference",
        "trainer=cpu",
        "checkpoint.every_seconds=1",
        "hydra.launcher.jobs=2",
    ],
)
def test_a_setting_that_cannot_change_results_keeps_the_hash(override: str) -> None:
    assert digest(override) == digest()


def test_the_data_fingerprint_changes_the_hash() -> None:
    assert digest(fingerprint="beef") != digest()


def test_notations_of_the_same_number_have_one_hash() -> None:
    assert digest("tokens=5e6") == digest("tokens=5000000") == digest("tokens=5000000.0")
    assert digest("encoding.spectrum.base=1e4") == digest("encoding.spectrum.base=10000")
