"""Labels of runs: the encoding, and the settings in which the runs of a folder differ."""

from types import SimpleNamespace
from typing import Any

import pytest

from posenc.config.paths import options
from posenc.report.run_labels import format_setting, label_notes, natural_key, run_labels


def test_runs_that_differ_only_in_their_encoding_are_labeled_with_its_name(
    fabricate: SimpleNamespace,
) -> None:
    configs = [fabricate.config("alibi", 64, 1), fabricate.config("rope", 64, 1)]
    assert run_labels(configs) == ["alibi", "rope"]


def test_seeds_and_training_lengths_share_a_label(fabricate: SimpleNamespace) -> None:
    configs = [fabricate.config("rope", length, seed) for length in (64, 128) for seed in (1, 2)]
    assert run_labels(configs) == ["rope"] * 4


def test_settings_are_named_only_for_an_encoding_that_has_several(
    fabricate: SimpleNamespace,
) -> None:
    bases = [
        fabricate.config("rope", 64, 1, encoding={"spectrum": {"base": base}})
        for base in (100, 500000.0)
    ]
    labels = run_labels([*bases, fabricate.config("sinusoidal", 64, 1)])
    assert labels == ["rope base=100", "rope base=500000", "sinusoidal"]


def test_settings_with_the_same_last_part_have_their_full_path(fabricate: SimpleNamespace) -> None:
    configs = [
        fabricate.config("rope", 64, 1, encoding={"low": {"base": low}, "high": {"base": high}})
        for low, high in ((1, 3), (2, 4))
    ]
    assert run_labels(configs) == [
        "rope encoding.low.base=1 encoding.high.base=3",
        "rope encoding.low.base=2 encoding.high.base=4",
    ]


def test_a_subgroup_is_named_instead_of_its_parameters(fabricate: SimpleNamespace) -> None:
    configs = []
    for spectrum, parameters in (("geometric", {"base": 10000}), ("yarn", {"factor": 4})):
        config = fabricate.config("rope", 64, 1, encoding={"spectrum": parameters})
        config["choices"] = config["choices"] | {"encoding/spectrum": spectrum}
        configs.append(config)
    assert run_labels(configs) == ["rope spectrum=geometric", "rope spectrum=yarn"]


def test_runs_with_another_class_have_another_label_even_with_another_seed(
    fabricate: SimpleNamespace,
) -> None:
    other = "posenc.encodings.stick_breaking.StickBreaking"
    configs = [
        fabricate.config("nope", 64, 1),
        fabricate.config("nope", 64, 2, encoding={"_target_": other}),
    ]
    first, second = run_labels(configs)
    assert first != second and second == f"nope _target_={other}"


def test_a_setting_that_only_one_run_has_is_part_of_its_label(fabricate: SimpleNamespace) -> None:
    configs = [fabricate.config("rope", 64, seed) for seed in (1, 2)]
    configs[1]["optimizer"] = {**configs[1]["optimizer"], "momentum": 0.9}
    assert run_labels(configs) == ["rope", "rope momentum=0.9"]


def test_runs_that_differ_in_a_setting_without_a_label_are_not_averaged(
    fabricate: SimpleNamespace,
) -> None:
    configs = [fabricate.config("rope", 64, seed) for seed in (1, 2)]
    configs[1]["model"] = {**configs[1]["model"], "_partial_": True}
    hashes = [config["planned"]["hash"] for config in configs]
    assert run_labels(configs) == [f"rope #{hash_}" for hash_ in hashes]


def test_options_of_subgroups_in_labels_are_described() -> None:
    labels = ["rope spectrum=geometric_d1", "sinusoidal encoding.spectrum=geometric_d1 base=100"]
    description = options("encoding/spectrum")["geometric_d1"]
    assert label_notes(labels) == [
        f"spectrum=geometric_d1: {description}",
        f"encoding.spectrum=geometric_d1: {description}",
    ]
    assert not label_notes(["rope base=100", "mine spectrum=of_my_own"])


def test_runs_with_different_callbacks_have_different_labels(fabricate: SimpleNamespace) -> None:
    configs = [fabricate.config("rope", 64, 1) for _ in range(3)]
    configs[1]["callbacks"] = {"early_stopping": {"patience": 3}}
    configs[2]["callbacks"] = {"early_stopping": {"patience": 5}}
    assert run_labels(configs) == [
        "rope callbacks=none",
        "rope callbacks=[early_stopping] patience=3",
        "rope callbacks=[early_stopping] patience=5",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tokens": 3_000_000}, "tokens=3000000"),
        ({"precision": "bf16"}, "precision=bf16"),
        ({"optimizer": {"_target_": "adamw", "learning_rate": 0.01}}, "learning_rate=0.01"),
        ({"gradient_clip": None}, "gradient_clip=none"),
    ],
)
def test_other_settings_are_named_if_they_vary(
    fabricate: SimpleNamespace, changes: dict[str, Any], expected: str
) -> None:
    configs = [fabricate.config("rope", 64, 1), fabricate.config("rope", 64, 1, **changes)]
    first, second = run_labels(configs)
    assert second == f"rope {expected}"
    assert first.startswith(f"rope {expected.partition('=')[0]}=")
    assert first != second


def test_a_setting_that_varies_with_the_training_length_is_not_named(
    fabricate: SimpleNamespace,
) -> None:
    configs = [fabricate.config("rope", 64, 1), fabricate.config("rope", 128, 1, tokens=9)]
    assert run_labels(configs) == ["rope", "rope"]


def test_training_data_with_the_same_name_but_different_content_have_their_fingerprints(
    fabricate: SimpleNamespace,
) -> None:
    configs = [fabricate.config("rope", 64, 1), fabricate.config("rope", 64, 1)]
    configs[1]["planned"] = configs[1]["planned"] | {"fingerprint": "0ddba11cafe"}
    assert run_labels(configs) == ["rope fingerprint=f00dfeed", "rope fingerprint=0ddba11c"]


def test_runs_that_differ_in_no_named_setting_have_their_hashes(
    fabricate: SimpleNamespace,
) -> None:
    configs = [fabricate.config("rope", 64, 1), fabricate.config("rope", 64, 1, sources="other")]
    hashes = [config["planned"]["hash"] for config in configs]
    assert run_labels(configs) == [f"rope #{digest}" for digest in hashes]


@pytest.mark.parametrize(
    ("value", "text"),
    [(500000.0, "500000"), (1e-5, "1e-05"), (0.25, "0.25"), (True, "true"), (None, "none"),
     ([0.9, 1], "[0.9,1]"), ("bf16", "bf16")],
)  # fmt: skip
def test_a_setting_is_written_as_on_the_command_line(value: Any, text: str) -> None:
    assert format_setting(value) == text


def test_labels_are_sorted_by_their_numbers() -> None:
    labels = ["rope base=10000", "alibi", "rope base=100", "rope base=2000"]
    assert sorted(labels, key=natural_key) == [
        "alibi",
        "rope base=100",
        "rope base=2000",
        "rope base=10000",
    ]


def test_runs_of_an_edited_class_have_labels_of_their_own(fabricate: SimpleNamespace) -> None:
    configs = [fabricate.config("alibi", 64, seed) for seed in (1, 2)]
    for config, sources in zip(configs, ("12ab", "34cd"), strict=True):
        config["planned"] |= {"sources": sources}
    assert run_labels(configs) == ["alibi sources=12ab", "alibi sources=34cd"]


def test_runs_that_use_different_classes_are_not_labeled_with_the_sources_of_their_code(
    fabricate: SimpleNamespace,
) -> None:
    configs = [fabricate.config(name, 64, 1) for name in ("own_bias", "alibi", "alibi")]
    configs[0]["planned"] |= {"sources": "12ab"}
    configs[2] |= {"optimizer": {"_target_": "mine.Optimizer"}}
    configs[2]["choices"] = configs[2]["choices"] | {"optimizer": "mine"}
    configs[2]["planned"] = configs[2]["planned"] | {"sources": "34cd"}
    assert run_labels(configs) == [
        "own_bias optimizer=adamw",
        "alibi optimizer=adamw",
        "alibi optimizer=mine",
    ]


def test_only_edited_code_is_labeled_with_its_sources(fabricate: SimpleNamespace) -> None:
    """The digest of a component's code also covers its settings."""
    rates = {1: "12ab", 2: "34cd", 3: "56ef"}
    configs = [fabricate.config("own_bias", 64, seed) for seed in rates]
    for config, (rate, sources) in zip(configs, rates.items(), strict=True):
        config["encoding"] = {"_target_": "mine.Bias", "rate": rate}
        config["planned"] = config["planned"] | {"sources": sources}
    assert run_labels(configs) == [f"own_bias rate={rate}" for rate in rates]
    configs[1]["encoding"]["rate"] = 1
    labels = ["own_bias rate=1 sources=12ab", "own_bias rate=1 sources=34cd", "own_bias rate=3"]
    assert run_labels(configs) == labels


def test_callbacks_of_different_classes_are_distinguished_for_all_seeds(
    fabricate: SimpleNamespace,
) -> None:
    configs = [fabricate.config("rope", 64, seed) for seed in (1, 2, 1, 2)]
    for config, target in zip(configs, ("a.A", "a.A", "a.B", "a.B"), strict=True):
        config["callbacks"] = {"mine": {"_target_": target}}
        config["planned"] = config["planned"] | {"sources": target}
    expected = ["rope _target_=a.A"] * 2 + ["rope _target_=a.B"] * 2
    assert run_labels(configs) == expected
