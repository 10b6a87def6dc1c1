"""The constants of an affine map at infinite width, and whether features move."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from largen.errors import NoTheory
from largen.parameterizations import CanonicalForm, Parameterization
from largen.programs import Weight

HALF = Fraction(1, 2)


def check_features_move(param: Parameterization, d: Fraction) -> None:
    """Check that the output is divided by √N beyond the kernel scaling, N^d."""
    if d != HALF:
        raise NoTheory(
            f"{param} divides the output by N^{d} beyond the kernel scaling; features move at "
            "order one, and the mean-field limit applies, for N^(1/2) only. The kernel limit is "
            "the theory of d = 0."
        )


@dataclass(frozen=True)
class MapConstants:
    """The constants of an affine map y = σ V x + σ_b b."""

    # std, rate: σ, and ρ, the learning rate of the weights relative to η₀.
    std: float = 1.0
    rate: float = 1.0
    # bias_std, bias_rate: σ_b and ρ of the bias; 0 if there is none.
    bias_std: float = 0.0
    bias_rate: float = 0.0

    @classmethod
    def of(cls, form: CanonicalForm, weight: Weight) -> MapConstants:
        """Return the constants of a weight and its bias."""
        weight_form, bias = (
            form.weights.get(f"{weight.name}.{kind}") for kind in ("weight", "bias")
        )
        assert weight_form is not None
        if bias is None:
            return MapConstants(weight_form.std, weight_form.rate)
        return MapConstants(weight_form.std, weight_form.rate, bias.std, bias.rate)

    @property
    def kernel_rate(self) -> float:
        """ρσ², the prefactor of the weights' contribution to the tangent kernel."""
        return self.rate * self.std**2

    @property
    def bias_kernel_rate(self) -> float:
        """ρσ_b², the prefactor of the bias's contribution to the tangent kernel."""
        return self.bias_rate * self.bias_std**2
