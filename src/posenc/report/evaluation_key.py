"""The key of an evaluation row, and the names of protocols and swaps in a report."""

from dataclasses import dataclass

PROTOCOL_DESCRIPTIONS = {
    "nonoverlapping": (
        "non-overlapping windows",
        "the text is split into consecutive windows of the evaluation length; every token is scored"
        " once, with the preceding tokens of its window as context",
    ),
    "by_position": (
        "by position",
        "non-overlapping windows, with losses averaged at each position in the window",
    ),
    "sliding": (
        "sliding window",
        "a window of the evaluation length advances by `stride` tokens and scores its last `stride`"
        " tokens (the first window scores all of its tokens); every token is scored once",
    ),
    "last_k": (
        "last tokens of each window",
        "the text is split into consecutive windows of the evaluation length; the last `stride`"
        " tokens of each window are scored",
    ),
    "fixed_target": (
        "fixed targets",
        "the same tokens at every length: spans of `stride` tokens, each at the end of a window",
    ),
    "tasks": (
        "task answers",
        "sequences of the largest size that fits in the evaluation length; each answer token is"
        " scored, given the correct preceding answer tokens",
    ),
}
"""Protocol -> its name and its description."""
SWAP_NAMES = {
    "pi": "position interpolation (PI)",
    "ntk": "NTK-aware scaling",
    "yarn": "YaRN",
    "dynamic_ntk": "dynamic NTK",
    "llama3": "Llama 3 scaling",
    "log_n": "log-n scaling",
    "temperature": "attention temperature",
    "window": "an attention window",
}


@dataclass(frozen=True)
class EvaluationKey:
    """The fields that identify an evaluation row, except for its length."""

    data: str
    data_name: str
    split: str
    protocol: str
    stride: int | None
    swap: str | None

    def __str__(self) -> str:
        protocol, _ = PROTOCOL_DESCRIPTIONS.get(self.protocol, (self.protocol, ""))
        stride = f", stride {self.stride}" if self.stride is not None else ""
        name, *settings = (self.swap or "").split(" ")
        swap = f", with {' '.join([SWAP_NAMES.get(name, name), *settings])}" if self.swap else ""
        return f"{self.data_name} {self.split}, {protocol}{stride}{swap}"
