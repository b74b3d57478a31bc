"""DAPE V2: DAPE with convolutions over the keys (Zheng et al. 2024, arXiv:2410.04798).

    score(i, j) = x + B + f([x ; B]),   x [H] = q_i . k_j / sqrt(d),   B [H] the static bias

as in DAPE, but f is Conv(2H, mlp_width), LeakyReLU(0.01), Conv(mlp_width, H). The kernels cover
`kernel_size` keys around j. This follows the authors' code (chuanyang-Zheng/DAPE,
megatron/model/positional_embeddings.py) and PyTorch's initialization. The inputs at keys after
the query are 0, so that f does not see later tokens; the hidden units at these keys are not 0. In
the authors' code, the hidden units after the last token of the sequence are 0, so the outputs of
the last queries depend on how many tokens follow them. Here, every query gets the result that the
authors' code gives for a query followed by at least floor(kernel_size / 2) tokens.
"""

from torch import Tensor
from torch.nn.functional import conv2d, leaky_relu, pad

from posenc.encodings.base import Geometry
from posenc.encodings.dape import Dape, linear
from posenc.encodings.wrapper import EncodingFactory


class DapeV2(Dape):
    """DAPE whose correction of a score also depends on the scores of neighboring keys."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        mlp_width: int = 32,
        kernel_size: int = 3,
    ) -> None:
        super().__init__(geometry, inner=inner, mlp_width=mlp_width)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size={kernel_size} must be odd and positive")
        layers, heads, self.radius = geometry.layers, geometry.heads, kernel_size // 2
        # [layers, out_channels, in_channels * kernel_size]
        self.first_weight, self.first_offset = linear(layers, 2 * heads * kernel_size, mlp_width)
        self.second_weight, self.second_offset = linear(layers, mlp_width * kernel_size, heads)

    def content_lookback(self) -> int:
        return 2 * self.radius

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        bias, inputs = self.bias_and_inputs(q, k, distance, pos_q)
        inputs = inputs.tril(inputs.shape[-1] - inputs.shape[-2])
        first, a, second, b = (
            p[self.layer].to(inputs.dtype)
            for p in (self.first_weight, self.first_offset, self.second_weight, self.second_offset)
        )
        # The second convolution also reads the `radius` hidden units after the last key.
        hidden = self._convolve(pad(inputs, (self.radius, 2 * self.radius)), first, a)
        return bias + self._convolve(pad(leaky_relu(hidden, 0.01), (self.radius, 0)), second, b)

    def _convolve(self, inputs: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
        """Return the convolution of [B, in, R, K] over K, without padding."""
        kernel = weight.unflatten(-1, (inputs.shape[1], 1, 2 * self.radius + 1))
        return conv2d(inputs, kernel, offset)
