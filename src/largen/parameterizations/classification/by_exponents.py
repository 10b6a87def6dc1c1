"""The public functions: the class of a point of Golikov's plane, and of a parameterization."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

from largen.architectures import Layer, mlp
from largen.bibliography import cites
from largen.errors import InvalidInput, NoRule, instance_of, one_of
from largen.parameterizations.averages import Averages
from largen.parameterizations.classification.deep import classify_program
from largen.parameterizations.classification.plane import ScalingClass, classify_scaling
from largen.parameterizations.classification.report import Classification
from largen.parameterizations.classification.scaled_program import scaled_program
from largen.parameterizations.exponents import exact
from largen.parameterizations.optimizers import adam, gd
from largen.parameterizations.parameterization import ORTHOGONAL, Parameterization
from largen.parameterizations.stepping import Optimizer
from largen.programs import Normalise, Product
from largen.scalars import integer

# Whether the size of the update is independent of the gradient's.
_OPTIMIZERS = {
    "gd": False,
    "sgd": False,
    "momentum": False,
    "gradient_flow": False,
    "adam": True,
    "rmsprop": True,
    "signsgd": True,
}


@cites("golikov2020towards")
def plane_class(q_sigma: Any, rate_a: Any, rate_w: Any = None) -> ScalingClass:
    """Return the infinite-width limit of a scaling of one hidden layer, by exact arithmetic.

    A network f = σ Σ_r â_r φ(ŵ_r·x) of width N with leaky relu φ and standard Gaussian â, ŵ is
    trained by gradient descent with σ ∝ N^(q_σ), η̂_a ∝ N^(q̃_a), η̂_w ∝ N^(q̃_w): Golikov,
    *Towards a general theory of infinite-width limits of neural classifiers*, §3 and App. E.

    Parameters
    ----------
    q_sigma
        q_σ, the exponent of the product of the two initial standard deviations.
    rate_a, rate_w
        q̃_a and q̃_w, the exponents of the rates over the initial variances; q̃_w = q̃_a by
        default.
        Exponents are exact: integers, fractions, strings such as ``"-3/4"``, or floats that are
        fractions to 1e-9.

    Raises
    ------
    InvalidInput
        If an exponent is not rational.

    Notes
    -----
    Exponents follow the paper's (9), (10), (12) and (15), except that ϰ_∅ and ϰ_aw are derived
    for all scalings at all steps, where App. D.1 has ½ for every scaling of vanishing increments:
    q_f,aw = −½ at q_σ = −¾, as §3.2 of the paper says, and not −¾, as its App. D.1 implies.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.scaling.plane_class("-3/4", "1/2"))
    q_σ = -3/4, q̃_a = 1/2, q̃_w = 1/2: intermediate (§3.1)
    limit: a constant kernel, from zero
          k = 1  k ≥ 2
    δa    N⁻¹ᐟ⁴  N⁻¹ᐟ⁴
    δw    N⁻¹ᐟ⁴  N⁻¹ᐟ⁴
    f_∅   N⁻¹ᐟ⁴  N⁻¹ᐟ⁴
    f_a   1      1
    f_w   1      1
    f_aw  N⁻¹ᐟ²  N⁻¹ᐟ²
    >>> lg.scaling.plane_class("-1/2", 1, 0).violated
    '(13): q_f,a = 1 > 0'
    """
    first = exact("rate_a", rate_a)
    second = first if rate_w is None else exact("rate_w", rate_w)
    return classify_scaling(exact("q_sigma", q_sigma), first, second)


@cites("golikov2020towards", "pehlevan2023lecture")
def classify(param: Parameterization, net: Any, optimizer: Any = None) -> Classification:
    """Return the infinite-width limit that a parameterization gives a network, with reasons.

    The orders in N of preactivations, gradients and updates are carried through the layers
    and from step to step, with exact exponents: Pehlevan and Bordelon's lecture notes, §4.1,
    Golikov's *Towards a general theory of infinite-width limits of neural classifiers*, §4
    and App. G. Powers of depth play no part; biases do.

    Parameters
    ----------
    param
        The parameterization.
    net
        A network, or the number of hidden layers of an :func:`largen.mlp`.
    optimizer
        An optimizer, or one of ``"gd"``, ``"sgd"``, ``"momentum"``, ``"gradient_flow"``,
        ``"adam"``, ``"rmsprop"``, ``"signsgd"``; gradient descent by default. The last three
        share one set of rates and one class.

    Returns
    -------
    Classification
        ``.kind`` (maximal, feature learning, kernel, stuck at initialisation, vanishing or
        unstable), ``.layers`` with the exponents at each affine map, ``.violated``.

    Raises
    ------
    InvalidInput
        If there is no hidden layer, or the optimizer is not known.
    NoRule
        If a layer of the network has no rule here, as attention, or a weight is used twice.

    Examples
    --------
    >>> import largen as lg
    >>> print(lg.scaling.classify(lg.mup(), 2, "adam"))
    mup(gamma=1), 2 hidden layers, adam: maximal
    every layer's update moves its features, and the outputs, at order one
    layer  role    h at start  δh  δh by itself  δf by itself  δW/W
    -----  ------  ----------  --  ------------  ------------  -----
    0      input   1           1   1             1             1
    2      hidden  1           1   1             1             N⁻¹ᐟ²
    4      output  N⁻¹ᐟ²       1   1             1             1
    outputs N⁻¹ᐟ² at start, their change 1
    >>> lg.scaling.classify(lg.standard(), 2).stable_rate
    Fraction(1, 1)
    """
    instance_of("param", param, Parameterization, "a parameterization such as lg.mup()")
    net = _network(net)
    name, adaptive, eps = kind_of(optimizer)
    network = scaled_program(net, param.table(net, adam(1.0) if adaptive else gd(1.0)), adaptive)
    maps = network.maps
    layers = f"{len(maps) - 1} hidden layer{'s' if len(maps) > 2 else ''}"
    report = classify_program(f"{param}, {layers}, {name}", network, adaptive=adaptive, eps=eps)
    plain = not any(isinstance(o, Normalise | Product) for o in network.program.operations)
    if len(maps) != 2 or adaptive or any(layer.bias for layer in maps) or not plain:
        return report
    into, out = (layer.weight for layer in maps)
    if into.initial is None or out.initial is None:
        return report
    plane = classify_scaling(
        into.initial + out.initial,
        rate_a=out.rate - 2 * out.initial,
        rate_w=into.rate - 2 * into.initial,
    )
    return replace(report, plane=plane)


def _network(net: Any) -> Layer:
    if isinstance(net, Layer):
        return net
    if isinstance(net, bool) or not isinstance(net, Integral):
        raise InvalidInput(
            f"net: wanted a network such as lg.mlp(3), or its number of hidden layers, got {net!r}."
        )
    return mlp(integer("net", net, at_least=1))


def kind_of(optimizer: Any) -> tuple[str, bool, bool]:
    """Return its name, whether it is adaptive, and whether it has an ε > 0."""
    if optimizer is None:
        return "gradient descent", False, False
    if isinstance(optimizer, str):
        one_of("optimizer", optimizer, _OPTIMIZERS)
        return optimizer, _OPTIMIZERS[optimizer], False
    if isinstance(optimizer, Optimizer):
        kind, averages = optimizer.says("kind"), optimizer.averages
        if kind == "orthogonal":
            raise NoRule("the classification", optimizer, said=f"the classification: {ORTHOGONAL}")
        if optimizer.backward == "gradients" and not optimizer.temperature:
            eps = isinstance(averages, Averages) and averages.eps > 0
            name = optimizer.words or type(optimizer).__name__
            return name, optimizer.adaptive, eps
    raise InvalidInput(
        "optimizer: wanted lg.gd, lg.sgd, lg.gradient_flow, lg.adam or lg.optimizers.rmsprop, or "
        f"one of {', '.join(sorted(_OPTIMIZERS))}, got {optimizer!r}."
    )
