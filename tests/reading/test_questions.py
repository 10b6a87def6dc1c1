"""Questions to a model that was read, each against another route to the same numbers."""

import numpy as np
import pytest
from tests.reading.models import PLANE, VECTORS, Residual, normal, perceptron
from tests.reading.test_reading import too_steep
from torch import nn

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.reading.torch.rules import RULES
from largen.transfer.torch.tangents import ntk_of_module

X = np.random.default_rng(0).normal(size=(4, 20))
SMALL = (8, 16)


def chain(n, layers=3, gain=1.44, bias=0.1):
    blocks = [part for _ in range(layers) for part in (nn.Tanh(), nn.Linear(n, n))]
    net = nn.Sequential(nn.Linear(20, n), *blocks, nn.Tanh(), nn.Linear(n, 2))
    normal(net, gain, bias)
    return net


def in_own_layers(layers=3):
    return lg.mlp(layers + 1, "tanh", weight_std=1.2, bias_std=0.1)


@pytest.mark.slow
def test_depth_is_that_of_the_same_network_in_our_layers():
    net = lg.read(chain, X, SMALL)
    expected = lg.criticality.propagate(in_own_layers(), X)
    found = net.propagation()
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-10)
    depth = net.depth()
    assert depth.blocks == ("2", "4", "6")
    np.testing.assert_allclose(depth.gradients, expected.chi_perp[1:4].mean(1), rtol=1e-10)
    np.testing.assert_allclose(
        depth.variance.prod(), expected.variance[3].mean() / expected.variance[0].mean()
    )
    assert depth.scale == pytest.approx(-1 / np.log(depth.gradients).mean())


@pytest.mark.parametrize("optimizer", ["gd", "adam"])
def test_the_class_is_that_of_the_standard_parameterization(optimizer):
    found = lg.read(chain, X, SMALL).classify(optimizer)
    expected = lg.scaling.classify(lg.standard(), in_own_layers(), optimizer)
    assert (found.kind, found.stable_rate) == (expected.kind, expected.stable_rate)
    for one, two in zip(found.layers, expected.layers, strict=True):
        assert (one.change, one.through, one.increment) == (two.change, two.through, two.increment)


class Block(nn.Module):
    """A norm, gates and a skip."""

    def __init__(self, n):
        super().__init__()
        self.a, self.norm, self.gate = nn.Linear(20, n), nn.RMSNorm(n), nn.Linear(n, n, bias=False)
        self.up, self.down = nn.Linear(n, n, bias=False), nn.Linear(n, n, bias=False)
        self.head = nn.Linear(n, 1, bias=False)

    def forward(self, x):
        h = self.a(x)
        z = self.norm(h)
        return self.head(h + self.down(nn.functional.silu(self.gate(z)) * self.up(z)))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["gd", "adam"])
def test_norms_and_gates_have_a_class(optimizer):
    gate = lg.serial(lg.Dense(), lg.Activation("silu"))
    branch = lg.serial(lg.RMSNorm(), lg.layers.Product(gate, lg.Dense()), lg.Dense())
    own = lg.serial(lg.Dense(bias_std=1.0), lg.Residual(branch), lg.Dense())
    found = lg.read(Block, X, SMALL).classify(optimizer)
    expected = lg.scaling.classify(lg.standard(), own, optimizer)
    assert (found.kind, found.stable_rate) == (expected.kind, expected.stable_rate)
    for one, two in zip(found.layers, expected.layers, strict=True):
        assert (one.initial, one.change, one.through) == (two.initial, two.change, two.through)
    assert "class: gd at one rate" in str(lg.read(Block, X, SMALL))


def test_factors_of_the_forward_pass_count_for_the_class():
    class Scaled(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.a, self.b = nn.Linear(5, n), nn.Linear(n, 1, bias=False)
            nn.init.normal_(self.a.weight)
            nn.init.normal_(self.a.bias)
            nn.init.normal_(self.b.weight)
            self.n = n

        def forward(self, x):
            return self.b(self.a(x).tanh()) / self.n**0.5

    found = lg.read(lambda n: Scaled(n), VECTORS, SMALL).classify()
    assert found.kind == "kernel"


@pytest.mark.slow
@pytest.mark.parametrize("zero", [False, True])
def test_a_kernel_of_given_rates_is_that_of_modules(zero):
    def make(n):
        return chain(n, 1, bias=0.0 if zero else 0.3)

    net = lg.read(make, X, SMALL)
    rates = {"0.weight": 0.5, "2.bias": 40.0}
    theory = net.kernel(X, width=96, rates=rates).ntk
    draws = []
    for seed in range(60):
        module = net.family.module(96, seed).double()
        draws.append(np.einsum("abkk->ab", ntk_of_module(module, X, rates=rates)) / 2)
    error = np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))
    # What is left at width 96 is of relative order 1/96.
    assert (abs(np.mean(draws, axis=0) - theory) < 4 * error + 0.01 * theory.max()).all()
    without = net.kernel(X, width=96, rates=rates | {"2.bias": 0.0}).ntk
    assert (abs(np.mean(draws, axis=0) - without) > 4 * error + 0.01 * theory.max()).any()


@pytest.mark.parametrize("images", [False, True])
def test_trained_gains_have_rates(images):
    def make(n):
        if not images:
            module = nn.Sequential(
                nn.Linear(5, n), nn.LayerNorm(n), nn.Tanh(), nn.Linear(n, n), nn.RMSNorm(n),
                nn.ReLU(), nn.Linear(n, 1, bias=False),
            )  # fmt: skip
        else:
            module = nn.Sequential(
                nn.Conv2d(2, n, 2), nn.GroupNorm(1, n), nn.ReLU(), nn.Flatten(), nn.Linear(4 * n, 1)
            )
        nn.init.constant_(module[1].weight, 0.7)
        normal(module)
        return module

    x = np.random.default_rng(4).normal(size=(3, 2, 3, 3)) if images else VECTORS[:3]
    net = lg.read(make, x, SMALL)
    rates = {"1.weight": 60.0, "1.bias": 30.0, "0.weight": 0.1}
    theory = net.kernel(x, width=64, rates=rates).ntk
    draws = []
    for seed in range(60):
        module = net.family.module(64, seed).double()
        draws.append(ntk_of_module(module, x, rates=rates).reshape(3, 3))
    error = np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))
    # What is left at width 64 is of relative order 1/64.
    assert (abs(np.mean(draws, axis=0) - theory) < 4 * error + 0.015 * theory.max()).all()
    for name in ("1.weight", "1.bias"):
        without = net.kernel(x, width=64, rates=rates | {name: 0.0}).ntk
        assert (abs(np.mean(draws, axis=0) - without) > 4 * error + 0.015 * theory.max()).any()
    with pytest.raises(NoTheory, match="populations have no rule"):
        net.kernel(x, width=64, rates=rates, method="population")


def test_rates_keep_the_law_of_a_read_in():
    net = lg.read(perceptron, PLANE, SMALL)
    laws = net.family.at(24)
    rates = {name: law.law.variance for name, law in laws.items()}
    found = net.kernel(PLANE, width=24, rates=rates)
    for one, two in zip(found, net.kernel(PLANE, width=24), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)


@pytest.mark.slow
def test_the_critical_rate_falls_as_one_over_the_width():
    net = lg.read(chain, X, SMALL)
    one, two = (net.critical_rate(width=n) for n in (4096, 8192))
    assert two == pytest.approx(one / 2, rel=0.01)
    kernel = net.kernel(X, width=4096, rates=1.0).ntk
    assert one == pytest.approx(2 * len(X) / np.linalg.eigvalsh(kernel)[-1], rel=1e-9)


def test_corrections_are_those_of_the_same_network_in_our_layers():
    found = lg.read(lambda n: chain(n, 1), X, SMALL).corrections(width=64)
    own = lg.finite_width.width_corrections(in_own_layers(1), X[:2], width=64)
    np.testing.assert_allclose(found.kernel_covariance, own.kernel_covariance, rtol=1e-10)
    assert found.widths == (64, 64)


def stock(n):
    """PyTorch's own uniform weights, behind a normal read-in."""
    net = nn.Sequential(nn.Linear(20, n), nn.Tanh(), nn.Linear(n, n), nn.Tanh(), nn.Linear(n, 2))
    nn.init.normal_(net[0].weight, std=20**-0.5)
    nn.init.zeros_(net[0].bias)
    return net


def test_corrections_have_the_law_of_the_weights():
    found = lg.read(stock, X, SMALL).corrections(width=64)
    uniform = {"weight_std": 3**-0.5, "bias_std": (3 * 64) ** -0.5}
    own = lg.serial(
        lg.Dense(), lg.Activation("tanh"), lg.Dense(**uniform), lg.Activation("tanh"),
        lg.Dense(**uniform),
    )  # fmt: skip
    expected, normal = (
        lg.finite_width.width_corrections(own, X[:2], width=64, excess=excess)
        for excess in ([-1.2] * 2, 0.0)  # its read-in is normal
    )
    np.testing.assert_allclose(found.kernel_shift, expected.kernel_shift, rtol=1e-8)
    np.testing.assert_allclose(found.ntk_covariance, expected.ntk_covariance, rtol=1e-8)
    assert abs(normal.kernel_shift / expected.kernel_shift - 1).max() > 0.1
    for function in (lg.finite_width.width_corrections, lg.finite_width.width_fluctuations):
        with pytest.raises(NoTheory, match="fourth moments"):
            function(lg.read(stock, X, SMALL), X[:2], width=64)


class Stream(nn.Module):
    """Branches that are added as they are."""

    def __init__(self, n):
        super().__init__()
        self.a, self.head = nn.Linear(20, n), nn.Linear(n, 2)
        self.branches = nn.ModuleList(nn.Linear(n, n) for _ in range(2))
        normal(self, 1.0, 0.0)

    def forward(self, x):
        h = self.a(x)
        for branch in self.branches:
            h = h + 0.5 * branch(h.tanh())
        return self.head(h.tanh())


def test_streams_have_corrections_and_fluctuations():
    net = lg.read(Stream, X, SMALL)
    branch = lg.Residual(lg.serial(lg.Activation("tanh"), lg.Dense(weight_std=0.5)))
    own = lg.serial(lg.Dense(), branch, branch, lg.Activation("tanh"), lg.Dense())
    expected = lg.finite_width.width_corrections(own, X[:2], width=32)
    found = net.corrections(width=32)
    np.testing.assert_allclose(found.kernel_shift, expected.kernel_shift, rtol=1e-8)
    np.testing.assert_allclose(found.kernel_covariance, expected.kernel_covariance, rtol=1e-8)
    drawn = net.fluctuations(X[:2], width=32, draws=50)
    same = lg.finite_width.width_fluctuations(own, X[:2], width=32, draws=50)
    np.testing.assert_allclose(drawn.kernel_samples, same.kernel_samples, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("gaussian", [True, False])
def test_convolutions_have_fluctuations(gaussian):
    def make(n):
        net = nn.Sequential(
            nn.Conv2d(3, n, 3, padding=1), nn.Tanh(), nn.Conv2d(n, n, 3, padding=1), nn.Tanh(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, 2),
        )  # fmt: skip
        for layer in (net[0], net[2], net[6])[: 3 if gaussian else 1]:
            nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
            nn.init.zeros_(layer.bias)
        return net

    images = np.random.default_rng(1).normal(size=(2, 3, 4, 4))
    net = lg.read(make, images, SMALL)
    found = net.fluctuations(width=8, draws=200, key=1)
    np.testing.assert_allclose(found.kernel, net.kernel(images, width=8).nngp, rtol=1e-6)
    if not gaussian:
        assert found.kernel_shift is None
        assert found.ntk_samples is None
        with pytest.raises(NoTheory, match="weights that are not Gaussian"):
            found.ntk_covariance([(0, 0)])
        return
    conv = lg.Conv((3, 3), padding="SAME")
    own = lg.serial(
        conv, lg.Activation("tanh"), conv, lg.Activation("tanh"), lg.layers.GlobalAvgPool(),
        lg.Dense(),
    )  # fmt: skip
    channels_last = np.moveaxis(images, 1, -1)
    same = lg.finite_width.width_fluctuations(own, channels_last, width=8, draws=200, key=1)
    np.testing.assert_allclose(found.kernel_shift, same.kernel_shift, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_predictions_are_those_of_the_posterior(kind):
    net, y = lg.read(chain, X, SMALL), np.arange(3.0)
    found = net.predict(X[:3], y, X[3:], kind=kind, noise=0.1)
    expected = lg.posterior(net.layer, X[:3], y, kind=kind, noise=0.1).predict(X[3:])
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-7)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-7)


@pytest.mark.slow
def test_the_report_answers_each_question_or_says_why_not():
    text = str(lg.read(chain, X, SMALL))
    assert "depth: 3 blocks of equal operations, 2 to 6" in text
    assert "critical σ_w 1, σ_b 0" in text
    assert "class: gd at one rate for all parameters: unstable, and stable if all rates" in text
    assert "is stable below" in text
    assert "finite width: at width 8" in text
    other = str(lg.read(Residual(16), VECTORS))
    assert "class: does not apply: it was read from one module" in other
    assert "criticality: does not apply" in other


@pytest.mark.slow
def test_questions_that_have_no_answer_are_refused_by_name():
    net = lg.read(chain, X, SMALL)
    with pytest.raises(InvalidInput, match=r"rates: .*wanted a width"):
        net.kernel(X, rates=1.0)
    with pytest.raises(InvalidInput, match=r"rates: 'a' is no parameter"):
        net.kernel(X, width=8, rates={"a": 1.0})
    with pytest.raises(NoTheory, match="no operations are repeated"):
        lg.read(perceptron, PLANE, SMALL).depth()
    with pytest.raises(InvalidInput, match="read from one module"):
        lg.read(Residual(16), VECTORS).classify()


@pytest.mark.slow
def test_a_check_names_the_first_module_that_differs(monkeypatch):
    monkeypatch.setitem(RULES, "gelu", too_steep)
    check = lg.read(lambda n: Residual(n), VECTORS, SMALL).check(widths=(48, 96, 192), seeds=48)
    assert check.first == "blocks.0.2"
    assert "blocks.0.2" in check.verdict


def test_variances_that_averages_do_not_resolve_are_refused():
    net = lg.read(lambda n: chain(n, 1), X, SMALL)
    with pytest.raises(NumericalFailure, match=r"at the variance .* are not resolved"):
        net.corrections(1e20 * X[:2], width=8)


def test_the_report_of_a_shallow_model_names_no_path_without_steps():
    text = str(lg.read(lambda n: nn.Sequential(nn.Linear(20, n), nn.ReLU(), nn.Linear(n, 1)), X))
    (signal,) = (line for line in text.splitlines() if line.startswith("signal"))
    assert "back to" not in signal
    (finite,) = (line for line in text.splitlines() if line.startswith("finite width"))
    assert "  " not in finite
    module = str(lg.read(nn.Linear(20, 1), X))
    assert "class: does not apply: it was read from one module" in module
