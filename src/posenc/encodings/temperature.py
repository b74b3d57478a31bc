"""Attention temperatures: query i is scaled by tau, a function of the number of tokens n = i + 1.

    log_n       tau = max(1, ln n / ln n0)                (Su 2021, kexue.fm/archives/8823)
    ssmax       tau = s ln n                              (Nakanishi 2025, arXiv:2501.19399)
    llama4      tau = 1 + s ln(1 + floor(n / n0))         (Hugging Face's modeling_llama4.py)
    inkling     tau = 1 + s ln max(1, n / n0)             (Hugging Face's modeling_inkling.py)
    head_scale  tau = s                                   (Wang et al. 2024, arXiv:2404.12224)

n0 is the training length unless `start` is given. s is 0.43 (ssmax, as in the paper's figure 1),
0.1 (llama4 and inkling) or 1 (head_scale) by default. With `trainable`, s [layers, H] is learned,
starting from this value. A larger tau sharpens attention: a softmax temperature would be 1 / tau.

n counts all tokens up to the query, including tokens outside a window. Only q is scaled, so a bias
of the inner encoding is scaled only if it is computed from the rotated query, as Shaw's is. With
ssmax, tau of the first query is 0, which changes nothing unless there is a sink, because this query
has only one key. Llama 4 and Inkling scale the queries of some layers only; to do so, wrap only one
of the two encodings of Interleave. Shapes: q, k [B, H, T, d], in token order.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry
from posenc.encodings.wrapper import EncodingFactory, Wrapper

Rule = Literal["log_n", "ssmax", "llama4", "inkling", "head_scale"]
DEFAULT_SCALES: dict[Rule, float] = {"ssmax": 0.43, "llama4": 0.1, "inkling": 0.1, "head_scale": 1}
RULES_WITH_START: tuple[Rule, ...] = ("log_n", "llama4", "inkling")


class Temperature(Wrapper):
    """The inner encoding, with queries scaled by one of the rules above."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        rule: Rule = "ssmax",
        scale: float | None = None,
        start: int | None = None,
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry, inner)
        _check_rule(rule, scale, start, trainable)
        self.rule: Rule = rule
        self.start = geometry.train_length if start is None else start
        if rule == "log_n" and self.start < 2:
            raise ValueError(
                f"start={self.start} (by default, train_length) must be at least 2 for rule=log_n,"
                f" because its logarithm is a divisor"
            )
        self.scale = DEFAULT_SCALES.get(rule, 1.0) if scale is None else scale
        initial = torch.full((geometry.layers, geometry.heads), float(self.scale))
        self.scales = nn.Parameter(initial) if trainable else None

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self.active.rotate(x, q, k, pos)
        token_counts = torch.arange(1, q.shape[2] + 1, device=q.device, dtype=torch.float64)
        return (q * self.temperature(token_counts)[..., None]).to(q.dtype), k

    def temperature(self, n: Tensor) -> Tensor:
        """Return tau, [T] or, if learnable, [H, T], for token counts n [T] in float64."""
        s: Tensor | float = self.scale
        if self.scales is not None:
            s = self.scales[self.layer].to(n.dtype)[:, None]
        if self.rule == "log_n":
            return log_n_temperature(n, self.start)
        if self.rule == "ssmax":
            return s * n.log()
        if self.rule == "llama4":
            return 1 + s * (n / self.start).floor().log1p()
        if self.rule == "inkling":
            return log_temperature(n, self.start, s)
        return s * torch.ones_like(n)


def log_n_temperature(n: Tensor, start: int) -> Tensor:
    """Return the temperature of log-n scaling for token counts n."""
    return (n.log() / math.log(start)).clamp(min=1)


def log_temperature(n: Tensor, start: int, scale: Tensor | float) -> Tensor:
    """Return Inkling's temperature for token counts n."""
    return 1 + scale * (n / start).clamp(min=1).log()


def _check_rule(rule: Rule, scale: float | None, start: int | None, trainable: bool) -> None:
    """Raise ValueError unless the rule exists and every parameter that is set has an effect."""
    if rule not in get_args(Rule):
        raise ValueError(f"rule={rule} must be one of {', '.join(get_args(Rule))}")
    if rule not in DEFAULT_SCALES and (scale is not None or trainable):
        raise ValueError(
            f"rule={rule} has no scale: set scale=null and trainable=false, or choose rule=inkling"
        )
    if rule not in RULES_WITH_START and start is not None:
        raise ValueError(f"start={start} has no effect with rule={rule}; set start=null")
    if start is not None and start < 1:
        raise ValueError(f"start={start} must be at least 1 token")
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale={scale} must be positive and finite")
    if rule == "head_scale" and not trainable and scale in (None, 1):
        raise ValueError("rule=head_scale with scale=1 has no effect; set scale or trainable=true")
