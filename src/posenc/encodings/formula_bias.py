"""Base class for biases given by a formula of the distance with a few coefficients per head."""

from abc import ABC, abstractmethod

from torch import Tensor

from posenc.encodings.base import Encoding


class FormulaBias(Encoding, ABC):
    """Defines `bias` by a formula that kernels can also evaluate for each score."""

    @abstractmethod
    def coefficients(self, like: Tensor) -> tuple[Tensor, ...]:
        """Return the coefficients of the formula, each [H], with the dtype and device of `like`."""

    @staticmethod
    @abstractmethod
    def formula(distance: Tensor, *coefficients: Tensor) -> Tensor:
        """Return the bias at a distance (query minus key), given the coefficients of its head.

        Only elementwise operations are allowed; coefficients and distances broadcast.
        """

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return self.formula(distance, *(values[head] for values in self.coefficients(distance)))
