"""Kernels of hundreds of inputs at order 1/width, with samples of their fluctuations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import as_array, finite_result, floating, known
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, instance_of
from largen.finite_width import heads, sampled_chain
from largen.finite_width.checks import checked_inputs
from largen.finite_width.layered_network import Heads, layered_network
from largen.finite_width.neuron_paths import limits_of, sample
from largen.finite_width.next_order import SMALL, variance_at_next_order
from largen.finite_width.path_shifts import has_shifts, shifts_of
from largen.finite_width.sized_network import sized_network
from largen.interrupts import interruptible
from largen.parameterizations import Parameterization
from largen.parameterizations import ntk as lazy
from largen.programs import Affine, Data, Function, program_of, written_out
from largen.results import Result, with_labels
from largen.scalars import flag, integer, random_key
from largen.text import shown

if TYPE_CHECKING:
    import xarray

WHAT = "lg.finite_width.width_fluctuations"
MOST_POINTS, MOST_ATTENDED = 512, 32  # samples and positions, also with attention
SHIFTS = ("kernel_shift", "ntk_shift")
# Draws from which shifts are averaged by paths, and numbers in them: the larger of these draws and
# of those that are asked for.
PATHS, IN_PATHS = 2**16, 2**24
_MOST = 2**28  # numbers of all samples


@cites("bahri2022les", "roberts2022principles", "hron2020infinite")
@dataclass(frozen=True, repr=False)
class WidthFluctuations(Result):
    """Kernels of one output and samples of their deviations; made by :func:`width_fluctuations`.

    Attributes
    ----------
    widths
        Numbers of neurons of the hidden layers.
    kernel, kernel_shift
        The NNGP kernel K, and E[z_α z_β] − K to order 1/n, (P, P).
    ntk, ntk_shift
        Θ at infinite width, and E[Θ̂] − Θ to order 1/n, (P, P). The shifts are None if φ has kinks
        with residual branches, and of weights that are not Gaussian, as samples of the NTK are;
        with attention all attributes of the NTK are None.
    kernel_shift_error, ntk_shift_error
        Standard errors of the shifts with convolutions, attention, residual branches or in another
        parameterization than :func:`largen.ntk`; None otherwise.
    kernel_samples, ntk_samples
        Deviations of S, the covariance of outputs given the last hidden layer, and of Θ̂ from their
        means, (samples, P, P), float32. The same index in both is a joint sample. Their second
        moments are those of networks at order 1/n; higher moments are not.
    next_order, trusted
        As in :class:`largen.finite_width.WidthCorrections`; the estimate V/2K² with convolutions,
        attention or branches, and at least a quarter of the variance of logits c q·k/d.
    """

    widths: tuple[int, ...]
    kernel: np.ndarray
    kernel_shift: np.ndarray | None
    ntk: np.ndarray | None
    ntk_shift: np.ndarray | None
    kernel_samples: np.ndarray
    ntk_samples: np.ndarray | None
    next_order: np.ndarray
    trusted: bool
    kernel_shift_error: np.ndarray | None = None
    ntk_shift_error: np.ndarray | None = None

    def kernel_covariance(self, pairs: Any) -> np.ndarray:
        """Return V_ab = Cov(S_a, S_b) of chosen pairs of inputs, (pair, pair)."""
        return _covariance(self.kernel_samples, pairs)

    def ntk_covariance(self, pairs: Any) -> np.ndarray:
        """Return Cov(Θ̂_a, Θ̂_b) of chosen pairs of inputs, (pair, pair)."""
        if self.ntk_samples is None:
            raise NoTheory(
                f"{WHAT}: fluctuations of tangent kernels are not known at order 1/width with "
                "attention, and of weights that are not Gaussian; "
                "lg.networks.monte_carlo_kernel measures networks."
            )
        return _covariance(self.ntk_samples, pairs)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return means, shifts and standard deviations over ``input`` and ``input_2``."""
        import xarray

        square = ("input", "input_2")
        variables: dict[str, Any] = {
            name: (square, getattr(self, name))
            for name in (*SHIFTS, *(f"{name}_error" for name in SHIFTS), "kernel", "ntk")
            if getattr(self, name) is not None
        }
        for name in ("kernel", "ntk"):
            samples = getattr(self, f"{name}_samples")
            if samples is not None:
                variables[f"{name}_std"] = (square, _root_mean_square(samples))
        variables["next_order"] = ("input", self.next_order)
        attributes = {"widths": list(self.widths), "trusted": int(self.trusted)}
        return xarray.Dataset(variables, attrs=attributes)

    def __repr__(self) -> str:
        both = (self.kernel_samples, self.kernel), (self.ntk_samples, self.ntk)
        spreads = [
            f"{(_root_mean_square(samples).diagonal() / limit.diagonal()).max():.2g} of the {name}"
            for name, (samples, limit) in zip(("kernel", "NTK"), both, strict=True)
            if samples is not None and limit is not None
        ]
        return (
            f"WidthFluctuations: {len(self.kernel)} inputs, {len(self.kernel_samples)} samples, "
            f"hidden layers of {', '.join(map(str, self.widths))}\n"
            f"  standard deviations {', '.join(spreads)} at most; "
            f"{'trusted' if self.trusted else 'not to be trusted'}"
        )


@interruptible()
def width_fluctuations(
    net: Layer, x: ArrayLike, *, width: int | Sequence[int], draws: int = 4000,
    param: Parameterization | None = None, gaussian: bool = True, key: Any = 0,
) -> WidthFluctuations:  # fmt: skip
    """Return kernel and NTK of many inputs at order 1/width, with samples of their fluctuations.

    :func:`largen.finite_width.width_corrections` computes tensors of four inputs, for up to eight
    inputs. This function samples the fluctuations of hundreds of inputs, in time and memory
    proportional to samples times P². The equations are in :mod:`largen.finite_width.sampled_chain`,
    and for others in ``neuron_paths`` and ``path_shifts`` of the same package; in convolutions n
    counts channels, and averages have samples and positions as their inputs. Kernels behind
    attention are in ``heads``: of heads of a fixed size, which are averaged over, of logits c q·k/d
    and of :class:`largen.layers.SelfAttention`. The kernel of heads has the error of
    :func:`largen.kernels.averaged_kernel`, which falls with their number ``draws``. Shifts
    and covariances have a relative statistical error of about 1/√draws. For the exact
    tensors of four of the inputs, call :func:`largen.finite_width.width_corrections` with these
    four, since the tensors do not depend on other inputs.

    Parameters
    ----------
    net
        :class:`largen.Dense`, :class:`largen.Conv` and :class:`largen.Activation`, linear pooling
        and :class:`largen.Flatten`, :class:`largen.QKVAttention`,
        ``lg.layers.MultiHeadAttention(key_size=d)`` and :class:`largen.layers.SelfAttention` with
        an affine map behind, and residual branches of them, with one output.
    x
        Inputs, (P, D) or (P, *space, channels). Kernels of convolutions are computed between all
        samples and positions, 512 at most, and 32 with attention.
    width
        Neurons of all hidden layers (times their ``width_ratio``), or without convolutions and
        branches one number for each.
    draws
        Number of sampled deviations.
    param
        The parameterization; :func:`largen.ntk` by default. All numbers are those of networks of
        this width, powers of the width included.
    gaussian
        Whether weights behind hidden layers are Gaussian. S of others, such as uniform ones,
        fluctuates in the same way. What depends on their fourth moments is None then: shifts, and
        the samples of the NTK.
    key
        A JAX key or an integer.

    Raises
    ------
    InvalidInput
        For parallel inputs if φ has kinks, or more than 2²⁸ numbers.
    NoRule, NoTheory
        For other networks, such as attention with heads that grow, whose kernels deviate by powers
        of N^(−1/2), normalisations and max-pooling: :func:`largen.networks.monte_carlo_kernel`
        measures these.
    NumericalFailure
        If averages are not resolved at a layer's variances, or the variance of an input vanishes.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(20, 5))
    >>> result = lg.finite_width.width_fluctuations(
    ...     lg.mlp(2, "relu", weight_std=2**0.5), x, width=100, key=0
    ... )
    >>> result.kernel_samples.shape
    (4000, 20, 20)
    >>> relative = result.kernel_covariance([(0, 0)])[0, 0] / result.kernel[0, 0] ** 2
    >>> bool(abs(relative - 5 * 2 / 100) < 0.02)
    True
    """
    instance_of("net", net, Layer, "a network such as lg.mlp(3)")
    known("x", x)
    inputs = np.asarray(floating("x", x, ndim=(2, 3, 4, 5)), np.float64)
    draws, key = integer("draws", draws, at_least=2), random_key(key)
    P, gaussian = len(inputs), flag("gaussian", gaussian)
    if draws * P * P > _MOST:
        raise InvalidInput(f"draws: {draws} of {P} × {P} numbers are more than 2**28. Take fewer.")
    if param is not None:
        instance_of("param", param, Parameterization, "a Parameterization such as lg.mup()")
    if not _is_chain(net) or (param is not None and param != lazy()):
        return _of_paths(net, inputs, width, param, draws, key, gaussian)
    network, inputs = sized_network(net, width, WHAT), checked_inputs(x)
    layers, kernel, ntk = sampled_chain.limits(network, inputs)
    state = sampled_chain.start(P, draws)
    for number, (layer, limit) in enumerate(zip(network.hidden, layers, strict=True)):
        state = sampled_chain.through(layer, limit, state, jax.random.fold_in(key, number))
    q = np.diagonal(layers[0].K).copy()
    V, V2 = variance_at_next_order(network, q)
    ratio = np.divide(V2, V, out=np.zeros_like(V), where=V > 0)
    S, tangent, rest = state.samples
    tangent += rest
    finite_result("width_fluctuations", [state.m, state.m_H, S, tangent])
    return WidthFluctuations(
        widths=network.widths,
        kernel=kernel,
        kernel_shift=state.m if gaussian else None,
        ntk=ntk,
        ntk_shift=state.m_H if gaussian else None,
        kernel_samples=S,
        ntk_samples=tangent if gaussian else None,
        next_order=ratio,
        trusted=bool(np.all(np.abs(ratio) <= SMALL)),
    )


def _is_chain(net: Layer) -> bool:
    """Whether a network has nothing but activations and maps of all features."""
    operations = written_out(program_of(net)).operations
    plain = (o for o in operations if not isinstance(o, Affine) or not o.dense)
    return all(isinstance(o, (Data, Function)) for o in plain)


def _of_paths(
    net: Layer, x: np.ndarray, width: Any, param: Parameterization | None, draws: int, key: Any,
    gaussian: bool,
) -> WidthFluctuations:  # fmt: skip
    """Return fluctuations by paths of single neurons, with shifts where they are known."""
    network = layered_network(net, width, WHAT, param, x.shape[1:])
    sizes = [each.taps.shape[2] for part in network.parts for each in (r.map for r in part.reads)]
    largest = len(x) * max(sizes)
    most = MOST_ATTENDED if network.attends else MOST_POINTS
    if largest > most:
        raise InvalidInput(
            f"x: {len(x)} samples at {max(sizes)} positions are more than {most} inputs of "
            "averages over channels. Take fewer samples, or smaller ones."
        )
    limits, at_once = limits_of(network, x), max(1, sampled_chain.AT_ONCE // largest**2)
    S, tangent = sample(network, limits, len(x), draws, key, at_once)
    shifts = None
    if gaussian and has_shifts(network):
        paths = max(draws, min(PATHS, IN_PATHS // largest**2))
        shifts = shifts_of(network, limits, paths, jax.random.fold_in(key, draws), at_once)
    found = [S, tangent, *(shifts or ())]
    finite_result("width_fluctuations", [each for each in found if each is not None])
    q = np.diagonal(limits.kernel)
    ratio = np.mean(np.square(S.diagonal(axis1=1, axis2=2), dtype=np.float64), 0) / q**2 / 2
    attention = [
        heads.spread(read, at)
        for part, ats in zip(network.parts, limits.layers, strict=True)
        for read, at in zip(part.reads, ats, strict=True)
        if isinstance(read, Heads)
    ]
    ratio = np.maximum(ratio, max(attention, default=0.0))
    return WidthFluctuations(
        widths=network.widths,
        kernel=limits.kernel,
        kernel_shift=shifts and shifts.kernel,
        ntk=limits.tangent,
        ntk_shift=shifts and shifts.tangent,
        kernel_samples=S,
        ntk_samples=tangent if gaussian else None,
        next_order=ratio,
        trusted=bool(np.all(ratio <= SMALL)),
        kernel_shift_error=shifts and shifts.kernel_error,
        ntk_shift_error=shifts and shifts.tangent_error,
    )


def _covariance(samples: np.ndarray, pairs: Any) -> np.ndarray:
    chosen, P = np.asarray(as_array("pairs", pairs)), samples.shape[1]
    whole = np.issubdtype(chosen.dtype, np.integer)
    if not whole or chosen.ndim != 2 or chosen.shape[1] != 2 or not np.all(chosen // P == 0):
        raise InvalidInput(
            f"pairs: wanted pairs of the inputs 0 to {P - 1}, such as [(0, 0), (0, 1)], got "
            f"{shown(pairs)}."
        )
    deviations = samples[:, chosen[:, 0], chosen[:, 1]].astype(np.float64)
    return deviations.T @ deviations / len(samples)


def _root_mean_square(samples: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(np.square(samples, dtype=np.float64), axis=0))
