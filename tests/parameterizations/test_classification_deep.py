"""Classes of networks of any depth: the named schemes, the papers' claims, and the symmetry."""

from dataclasses import replace
from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import largen as lg
from largen.errors import InvalidInput
from largen.parameterizations import Exponents, Parameterization

HALF = F(1, 2)
GD = ["gd", "sgd", "momentum", "gradient_flow", lg.gd(0.1), lg.gd(0.1, momentum=0.9)]
ADAPTIVE = ["adam", "rmsprop", "signsgd", lg.adam(1e-3)]
exponents = st.fractions(min_value=-2, max_value=2, max_denominator=4)
few = settings(max_examples=25)
roles = st.sampled_from(["input", "hidden", "output", "bias"])


def inverse_width(h):
    """004's mean-field scaling: σ ∝ 1/N in every layer, η̂ ∝ N at the ends, N² between."""
    return lg.scaling.classify(lg.abc(a=(0, 1, 1), b=0, c=(-1, -2, -1)), h + 1, "gd")


@pytest.mark.parametrize("optimizer", [*GD, *ADAPTIVE, lg.gradient_flow()])
@pytest.mark.parametrize("hidden_layers", [1, 2, 5])
def test_named_schemes(hidden_layers, optimizer):
    for param in (lg.mup(), lg.mean_field(2.0)):
        best = lg.scaling.classify(param, hidden_layers, optimizer)
        assert best.kind == "maximal"
        assert best.nontrivial
        assert best.features_move
        assert len(best.learning_layers) == hidden_layers + 1
    lazy = lg.scaling.classify(lg.ntk(), hidden_layers, optimizer)
    assert lazy.kind == "kernel"
    assert not lazy.features_move
    assert len(lazy.learning_layers) == hidden_layers + 1
    assert all(layer.change == -HALF for layer in lazy.layers[:-1])
    standard = lg.scaling.classify(lg.standard(), hidden_layers, optimizer)
    assert standard.kind == "unstable"
    assert any("outputs" in condition for condition in standard.violated)


def test_standard_needs_a_rate_that_falls():
    assert all(lg.scaling.classify(lg.standard(), n).stable_rate == 1 for n in (1, 2, 4))
    slowed = lg.abc(a=0, b=(0, 1, 1), c=1)
    assert lg.scaling.classify(slowed, 3).kind == "kernel"
    assert lg.scaling.classify(lg.abc(a=0, b=(0, 1, 1), c=F(3, 4)), 3).kind == "unstable"


@pytest.mark.parametrize("param", [lg.depth_mup(), lg.complete_p()])
def test_residual_networks_with_biases(param):
    net = lg.residual_mlp(6, bias_std=1.0, layers_per_block=2)
    for optimizer in ("gd", "adam"):
        report = lg.scaling.classify(param, net, optimizer)
        assert report.kind == "maximal"
        assert len(report.layers) == 14


@pytest.mark.parametrize("h", range(7))
def test_mean_field_of_gd_is_trivial_from_three_hidden_layers_on(h):
    """004, §4, (40) and App. G, with h = H; and not with RMSProp, §4.1."""
    report = inverse_width(h)
    assert report.nontrivial == (h < 2)
    if h < 2:
        assert report.features_move
        # With h = 1 nothing but the middle layer moves the outputs in the first step.
        assert report.moved[:2] == (None, 0)
        assert report.learning_layers == ("0", "2", "4")[: h + 2]
    else:
        assert report.kind == "vanishing"
        assert "N" in report.violated[0]
        increments = [layer.increment for layer in report.layers]
        assert increments == [F(-h, 2), *[F(1 - h, 2)] * h, F(-h, 2)]
    assert report.outputs[0] == (h + 1) * (-1 + HALF)  # (38) prints the case h = 1
    rms = lg.scaling.classify(lg.abc(a=(0, 1, 1), b=0, c=(-1, -2, -1)), h + 1, "rmsprop")
    assert rms.kind == ("maximal" if h == 0 else "feature learning")
    assert all(layer.increment == 0 for layer in rms.layers)
    assert all(layer.learns for layer in rms.layers)


def test_rmsprop_kernel_scaling_of_section_4_1():
    """η̂ ∝ 1 with σ ∝ N^(−1/2), as printed, diverges; increments have to fall."""

    def with_rates(input_, hidden, output):
        def at(a, rate):
            return Exponents(F(a), F(0), F(0), adaptive_rate=F(rate))

        bias = Exponents(F(0), F(0), F(0))
        return Parameterization("", at(0, input_), at(HALF, hidden), at(HALF, output), bias)

    assert lg.scaling.classify(with_rates(0, 0, 0), 3, "rmsprop").kind == "unstable"
    assert lg.scaling.classify(with_rates(HALF, HALF, HALF), 3, "rmsprop").kind == "unstable"
    assert lg.scaling.classify(with_rates(HALF, 1, HALF), 3, "rmsprop").kind == "kernel"
    assert lg.scaling.classify(with_rates(HALF, 1, HALF), 1, "rmsprop").kind == "kernel"


@pytest.mark.slow
@given(exponents, st.integers(1, 4))
@few
def test_features_move_iff_d_is_one_half(d, hidden_layers):
    """000, §4.1.3 and §4.1.4; 001, App. C: δh ∝ γN^(−1/2) = N^(d−1/2); f(0) ∝ N^(−d)."""
    report = lg.scaling.classify(lg.abc(a=(0, HALF, HALF), b=0, c=0, d=d), hidden_layers)
    if d < 0 or d > HALF:
        assert report.kind == "unstable"
    else:
        assert report.kind == ("maximal" if d == HALF else "kernel")
        assert all(layer.change == d - HALF for layer in report.layers[:-1])
        assert report.outputs[0] == -d


@given(exponents, st.integers(1, 4))
@few
def test_the_family_of_section_4_1_4(a, hidden_layers):
    """(a, 1 − 2a, 1 − 2a), and (a − ½, 1 − 2a) for the read-in; c = 1 is Yang and Hu's μP."""
    b = 1 - 2 * a
    param = lg.abc(a=(a - HALF, a, a), b=b, c=b, d=HALF)
    assert lg.scaling.classify(param, hidden_layers).kind == "maximal"


@given(
    st.fractions(min_value=0, max_value=1, max_denominator=4),
    st.fractions(min_value=-1, max_value=0, max_denominator=4),
)
@few
def test_rates_of_outputs_and_features(d, slow):
    """002, (3.2.11) and (3.2.13): δf = Θ(η/γ²) and δh = Θ(η/(γ√N)), for η = N^e, γ = N^d."""
    e = 2 * d + slow
    report = lg.scaling.classify(lg.abc(a=(0, HALF, HALF), b=0, c=2 * d - e, d=d), 1)
    if d <= HALF:
        assert report.moved[1] == e - 2 * d
        assert report.layers[0].change == e - d - HALF
    assert report.nontrivial == (e == 2 * d and d <= HALF)


@pytest.mark.slow
@given(
    *[st.tuples(exponents, exponents, exponents)] * 3,
    st.sampled_from([F(0), HALF]),
    st.dictionaries(roles, exponents),
    st.sampled_from(["gd", "adam"]),
    st.sampled_from([lg.mlp(3), lg.residual_mlp(2, bias_std=1.0)]),
)
@few
def test_class_is_unchanged_along_the_symmetry(a, b, c, d, theta, optimizer, net):
    param = lg.abc(a=a, b=b, c=c, d=d)
    # Adaptive rates that follow from the sizes of gradients are stated, so that they can shift.
    stated = {
        role: replace(getattr(param, role), adaptive_rate=F(n, 2), adaptive_eps=F(0))
        for n, role in enumerate(("input", "hidden", "output", "bias"))
    }
    param = replace(param, **stated)
    before, after = (lg.scaling.classify(p, net, optimizer) for p in (param, param.shift(theta)))
    assert replace(after, title=before.title) == before


@given(*[exponents] * 3)
@few
def test_one_hidden_layer_agrees_with_the_plane(q_sigma, rate_a, rate_w):
    """Two recursions written apart: sizes here, parities there."""
    report = lg.scaling.classify(lg.abc(a=(0, 0, -q_sigma), b=0, c=(-rate_w, 0, -rate_a)), 1)
    plane = lg.scaling.plane_class(q_sigma, rate_a, rate_w)
    assert report.plane == plane
    for step, outputs in enumerate(report.outputs):
        assert outputs == plane.outputs(step)
    last = len(report.outputs) - 1
    if last:
        increments = {"a": report.layers[1].increment, "w": report.layers[0].increment}
        assert increments == plane.increments(last)
    # Preactivations that grow are no fault where φ is homogeneous, as it is in the plane.
    assert report.nontrivial == (plane.nontrivial and plane.increments(3)["w"] <= 0)


def test_report_names_what_is_violated():
    text = str(lg.scaling.classify(lg.standard(), 2, lg.adam(1e-3)))
    assert "standard, 2 hidden layers, adam: unstable" in text
    assert "violated: stable: preactivations of 2 of order N after step 1" in text
    assert "stable with all rates times N⁻³ᐟ²" in text
    assert "2 … 6" in str(lg.scaling.classify(lg.ntk(), 4))
    assert "(×8)" in str(lg.scaling.classify(lg.depth_mup(), lg.residual_mlp(8)))
    assert lg.scaling.classify(lg.ntk(), 1).plane.kind == "NTK"


def test_an_epsilon_that_drowns_gradients_is_noted():
    param = lg.ntk()
    param = replace(param, hidden=replace(param.hidden, adaptive_eps=F(0)))
    assert "gradients of 2 fall below ε" in str(lg.scaling.classify(param, 2, lg.adam(1e-3)))
    assert lg.scaling.classify(param, 2, lg.adam(1e-3, eps=0.0)).notes == ()
    assert lg.scaling.classify(lg.ntk(), 2, lg.adam(1e-3)).notes == ()


def test_exploding_initialisation():
    report = lg.scaling.classify(lg.abc(a=0, b=0, c=0), 2)
    assert report.kind == "unstable"
    assert report.violated[0] == "stable: preactivations of 2 of order N¹ᐟ² at initialisation"
    assert report.stable_rate is None


def test_outputs_that_stay():
    stuck = lg.scaling.classify(lg.abc(a=(0, HALF, HALF), b=0, c=HALF), 2)
    assert stuck.kind == "stuck at initialisation"
    assert "N⁻¹ᐟ²" in stuck.violated[0]


def test_a_layer_that_stands_still_is_named():
    report = lg.scaling.classify(lg.abc(a=(0, HALF, HALF), b=0, c=(HALF, 0, 0), d=HALF), 2)
    assert report.kind == "feature learning"
    assert report.learning_layers == ("2", "4")
    assert [layer.moves for layer in report.layers[:2]] == [False, True]


BRANCHED = [
    lg.layers.Concatenate(lg.Dense(), lg.serial(lg.Dense(), lg.Activation("relu"))),
    lg.Residual(lg.serial(lg.Dense(), lg.Activation("relu")), shortcut=lg.Dense()),
]


@pytest.mark.parametrize("block", BRANCHED, ids=lambda block: type(block).__name__)
@pytest.mark.parametrize(
    "param",
    [
        lg.ntk(),
        lg.mup(),
        lg.standard(),
        lg.scaling.plane_scheme(-1, 0),
        lg.scaling.plane_scheme("-3/4", "1/2"),
    ],
    ids=str,
)
def test_a_sum_has_the_order_of_its_largest_term(block, param):
    # Both terms have the order of one affine map, so that the network has those of a chain.
    net = lg.serial(lg.Dense(), lg.Activation("relu"), block, lg.Dense())
    found, chain = lg.scaling.classify(param, net), lg.scaling.classify(param, 2)
    for name in ("kind", "outputs", "moved", "stable_rate"):
        assert getattr(found, name) == getattr(chain, name)
    first, *both, last = found.layers
    assert [replace(layer, name="2") for layer in both] == 2 * [chain.layers[1]]
    assert (first, replace(last, name="4")) == (chain.layers[0], chain.layers[2])


@pytest.mark.parametrize("net", [0, -1, 2.0, "three", None, True])
def test_missing_layers_are_refused(net):
    with pytest.raises(InvalidInput, match="net"):
        lg.scaling.classify(lg.ntk(), net)


@pytest.mark.parametrize("optimizer", ["sgdm", 0.1, lg.ntk()])
def test_unknown_optimizers_are_refused(optimizer):
    with pytest.raises(InvalidInput, match="optimizer"):
        lg.scaling.classify(lg.ntk(), 2, optimizer)
    with pytest.raises(InvalidInput, match="two affine maps"):
        lg.scaling.classify(lg.ntk(), lg.Dense())


def normed(eps):
    tanh = lg.Activation("tanh")
    return lg.serial(lg.Dense(), tanh, lg.Dense(), lg.LayerNorm(eps=eps), tanh, lg.Dense())


def test_a_normalisation_brings_values_to_order_one_that_are_larger_than_its_epsilon():
    vanishing = lg.abc(a=(0, 1, 1), b=0, c=(-1, -2, -1))
    assert [layer.initial for layer in lg.scaling.classify(vanishing, normed(0.1)).layers] == [
        0, -HALF, -1,
    ]  # fmt: skip
    restored = lg.scaling.classify(vanishing, normed(0.0))
    assert restored.outputs[0] == -HALF
    # Weights before a norm without ε have gradients that grow as their outputs vanish.
    assert restored.layers[1].direct == HALF
    assert restored.kind == "unstable"
    for param in (lg.mup(), lg.ntk()):
        same = lg.scaling.classify(param, 3).kind
        assert lg.scaling.classify(param, normed(1e-5)).kind == same
        assert lg.scaling.classify(param, normed(1e-5), "adam").plane is None


def test_one_hidden_layer_with_a_norm_is_on_no_plane():
    norm = lg.serial(lg.Dense(), lg.RMSNorm(), lg.Activation("relu"), lg.Dense())
    assert lg.scaling.classify(lg.ntk(), norm).plane is None
    assert lg.scaling.classify(lg.ntk(), 1).plane is not None
