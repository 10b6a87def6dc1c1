"""Deep networks of shaped activations: the stochastic differential equation of their covariance.

With L, n → ∞ at τ = ℓ/n fixed and activations that are nearly linear, the covariance V of a layer's
preactivations given the layer before follows (Li, Nica and Roy 2022)

    dV = b(V) dτ + dB,   Cov(dB_αβ, dB_γδ) = (V_αγV_βδ + V_αδV_βγ) dτ,

with, for slopes 1 + c_±/√n on either side of 0 and σ_w² = 2/(s₊² + s₋²),

    b_αβ = ((c₊ − c₋)²/2π)(√(1 − ρ²) − ρ arccos ρ)√(V_αα V_ββ),

and for φ_s(z) = sφ(z/s) with s = a√n, φ(0) = 0, φ'(0) = 1 and σ_w² = 1 + k/n,

    b_αβ = (1/a²)[(φ''²/4)(V_αα V_ββ + 2V_αβ²) + (φ'''/2)V_αβ(V_αα + V_ββ)] + kV_αβ.

V = FFᵀ stays positive: with P × P independent Brownian motions W,

    dF = F dW/√2 + (½ b(V)F⁻ᵀ − (P/4) F) dτ

is integrated in Itô's sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.arrays import finite_result, floating, known
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory
from largen.expectations import ActivationFunction
from largen.expectations import as_activation as activation_of
from largen.results import in_notebooks, plot_result, save_result, with_labels
from largen.scalars import integer, random_key, real, sequence
from largen.segments import map_segments

if TYPE_CHECKING:
    import xarray

_BLOWN = 1e4  # times the largest initial variance
_AT_ONCE, _STEPS = 1000, 2**21  # paths of a batch, and steps of all of them


@cites("li2022neural")
class CovariancePaths(NamedTuple):
    """Paths of the neural covariance; made by :func:`covariance_sde`.

    Attributes
    ----------
    times
        τ = ℓ/n, starting at 0.
    covariance
        V, (draws, time, P, P). After a path has blown up it is constant.
    blown_up
        Whether a variance exceeded 10⁴ times the largest initial one, (draws,).
    blow_up
        First time at which a variance exceeded this bound, (draws,); the last time for other paths.
    """

    times: np.ndarray
    covariance: np.ndarray
    blown_up: np.ndarray
    blow_up: np.ndarray

    def __repr__(self) -> str:
        draws, _, P, _ = self.covariance.shape
        head = f"CovariancePaths: {draws} paths, {P} inputs, to τ = {self.times[-1]:g}"
        if self.blown_up.any():
            first = self.blow_up[self.blown_up].min()
            head += f"; {self.blown_up.mean():.0%} have blown up, the first at τ = {first:.3g}"
        return head

    _repr_html_ = in_notebooks
    save = save_result
    plot = plot_result

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all paths over ``draw``, ``time``, ``input`` and ``input_2``."""
        import xarray

        return xarray.Dataset(
            {
                "covariance": (("draw", "time", "input", "input_2"), self.covariance),
                "blown_up": ("draw", self.blown_up),
                "blow_up": ("draw", self.blow_up),
            },
            {"time": self.times},
        )


def covariance_sde(
    covariance: ArrayLike,
    *,
    slopes: Any = None,
    activation: Any = None,
    scale: float = 1.0,
    growth: float | None = None,
    bias: float = 0.0,
    time: float,
    draws: int,
    steps: int = 200,
    key: Any = 0,
) -> CovariancePaths:
    """Draw paths of the covariance of deep networks with shaped activations.

    The equations are in :mod:`largen.finite_width.shaped`. They differ from networks of n neurons
    and τn layers by order 1/n. For one input and slopes (0, 0), V is log-normal: log V has mean
    −τ and variance 2τ. For a smooth φ with ¾φ''² + φ''' > 0, V blows up in finite time unless k
    prevents it; the result has the time. V has heavy tails, so prefer means of log V and of
    correlations. Li, Nica and Roy have c₊ + c₋ in b, since their c₋ multiplies −min(z, 0).

    Parameters
    ----------
    covariance
        V at τ = 0, (P, P), positive definite: inputs that are not parallel.
    slopes
        (c₊, c₋) of a shaped relu with slopes 1 + c_±/√n; (0, −2) lowers the negative slope.
    activation
        φ of a shaped smooth activation instead; it is divided by φ'(0).
    scale
        a in s = a√n, for ``activation``.
    growth
        k in σ_w² = 1 + k/n, for ``activation``; by default −(¾φ''² + φ''')/a², which keeps a
        variance of 1.
    bias
        n times the variance of the biases in each layer, a constant term of the drift.
    time
        The largest τ.
    draws, steps
        Number of paths, and of steps of each.
    key
        A JAX key or an integer.

    Raises
    ------
    InvalidInput
        For a covariance that is not positive definite, counts that are not positive, not exactly
        one of ``slopes`` and ``activation``, or ``scale`` or ``growth`` with ``slopes``.
    NoTheory
        For an activation with φ(0) ≠ 0 or φ'(0) = 0, or with kinks.
    NumericalFailure
        If a step gives a number that is not finite: take more steps.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> result = lg.finite_width.covariance_sde(
    ...     np.eye(1), slopes=(0, 0), time=0.5, draws=4000, steps=50, key=0
    ... )
    >>> log = np.log(result.covariance[:, -1, 0, 0])
    >>> bool(abs(log.mean() + 0.5) < 0.07 and abs(log.var() - 1) < 0.1)
    True
    """
    known("covariance", covariance)
    V = np.asarray(floating("covariance", covariance, ndim=2), np.float64)
    P = len(V)
    if V.shape != (P, P) or not np.allclose(V, V.T, rtol=1e-6):
        raise InvalidInput(f"covariance: wanted a symmetric matrix, got shape {V.shape}.")
    if not P or np.linalg.eigvalsh(V)[0] <= 1e-12 * np.abs(V).max():
        raise InvalidInput("covariance: is not positive definite. Leave parallel inputs out.")
    constants = _constants(slopes, activation, scale, growth)
    bias = real("bias", bias, at_least=0.0)
    last = real("time", time, above=0.0)
    draws, steps = integer("draws", draws, at_least=1), integer("steps", steps, at_least=1)
    key = random_key(key)
    with jax.enable_x64(True):
        keys = jax.random.split(key, draws)
        start, given = jnp.asarray(np.linalg.cholesky(V)), jnp.asarray([*constants, bias])
        batch = max(1, min(draws, _AT_ONCE, _STEPS // steps))
        apart = jnp.arange(-(-draws // batch) * batch).reshape(-1, batch) % draws
        what = f"draws: {draws} paths of {steps} steps"
        paths = map_segments(_paths, steps, keys[apart], start, given, jnp.asarray(last), what=what)
        paths = [np.asarray(each).reshape(-1, *each.shape[2:])[:draws] for each in paths]
    finite_result("covariance_sde", paths)
    return CovariancePaths(np.linspace(0, last, steps + 1), *paths)


def _constants(
    slopes: Any, activation: Any, scale: float, growth: float | None
) -> tuple[float, float, float, float]:
    """Return the constants of the drift: that of a shaped relu, φ''²/4a², φ'''/2a², and k."""
    a = real("scale", scale, above=0.0)
    given = None if growth is None else real("growth", growth)
    if (slopes is None) == (activation is None):
        raise InvalidInput("slopes: wanted either slopes or activation.")
    if slopes is not None:
        if given is not None or a != 1:
            name = "scale" if given is None else "growth"
            raise InvalidInput(f"{name}: is for a smooth activation, and slopes were given.")
        c = [real("slopes", each) for each in sequence("slopes", slopes, "(c₊, c₋)")]
        if len(c) != 2:
            raise InvalidInput(f"slopes: wanted (c₊, c₋), got {len(c)} numbers.")
        return (c[0] - c[1]) ** 2 / (2 * np.pi), 0.0, 0.0, 0.0
    phi = activation_of(activation)
    first, second, third = _derivatives_at_zero(phi)
    bend, curl = (second / first) ** 2 / a**2, third / first / a**2
    k = -(0.75 * bend + curl) if given is None else given
    return 0.0, bend / 4, curl / 2, k


def _derivatives_at_zero(phi: ActivationFunction) -> tuple[float, float, float]:
    """Return φ'(0), φ''(0) and φ'''(0), after checking that φ can be shaped."""
    derivatives, function = [], lambda z: phi(z)
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        left, right = (float(phi.derivative(jnp.asarray(z, np.float64))) for z in (-1e-7, 1e-7))
        for _ in range(4):
            derivatives.append(float(function(jnp.zeros((), np.float64))))
            function = jax.grad(function)
    value, first, second, third = derivatives
    if value != 0 or first == 0 or abs(left - right) > 1e-4 * (1 + abs(first)):
        raise NoTheory(
            f"activation: {phi} cannot be shaped: it must be smooth at 0, with φ(0) = 0 and "
            "φ'(0) ≠ 0. A relu is shaped by slopes=(c₊, c₋)."
        )
    return first, second, third


def _drift(V: Any, given: Any) -> Any:
    relu, bend, curl, k, bias = given
    q = jnp.diagonal(V)
    both = q[:, None] * q
    root = jnp.sqrt(both)
    rho = jnp.clip(V / root, -1, 1)
    folded = jnp.sqrt(jnp.maximum(1 - rho**2, 0)) - rho * jnp.arccos(rho)
    smooth = bend * (both + 2 * V**2) + curl * V * (q[:, None] + q) + k * V
    return relu * folded * root + smooth + bias


def _paths(steps: int, keys: Any, start: Any, given: Any, last: Any) -> Any:
    import diffrax
    import lineax

    P = start.shape[0]
    shape = jax.ShapeDtypeStruct(start.shape, start.dtype)
    most = _BLOWN * jnp.max(jnp.sum(start**2, axis=1))

    def drift(_: Any, F: Any, __: Any) -> Any:
        V = F @ F.T
        alive = jnp.max(jnp.diagonal(V)) < most
        inverse = jnp.linalg.solve(F, jnp.eye(P)).T
        return jnp.where(alive, _drift(V, given) @ inverse / 2 - P / 4 * F, 0)

    def diffusion(_: Any, F: Any, __: Any) -> Any:
        alive = jnp.max(jnp.sum(F**2, axis=1)) < most
        size = jnp.where(alive, np.sqrt(0.5), 0.0)
        return lineax.FunctionLinearOperator(lambda noise: size * (F @ noise), shape)

    def path(key: Any) -> Any:
        motion = diffrax.UnsafeBrownianPath(shape, key)
        terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, motion))
        solution = diffrax.diffeqsolve(
            terms, diffrax.Euler(), 0.0, last, last / steps, start, max_steps=steps + 2,
            saveat=diffrax.SaveAt(ts=jnp.linspace(0, last, steps + 1)),
            adjoint=diffrax.DirectAdjoint(),
        )  # fmt: skip
        F, times = solution.ys, solution.ts
        assert F is not None
        assert times is not None
        V = F @ jnp.swapaxes(F, 1, 2)
        over = jnp.max(jnp.diagonal(V, axis1=1, axis2=2), axis=1) >= most
        blown = over.any()
        return V, blown, jnp.where(blown, times[jnp.argmax(over)], last)

    return jax.vmap(path)(keys)
