"""What a variant is called: its encoding, and what else was asked of it and not of all others."""

from collections.abc import Sequence

OF_THE_TABLE = ("encoding", "kernel", "train_length", "passes")
"""Keys that have a column of their own."""


def labels(encodings: Sequence[str], jobs: Sequence[Sequence[str]]) -> list[str]:
    """A label for each job from its encoding's name and its overrides.

    An override is named where jobs of the same encoding differ in its key:
    `rope spectrum.base=500000` beside `rope spectrum.base=10000`, but `alibi` alone.
    """
    given = [
        {key: value for key, _, value in (w.partition("=") for w in job) if key not in OF_THE_TABLE}
        for job in jobs
    ]
    pairs = list(zip(encodings, given, strict=True))

    def varies(name: str, key: str) -> bool:
        return len({settings.get(key) for other, settings in pairs if other == name}) > 1

    return [
        " ".join([name, *(_short(*item) for item in settings.items() if varies(name, item[0]))])
        for name, settings in pairs
    ]


def _short(key: str, value: str) -> str:
    return f"{key.removeprefix('encoding.').removeprefix('encoding/')}={value.removesuffix('.0')}"
