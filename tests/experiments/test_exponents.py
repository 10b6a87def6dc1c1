"""Measured exponents against the symbolic ones, and the parts of the measurement."""

from fractions import Fraction as F

import numpy as np
import pytest

import largen as lg
from largen.experiments.exponents.fit import exponent
from largen.experiments.exponents.quantities import decomposition, has_terms
from largen.experiments.exponents.report import MeasuredExponent
from largen.experiments.power_law import PowerLaw

X = np.random.default_rng(0).normal(size=(4, 3))
Z = np.random.default_rng(1).normal(size=(6, 3))
Y = np.array([1.0, -1.0, 1.0, -1.0])
DATA = lg.Dataset(X, Y, Z, np.sign(Z[:, 0]))


def run(param, *, net=None, optimizer=None, steps=3):
    net = lg.mlp(1, "relu") if net is None else net
    optimizer = lg.gd(1.0) if optimizer is None else optimizer
    return lg.Run(net, param, DATA, loss="logistic", optimizer=optimizer, steps=steps)


WIDE = (128, 512, 1024, 4096, 16384)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "rate", "steps", "widths", "ensemble"),
    [
        (("-3/4", "1/2"), 1.0, 3, (32, 128, 512, 1024), (48, 0)),
        pytest.param(("-1/2", 0), 1.0, 3, WIDE, (32, 7), marks=pytest.mark.slow),
        pytest.param(("-3/4", "1/2"), 1.0, 3, WIDE, (32, 7), marks=pytest.mark.slow),
        # Far enough that f_∅ is near its constant: at small rates it is noise of order N^(−1/2).
        pytest.param((-1, 1), 3.0, 8, WIDE, (32, 7), marks=pytest.mark.slow),
    ],
    ids=["intermediate, narrow", "NTK", "intermediate", "mean field"],
)
def test_one_hidden_layer(point, rate, steps, widths, ensemble):
    """Up to widths 2⁷ … 2¹⁴: every exponent within its interval, and the intervals are narrow."""
    seeds, key = ensemble
    scaled = run(lg.scaling.plane_scheme(*point), optimizer=lg.gd(rate), steps=steps)
    report = lg.scaling.measure_exponents(scaled, widths, seeds=seeds, key=key)
    assert report.deviations == (), str(report)
    assert all(e.estimate.error < 0.1 for e in report.exponents), str(report)
    plane = lg.scaling.plane_class(*point)
    for term, order in plane.terms(steps).items():
        assert report["terms", f"f_{term}"].predicted == order
    assert report["relative", "0.weight"].predicted == plane.increments(steps)["w"]
    assert report["relative", "2.weight"].predicted == plane.increments(steps)["a"]
    assert report["relative", "2.weight"].estimate.error < 0.04
    if plane.kind == "intermediate":
        # ϰ_aw = ½, as the paper's App. D.1 has it, would give −¾.
        low, high = report["f_aw"].interval
        assert not low < -0.75 < high


@pytest.mark.slow
def test_deep():
    report = lg.scaling.measure_exponents(
        run(lg.mup(), net=lg.mlp(2, "tanh")), (32, 64, 256), seeds=16, key=1, on="train"
    )
    assert report.deviations == (), str(report)
    assert report["relative", "2.weight"].predicted == F(-1, 2)
    assert report["absolute", "2.weight"].predicted == -1
    assert report["features", "4.weight"].predicted == 0
    assert not any(e.group == "terms" for e in report.exponents)
    assert "on train samples" in str(report)


TANH = lg.Activation("tanh")
NORMALISED = lg.serial(
    lg.Dense(), lg.Residual(lg.serial(lg.LayerNorm(), TANH, lg.Dense())), lg.Dense()
)
GATED = lg.serial(
    lg.Dense(), lg.layers.Product(lg.serial(lg.Dense(), TANH), lg.Dense()), lg.Dense()
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "param", "outputs"),
    [
        (NORMALISED, lg.mup(), (-F(1, 2), 0)),
        (GATED, lg.mup(), (-F(1, 2), 0)),
        # Preactivations that vanish, so that the order of a product is not that of its factors.
        (GATED, lg.abc(a=(0, 1, 1), b=0, c=(-1, -2, -1)), (-F(3, 2), -1)),
    ],
)
def test_normalisations_and_products(net, param, outputs):
    report = lg.scaling.measure_exponents(
        run(param, net=net, optimizer=lg.gd(0.3)), (64, 128, 256, 512), seeds=12, on="train"
    )
    assert report.deviations == (), str(report)
    assert tuple(report["outputs", name].predicted for name in ("f at start", "δf")) == outputs
    # Powers differ by halves, which the intervals tell apart.
    assert all(e.estimate.error < 0.25 for e in report.exponents if e.group == "relative")


@pytest.mark.slow
def test_what_is_returned(tmp_path):
    """Sizes by hand, the picture, and that an unstable scaling has no deviations."""
    default = run(lg.scaling.plane_scheme("-1/2", 1, 0), optimizer=lg.gd(0.1), steps=1)
    report = lg.scaling.measure_exponents(default, [64, 16, 32], seeds=4, key=0)
    assert report.classification.kind == "unstable"
    assert report.deviations == ()
    assert "unstable: predictions" in str(report)
    data = report.to_xarray()
    assert data.width.values.tolist() == [16, 32, 64]
    assert data["size"].dims == ("quantity", "width")
    start, end = lg.networks.train_and_measure(
        default, 16, lambda network, start, end, x: (start, end), seeds=4, key=0
    )
    moved = np.sqrt(np.mean((end[2]["weight"] - start[2]["weight"]) ** 2))
    by_name = data.set_index(quantity=["group", "name"])["size"]
    assert float(by_name.sel(group="absolute", name="2.weight", width=16)) == pytest.approx(moved)
    report.plot(tmp_path / "exponents.png")
    assert (tmp_path / "exponents.png").stat().st_size > 10_000
    with pytest.raises(KeyError, match="names 2 of the quantities"):
        report["0.weight"]


def test_terms_add_up_and_have_their_gates():
    network = lg.networks.finite_network(
        lg.mlp(1, "leaky_relu"), lg.mean_field(), width=20, inputs=3
    )
    start, end = network.init(0, np.float64), network.init(1, np.float64)
    parts = decomposition(network, start, end, Z)
    whole = sum(np.asarray(part)[:, 0] for part in parts.values())
    np.testing.assert_allclose(whole, network.apply(end, Z), rtol=1e-5)
    w0, w1, a0 = start[0]["weight"], end[0]["weight"], start[2]["weight"]
    gates = np.where(
        Z @ w1 > 0, 1.0, lg.expectations.as_activation("leaky_relu")(np.array([-1.0])) / -1.0
    )
    by_hand = (gates * (Z @ (w1 - w0))) @ a0 / np.sqrt(3) / 20
    np.testing.assert_allclose(parts["w"], by_hand, rtol=1e-5)
    assert has_terms(lg.mlp(1, "relu"))
    for net in (lg.mlp(2), lg.mlp(1, "tanh"), lg.mlp(1, "linear"), lg.mlp(1, bias_std=1.0)):
        assert not has_terms(net)


@pytest.mark.parametrize("q", [0.0, -0.5, 0.25])
@pytest.mark.parametrize("b", [0.0, 8.0, 200.0])
def test_fit_recovers_exponents_under_a_correction(q, b):
    """⟨square⟩ = N^(2q)(1 + b/N), each network's a χ² about it: z-scores over repetitions."""
    widths = np.array([32, 64, 128, 256, 512, 1024])
    law = widths ** (2 * q) * (1 + b / widths)
    rng = np.random.default_rng(0)
    scores, errors = [], []
    for _ in range(20):
        estimate = exponent(widths, law[:, None] * rng.chisquare(4, (6, 64)) / 4)
        errors.append(estimate.error)
        scores.append((estimate.value - q) / estimate.error)
    assert np.mean(np.abs(scores) > 2) <= 0.15, scores
    # What b = 200 does to six widths leaves little: 1 + b/N is 7 at the first and 1.2 at the last.
    assert np.mean(errors) < (0.2 if b == 200 else 0.06), errors


@pytest.mark.slow
def test_what_counts_as_a_deviation():
    def row(value, error, known=True, predicted: F | None = F(-1, 2), zero=False):
        return MeasuredExponent("g", "n", PowerLaw(value, error), known, predicted, zero)

    assert not row(-0.47, 0.02).deviates
    assert row(-0.45, 0.02).deviates
    assert not row(-0.45, 0.02, known=False).deviates
    assert row(-0.45, 0.02, predicted=None).deviates  # predicted to be zero, and is not
    assert not row(np.nan, np.nan, predicted=None).deviates
    small = row(np.nan, np.nan)  # it may have the predicted exponent: nobody knows
    assert small.state == "unresolved"
    assert not small.deviates
    zero = row(np.nan, np.nan, zero=True)
    assert zero.state == "zero"
    assert not zero.deviates
    assert row(-0.47, 0.02).state == "number"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "rate"),
    # In the mean field far enough for f_∅ to be near its constant, as in gradient descent.
    [((-1, 1), 0.1), pytest.param(("-1/2", 0), 0.02, marks=pytest.mark.slow)],
    ids=["mean field", "NTK"],
)
def test_terms_under_an_adaptive_optimizer(point, rate):
    """Parities as under gradient descent, increments of the order of the rates."""
    adaptive = run(
        lg.scaling.plane_scheme(*point), optimizer=lg.optimizers.rmsprop(rate, beta=0.9), steps=4
    )
    report = lg.scaling.measure_exponents(adaptive, (64, 256, 1024), seeds=48, key=2)
    assert report.deviations == (), str(report)
    wanted = {"∅": 0, "a": 0, "w": 0, "aw": 0 if point == (-1, 1) else -1}
    assert {t: report["terms", f"f_{t}"].predicted for t in wanted} == wanted
