"""Kernels and observables of networks of finite width at initialisation, to order 1/width."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import as_array, known
from largen.bibliography import cites
from largen.errors import InvalidInput, NotGaussian, NoTheory, NumericalFailure
from largen.finite_width.averages import pairs_of
from largen.finite_width.checks import check_alive, checked_inputs
from largen.finite_width.next_order import SMALL, variance_at_next_order
from largen.finite_width.observables import Expectation, average, singular
from largen.finite_width.recursion import Cumulants, start, through
from largen.finite_width.residual import kernel_through
from largen.finite_width.sized_network import SizedNetwork, sized_network
from largen.parameterizations import Parameterization
from largen.progress import Report, check_progress, reporter
from largen.results import Result, with_labels

if TYPE_CHECKING:
    import xarray

MOST_INPUTS = 8  # inputs at most: averages are taken over all quadruples of them
MOST_IN_STREAMS = 2  # with residual branches
LARGE_EXCESS = 0.05  # smallest excess kurtosis of the first preactivations of which to warn


@cites("bahri2022les", "roberts2022principles")
@dataclass(frozen=True, repr=False)
class WidthCorrections(Result):
    """Statistics of one output over initialisations; made by :func:`width_corrections`.

    All numbers are in absolute units: they include the powers of 1/width. P inputs have
    M = P(P + 1)/2 pairs, in the order of :attr:`pairs`.

    Attributes
    ----------
    pairs
        Inputs α ≤ β of every pair, (M, 2).
    widths
        Numbers of neurons of the hidden layers.
    kernel, kernel_shift
        The NNGP kernel K, and E[z_α z_β] − K to order 1/n, (P, P).
    kernel_covariance
        V_ab = Cov(S_a, S_b) of the covariance S of the outputs given the last hidden layer,
        (M, M): the connected four-point function of two different outputs.
    kernel_third_cumulant
        T_abc of S, of order 1/n², (M, M, M); None for more than four inputs, for nearly
        coincident ones, and with residual branches.
    ntk, ntk_shift
        Θ at infinite width and E[Θ̂] − Θ to order 1/n, (P, P). With residual branches all
        attributes of the NTK are None: :func:`largen.finite_width.width_fluctuations` samples its
        fluctuations, and has its shift.
    ntk_covariance
        Cov(Θ̂_a, Θ̂_b) = A + B_{αβγδ} + B_{αβδγ} of one output, (M, M), for Gaussian weights.
    ntk_kernel_covariance
        Cov(Θ̂_a, z_γ z_δ) = D + F_{αγβδ} + F_{αδβγ} of one output, (M, M), for Gaussian weights.
    between_outputs
        A = Cov(Θ̂_ii, Θ̂_jj) of two outputs i ≠ j, (M, M).
    kernel_between_outputs
        D = Cov(Θ̂_ii, z_j z_j) of two outputs, (M, M).
    off_diagonal
        B_{αβγδ} = E[Θ̂_ij(α, β) Θ̂_ij(γ, δ)] of two outputs, (P, P, P, P).
    off_diagonal_kernel
        F_{αγβδ} = E[Θ̂_ij(α, β) z_i(γ) z_j(δ)] of two outputs, over α, γ, β, δ, (P, P, P, P).
    fourth_cumulant
        What weights that are not Gaussian add to the fourth cumulant of one output,
        κσ_w⁴E[φ_αφ_β φ_γφ_δ]/n and that of residual branches, (M, M).
    next_order
        Term of order 1/n² in each input's variance of S, relative to the term of order 1/n, (P,),
        for Gaussian weights. With residual branches an estimate, V/2K², the value for deep relu
        networks.
    trusted
        Whether ``next_order`` is at most a fifth for every input.
    """

    pairs: np.ndarray
    widths: tuple[int, ...]
    kernel: np.ndarray
    kernel_shift: np.ndarray
    kernel_covariance: np.ndarray
    kernel_third_cumulant: np.ndarray | None
    ntk: np.ndarray | None
    ntk_shift: np.ndarray | None
    ntk_covariance: np.ndarray | None
    ntk_kernel_covariance: np.ndarray | None
    between_outputs: np.ndarray | None
    kernel_between_outputs: np.ndarray | None
    off_diagonal: np.ndarray | None
    off_diagonal_kernel: np.ndarray | None
    fourth_cumulant: np.ndarray
    next_order: np.ndarray
    trusted: bool

    def expectation(
        self, function: Callable[[np.ndarray], Any], inputs: Sequence[int] | None = None,
        *, neurons: int = 1,
    ) -> Expectation:  # fmt: skip
        """Return the average of a function of outputs, to order 1/width.

        Bahri and Hanin, Les Houches lectures, Theorem 4.2, for several inputs and with the shift m
        of the kernel, which the theorem omits: with g(S) = ⟨f⟩_S,

            E f = g(K) + ∂g·m + ½ ∂²g:V + O(1/n²).

        f, V and K belong to the same layer; the lectures print κ₄ of the next layer. For one output
        of weights that are not Gaussian, a third of their :attr:`fourth_cumulant` is added to V.

        Parameters
        ----------
        function
            f of outputs at the chosen inputs, (node, neurons, inputs) -> (node,). Two rules of
            different fineness must agree: lattices if f is smooth, otherwise rules whose panels end
            at up to eight fixed values of the outputs where f has a kink or a jump.
        inputs
            Indices of the chosen inputs; all by default. Neurons times inputs are at most 4.
        neurons
            Number of outputs on which f depends.

        Raises
        ------
        InvalidInput
            For too many variables, or a function of another shape.
        NoTheory
            For several outputs of weights that are not Gaussian.
        NumericalFailure
            If the kernel of these inputs is singular, f is not finite, or the two rules do not
            agree, as for a kink at the difference of two outputs.
        """
        chosen = list(range(len(self.kernel))) if inputs is None else list(inputs)
        if not chosen or len(chosen) * neurons > 4 or neurons < 1:
            raise InvalidInput(
                f"inputs: wanted neurons times inputs from 1 to 4, got {neurons} × {len(chosen)}."
            )
        if neurons > 1 and np.any(self.fourth_cumulant):
            raise NoTheory(
                "expectation: functions of several outputs are averaged over Gaussian weights; "
                "wanted neurons=1."
            )
        K = self.kernel[np.ix_(chosen, chosen)]
        if singular(K):
            raise NumericalFailure(f"the kernel of the inputs {chosen} is singular: leave one out.")
        index = {tuple(pair): n for n, pair in enumerate(self.pairs.tolist())}
        chosen_pairs = pairs_of(len(chosen))
        into = [index[tuple(sorted((chosen[i], chosen[j])))] for i, j in chosen_pairs]
        shift = np.array([self.kernel_shift[chosen[i], chosen[j]] for i, j in chosen_pairs])
        V = (self.kernel_covariance + self.fourth_cumulant / 3)[np.ix_(into, into)]
        return average(function, K, shift, V, neurons)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all tensors over ``input``, …, ``pair``, ``pair_2`` and ``pair_3``."""
        import xarray

        square, pairs = ("input", "input_2"), ("pair", "pair_2", "pair_3")
        variables: dict[str, Any] = {
            name: (square, getattr(self, name))
            for name in ("kernel", "kernel_shift", "ntk", "ntk_shift")
            if getattr(self, name) is not None
        }
        for name in (
            "kernel_covariance",
            "ntk_covariance",
            "ntk_kernel_covariance",
            "between_outputs",
            "kernel_between_outputs",
            "fourth_cumulant",
        ):
            if getattr(self, name) is not None:
                variables[name] = (pairs[:2], getattr(self, name))
        if self.kernel_third_cumulant is not None:
            variables["kernel_third_cumulant"] = (pairs, self.kernel_third_cumulant)
        for name in ("off_diagonal", "off_diagonal_kernel"):
            if getattr(self, name) is not None:
                variables[name] = ((*square, "input_3", "input_4"), getattr(self, name))
        variables["next_order"] = ("input", self.next_order)
        return xarray.Dataset(
            variables,
            {"first": ("pair", self.pairs[:, 0]), "second": ("pair", self.pairs[:, 1])},
            {"widths": list(self.widths), "trusted": int(self.trusted)},
        )

    def __repr__(self) -> str:
        q = np.diagonal(self.kernel)
        diagonal = [n for n, (i, j) in enumerate(self.pairs) if i == j]
        spread = np.sqrt(np.diagonal(self.kernel_covariance)[diagonal]) / q
        words = "trusted" if self.trusted else "not to be trusted"
        widths = ", ".join(map(str, self.widths))
        lines = [
            f"WidthCorrections: {len(q)} inputs, hidden layers of {widths}",
            f"kernel  shift {_rounded(self.kernel_shift, self.kernel)}, "
            f"standard deviation {spread.max():.2g} of itself at most",
        ]
        if self.ntk is not None and self.ntk_shift is not None and self.ntk_covariance is not None:
            tangent = np.sqrt(np.diagonal(self.ntk_covariance)[diagonal]) / np.diagonal(self.ntk)
            lines.append(
                f"NTK     shift {_rounded(self.ntk_shift, self.ntk)}, "
                f"standard deviation {tangent.max():.2g}"
            )
        lines.append(f"next order {np.abs(self.next_order).max():.2g} of the leading one: {words}")
        return "\n  ".join(lines)


def width_corrections(
    net: Layer, x: ArrayLike, *, width: int | Sequence[int], param: Parameterization | None = None,
    excess: float | Sequence[float] = 0.0, progress: bool | Report | None = None,
) -> WidthCorrections:  # fmt: skip
    """Return kernel and NTK of networks of finite width at initialisation, to order 1/width.

    Means, covariances and a third cumulant over initialisations, in any parameterization, for fully
    connected networks with biases and any activation that is continuous: the equations are in
    :mod:`largen.finite_width.recursion`. With residual branches, such as in
    :func:`largen.residual_mlp`, only the kernel's shift and covariance are computed, by the
    equations in :mod:`largen.finite_width.residual`.

    Parameters
    ----------
    net
        :class:`largen.Dense` and :class:`largen.Activation` in turn, and residual branches of them.
    x
        Inputs, (P, D), at most eight; at most two with residual branches.
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.
    param
        The parameterization; :func:`largen.ntk` by default. All numbers, the kernels included, are
        those of :func:`largen.networks.empirical_ntk` and :func:`largen.networks.apply` at this
        width, powers of the width included: in :func:`largen.mean_field` K is σ_w²E[φφ]/(γ₀²n).
    excess
        κ = E[w⁴]/E[w²]² − 3 of all weights: 0 for Gaussian weights, −6/5 for uniform ones, −2 for
        signs. Or a number for each hidden layer, of the weights behind it, where those that read
        the inputs are Gaussian; with one number more, the first is theirs. They give the first
        preactivations the fourth cumulants κσ_w⁴Σ_i x_iα x_iβ x_iγ x_iδ/D², of which shifts have
        the first order: an expansion in the number D of inputs, with an error that no width makes
        smaller.
    progress
        Whether to show a bar; by default in terminals, after two seconds. A function is called with
        the completed and the total averages over up to four inputs.

    Raises
    ------
    InvalidInput
        For parallel inputs if φ has kinks, and for inputs with positions.
    NoRule
        For other layers: :func:`largen.finite_width.width_fluctuations` has convolutions and
        attention.
    NoTheory
        If φ jumps, layers come in another order, skips have layers of their own, or weights are
        not Gaussian.
    NumericalFailure
        If averages are not resolved at a layer's variances, or the variance of an input vanishes;
        with residual branches also if inputs coincide.

    Warns
    -----
    NotGaussian
        If that excess kurtosis of the first preactivations is above 0.05.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> result = lg.finite_width.width_corrections(
    ...     lg.mlp(3, "relu", weight_std=2**0.5), np.eye(2), width=100
    ... )
    >>> float((result.kernel_covariance[0, 0] / result.kernel[0, 0] ** 2).round(6))
    0.15
    >>> result
    WidthCorrections: 2 inputs, hidden layers of 100, 100, 100
      kernel  shift 0, standard deviation 0.39 of itself at most
      NTK     shift 0, standard deviation 0.32
      next order 0.05 of the leading one: trusted
    """
    what = "lg.finite_width.width_corrections"
    known("x", x)
    if (shape := as_array("x", x).shape)[2:]:
        raise InvalidInput(
            f"x: wanted (sample, input), got shape {shape}. Convolutions and attention, with x of "
            "(sample, *space, channel), are those of lg.finite_width.width_fluctuations."
        )
    inputs = checked_inputs(x)
    check_progress(progress)
    network = sized_network(net, width, what, param, inputs.shape[1], branches=True, excess=excess)
    _warn_of_first(network, inputs)
    if network.branched:
        return _of_stream(network, inputs)
    if len(inputs) > MOST_INPUTS:
        raise InvalidInput(
            f"x: wanted at most {MOST_INPUTS} inputs, got {len(inputs)}: all quadruples of them "
            "are averaged over. Take a few at a time: their tensors do not depend on others."
        )
    kernel = network.first_kernel(inputs)
    check_alive(kernel, 1)
    third = len(kernel) <= 4
    fourth = network.first_fourth(inputs)
    cumulants = start(kernel, network.first.tangent(inputs), fourth, third)
    with reporter(progress, what) as report:
        for number, layer in enumerate(network.hidden):
            if cumulants.T is not None and singular(cumulants.K):
                cumulants = replace(cumulants, T=None)  # its derivatives do not exist there
            cumulants = through(
                layer, cumulants, partial(_report, report, number, len(network.hidden))
            )
            # The read-out vanishes with the width in some parameterizations.
            last = number + 1 == len(network.hidden)
            size = layer.weight + layer.bias if last else 1.0
            check_alive(cumulants.K / (size or 1.0), number + 2)
    V, V2 = variance_at_next_order(network, np.diagonal(kernel).copy())
    ratio = np.divide(V2, V, out=np.zeros_like(V), where=V > 0)
    return _result(cumulants, network.widths, ratio)


def _warn_of_first(network: SizedNetwork, inputs: np.ndarray) -> None:
    """Warn of first preactivations whose excess kurtosis is too large for its first order."""
    square = np.diagonal(network.first_kernel(inputs)) ** 2
    own = np.diagonal(network.first_fourth(inputs))[[i == j for i, j in pairs_of(len(inputs))]]
    largest = float(np.max(np.abs(own) / np.where(square > 0, square, 1.0)))
    if largest > LARGE_EXCESS:
        warnings.warn(
            f"excess: sums over {inputs.shape[1]} inputs have an excess kurtosis of "
            f"{np.sign(network.excess) * largest:.2g}, of which shifts of kernels have the first "
            "order and covariances none, at any width. For Gaussian weights in the first layer "
            "and others behind, give one number for each hidden layer.",
            NotGaussian,
            stacklevel=3,
        )


def _report(report: Report, layer: int, layers: int, done: int, total: int) -> None:
    report(layer * total + done, layers * total)


def _of_stream(stream: SizedNetwork, inputs: np.ndarray) -> WidthCorrections:
    P = len(inputs)
    if P > MOST_IN_STREAMS:
        raise InvalidInput(
            f"x: wanted at most {MOST_IN_STREAMS} inputs with residual branches, got {P}: the "
            "cost grows with pairs of layers. Pass two inputs at a time: results do not depend on "
            "the other inputs."
        )
    kernel, fourth = stream.first_kernel(inputs), stream.first_fourth(inputs)
    stream_kernel = kernel_through(stream, kernel, fourth)
    check_alive(stream_kernel.K, len(stream.parts) + 1)
    pairs = np.array(pairs_of(P))
    diagonal = [n for n, (i, j) in enumerate(pairs) if i == j]
    ratio = np.diagonal(stream_kernel.V)[diagonal] / np.diagonal(stream_kernel.K) ** 2 / 2
    return WidthCorrections(
        pairs=pairs,
        widths=stream.widths,
        kernel=stream_kernel.K,
        kernel_shift=_square(stream_kernel.m, P),
        kernel_covariance=stream_kernel.V,
        kernel_third_cumulant=None,
        ntk=None,
        ntk_shift=None,
        ntk_covariance=None,
        ntk_kernel_covariance=None,
        between_outputs=None,
        kernel_between_outputs=None,
        off_diagonal=None,
        off_diagonal_kernel=None,
        fourth_cumulant=stream_kernel.Q,
        next_order=ratio,
        trusted=bool(np.all(ratio <= SMALL)),
    )


def _square(of_pairs: np.ndarray, P: int) -> np.ndarray:
    i, j = np.array(pairs_of(P)).T
    whole = np.zeros((P, P))
    whole[i, j] = whole[j, i] = of_pairs
    return whole


def _result(cumulants: Cumulants, widths: tuple[int, ...], ratio: np.ndarray) -> WidthCorrections:
    P = len(cumulants.K)
    pairs = np.array(pairs_of(P))
    i, j = pairs.T
    B = cumulants.B[i[:, None], j[:, None], i, j] + cumulants.B[i[:, None], j[:, None], j, i]
    F = cumulants.F[i[:, None], i, j[:, None], j] + cumulants.F[i[:, None], j, j[:, None], i]

    return WidthCorrections(
        pairs=pairs,
        widths=widths,
        kernel=cumulants.K,
        kernel_shift=_square(cumulants.m, P),
        kernel_covariance=cumulants.V,
        kernel_third_cumulant=cumulants.T,
        ntk=cumulants.H,
        ntk_shift=_square(cumulants.m_H, P),
        ntk_covariance=cumulants.A + B + cumulants.U,
        ntk_kernel_covariance=cumulants.D + F + cumulants.R,
        between_outputs=cumulants.A,
        kernel_between_outputs=cumulants.D,
        off_diagonal=cumulants.B,
        off_diagonal_kernel=cumulants.F,
        fourth_cumulant=cumulants.Q,
        next_order=ratio,
        trusted=bool(np.all(np.abs(ratio) <= SMALL)),
    )


def _rounded(shift: np.ndarray, of: np.ndarray) -> str:
    largest = float(np.abs(np.diagonal(shift) / np.diagonal(of)).max())
    return f"{largest:.2g}" if largest > 1e-12 else "0"
