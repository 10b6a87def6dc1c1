"""Models that are read: their kernels by hand, laws, refusals, and draws of the models."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from tests.reading import by_hand as hand
from tests.reading.models import CASES, IMAGES, PLANE, ROWS, VECTORS, Residual, normal, perceptron
from torch import nn

import largen as lg
from largen.errors import InvalidInput, NoRule, NotGaussian, NoTheory
from largen.reading.torch.construction import construct
from largen.reading.torch.rules import RULES

each_case = pytest.mark.parametrize("name", CASES)
SMALL = (8, 16)


def largest_error(found, expected):
    return [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, expected, strict=True)]


@pytest.mark.slow
@each_case
@pytest.mark.parametrize("width", [None, 24])
def test_kernels_are_those_by_hand(name, width):
    case = CASES[name]
    net = lg.read(case.make, case.x, SMALL)
    found = net.kernel(case.x, width=width)
    expected = case.by_hand(case.x, np.inf if width is None else width)
    assert max(largest_error(found, expected)) < case.rtol


@pytest.mark.slow
@each_case
def test_draws_of_a_model_agree_with_its_reading(name):
    case = CASES[name]
    check = lg.read(case.make, case.x, SMALL).check(widths=(48, 96, 192), seeds=48)
    assert check.agrees, check
    assert check.nngp_error.max() < 0.1


def only_the_first(reader, call, input, other, alpha=1):
    return reader.value(input, call)


def too_steep(reader, call, input, approximate="none"):
    return reader.function(call, input, "relu")


@pytest.mark.slow
@pytest.mark.parametrize(("op", "broken"), [("add", only_the_first), ("gelu", too_steep)])
def test_a_wrong_rule_is_found_by_draws(monkeypatch, op, broken):
    monkeypatch.setitem(RULES, op, broken)
    check = lg.read(lambda n: Residual(n), VECTORS, SMALL).check(widths=(48, 96, 192), seeds=48)
    assert not check.agrees, check


@pytest.mark.slow
def test_a_uniform_read_in_has_its_own_law():
    net = lg.read(perceptron, PLANE, SMALL)
    gaussian = lg.kernel(net.layer, PLANE)
    assert max(largest_error(gaussian, net.kernel(PLANE))) > 0.02
    one, two = net.kernel(PLANE), net.kernel(PLANE[:2], PLANE[1:])
    np.testing.assert_allclose(two.ntk, one.ntk[:2, 1:], rtol=1e-12)
    with pytest.raises(NoTheory, match=r"0: sums of 2 uniform weights are not Gaussian.*net.layer"):
        lg.posterior(net, PLANE, np.ones(3))
    assert "excess kurtosis about" in str(net)


def sines(n):
    """PyTorch's uniform biases times 32, which are most of the variance at width 128."""
    net = Net(n, lambda m, x: m.head(torch.sin(32 * m.b(torch.sin(m.a(x))))))
    for part, std in ((net.a, 1.0), (net.b, 1 / 32), (net.head, 1.0)):
        nn.init.normal_(part.weight, std=std / part.in_features**0.5)
    return net


@pytest.mark.slow
def test_a_check_names_biases_that_are_not_gaussian():
    check = lg.read(sines, VECTORS, SMALL).check(widths=(64, 128), seeds=100)
    assert not check.agrees
    assert check.uniform == "b"
    assert "at width 128 the biases of b are a large part of the variance" in check.verdict


@pytest.mark.slow
def test_functions_take_a_model_as_a_network():
    net = lg.read(CASES["recurrent"].make, VECTORS, SMALL)
    np.testing.assert_allclose(lg.nngp_kernel(net, VECTORS), net.kernel(VECTORS).nngp, rtol=1e-12)
    mean = lg.posterior(net, VECTORS, np.arange(3.0)).predict(VECTORS).mean
    np.testing.assert_allclose(mean, np.arange(3.0), atol=1e-6)
    other = lg.read(CASES["gated"].make, VECTORS, SMALL)  # two models are not equal by their fields
    assert np.abs(lg.nngp_kernel(other, VECTORS) - net.kernel(VECTORS).nngp).max() > 0.1


def test_a_module_has_the_constants_of_its_width():
    net = lg.read(Residual(24), VECTORS)
    family = lg.read(lambda n: Residual(n), VECTORS, SMALL)
    for one, two in zip(net.kernel(VECTORS), family.kernel(VECTORS, width=24), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
    for ask in (lambda: net.kernel(VECTORS, width=32), net.check):
        with pytest.raises(InvalidInput, match="read from one module"):
            ask()


def law(fill, shape=(200, 300)):
    def build():
        module = nn.Module()
        module.p = nn.Parameter(torch.empty(shape))
        with torch.no_grad():
            module.p = nn.Parameter(fill(module.p))
        return module

    return construct(build)[1]["p"]


@pytest.mark.parametrize(
    ("fill", "kind", "variance"),
    [
        (lambda p: nn.init.xavier_uniform_(p, gain=2), "uniform", 8 / 500),
        (lambda p: nn.init.kaiming_normal_(p, mode="fan_out"), "normal", 2 / 200),
        (lambda p: p.normal_().mul_(3).div_(2), "normal", 9 / 4),
        (lambda p: 0.1 * torch.randn(200, 300), "normal", 0.01),
        (lambda p: torch.rand(200, 300) - 0.5, "uniform", 1 / 12),
        (lambda p: nn.init.trunc_normal_(p, 0, 0.5, -1, 1), "truncated normal", None),
        (lambda p: nn.init.orthogonal_(p, gain=2), "orthogonal", 4 / 300),
        (lambda p: nn.init.ones_(p), "constant", 0.0),
    ],
)
def test_laws_are_read_exactly(fill, kind, variance):
    found = law(fill).law
    if variance is None:
        variance = 0.25 * stats.truncnorm.var(-2, 2)
    assert found.kind == kind
    assert found.variance == pytest.approx(variance, rel=1e-5 if kind == "orthogonal" else 1e-12)


@pytest.mark.parametrize(
    "fill",
    [
        lambda p: nn.init.sparse_(p, 0.5),
        lambda p: nn.init.eye_(p),
        lambda p: nn.init.normal_(p).pow_(3),
        lambda p: nn.init.normal_(p).clamp_(-1, 1),
        lambda p: torch.from_numpy(np.random.default_rng(0).normal(size=(200, 300))),
    ],
)
def test_laws_that_are_not_known_are_not_guessed(fill):
    found = law(fill)
    assert found.law is None
    assert found.why


class Net(nn.Module):
    """Three maps; what happens between them is given."""

    def __init__(self, n, forward, start=5):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(start, n), nn.Linear(n, n), nn.Linear(n, 2)
        self.few = nn.Linear(n, 4)
        self.body = forward

    def forward(self, x):
        return self.body(self, x)


def in_place(m, x):
    h = m.a(x)
    view = h.view(len(h), -1)
    h.relu_()
    return m.head(view)


def written(m, x):
    h = m.a(x)
    h[:, 0] = 0
    return m.head(h)


def parts(m, x):
    h = m.a(x)
    return m.head(torch.cat([h[:, :2], h[:, 2:]], 1))


REFUSED = {
    "max over channels": (lambda m, x: m.head(m.a(x).max(dim=1, keepdim=True)[0] * m.a(x)), "max"),
    "softmax of the output": (lambda m, x: m.head(m.a(x)).softmax(-1), r"softmax.*logits"),
    "a transpose": (
        lambda m, x: m.head(torch.tanh(m.b(m.a(x))) @ m.b.weight), "b.weight: .*transpose",
    ),
    "a copy of a weight": (lambda m, x: m.head(m.a(x) @ m.b.weight.clone()), "clone"),
    "a matrix and its transpose": (
        lambda m, x: m.head(torch.tanh(m.a(x) @ m.b.weight.T) @ m.b.weight), "b.weight: .*transp",
    ),
    "numbers in Python": (lambda m, x: m.head(m.a(x)) * float(m.a(x).sum()), "float"),
    "a view behind a change in place": (in_place, "in place"),
    "writing": (written, "setitem"),
    "a part of the channels": (parts, "getitem"),
    "a sum over channels": (lambda m, x: m.head(m.a(x) * m.a(x).sum(-1, keepdim=True)), "sum"),
    "narrow layers": (lambda m, x: F.linear(m.few(m.a(x)), m.head.weight[:, :4]), "a part of"),
    "a function behind the last weights": (lambda m, x: torch.tanh(m.head(m.a(x))), "not linear"),
    "two read-outs": (lambda m, x: m.head(m.a(x)) + m.few(m.a(x))[:, :2], "read-out"),
    "noise": (lambda m, x: m.head(F.dropout(m.a(x), 0.5)), "draws masks"),
    "a tensor of numbers": (lambda m, x: m.head(m.a(x) * torch.arange(m.b.in_features)), "differ"),
    "a matrix of samples": (lambda m, x: m.head(m.a(x)).T, "samples"),
    "attention": (
        lambda m, x: m.head(F.scaled_dot_product_attention(m.a(x), m.b(m.a(x)), m.a(x))),
        "scaled_dot_product_attention",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_by_name(name):
    forward, said = REFUSED[name]
    with pytest.raises(NoRule, match=rf"(?s)lg\.read: .*{said}"):
        lg.read(lambda n: Net(n, forward), VECTORS, SMALL)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (lambda n: nn.MaxPool2d(1), r"1 \(max_pool2d\).*average pooling"),
        (lambda n: nn.GroupNorm(n // 2, n), "1 .*grows with the width"),
        (lambda n: nn.Conv2d(n, n, 1, groups=n), "1 .*grows with the width"),
    ],
    ids=["maximum", "norm", "convolution"],
)
def test_a_module_alone_is_read_by_exact_rules_only(part, said):
    def make(n):
        return nn.Sequential(nn.Conv2d(3, n, 4), part(n), nn.ReLU(), nn.Flatten(), nn.Linear(n, 2))

    with pytest.raises(NoRule, match=rf"lg\.read: {said}"):
        lg.read(make(8), IMAGES)
    assert lg.read(make, IMAGES, SMALL).unread


PLAIN = {  # the same maps, as they are written by hand
    "transposed": lambda m, x: m.head(torch.relu(torch.tanh(m.a(x)) @ m.b.weight.T)),
    "turned": lambda m, x: m.head(
        torch.relu(torch.matmul(m.a(x).tanh(), m.b.weight.transpose(0, 1)))
    ),
    "twice": lambda m, x: m.head(torch.relu(F.linear(m.a(x).tanh(), m.b.weight.t().mT))),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_transposed_matrix_is_a_matrix(name):
    expected = lg.read(
        lambda n: Net(n, lambda m, x: m.head(torch.relu(F.linear(m.a(x).tanh(), m.b.weight)))),
        VECTORS, SMALL,
    )  # fmt: skip
    found = lg.read(lambda n: Net(n, PLAIN[name]), VECTORS, SMALL)
    for width in (None, 24):
        for one, two in zip(
            found.kernel(VECTORS, width=width), expected.kernel(VECTORS, width=width), strict=True
        ):
            np.testing.assert_array_equal(one, two)
    how = lg.reading.Population(neurons=64, replicates=2)
    for one, two in zip(
        found.kernel(VECTORS, method=how), expected.kernel(VECTORS, method=how), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-10)


def test_orders_of_axes_are_followed():
    class Mixed(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.conv, self.lin = nn.Conv1d(2, n, 3), nn.Linear(n, n)
            self.norm, self.head = nn.LayerNorm(n), nn.Linear(4 * n, 2)
            normal(self)

        def forward(self, x):
            h = self.norm(self.lin(torch.relu(self.conv(x)).permute(0, 2, 1)))
            return self.head(h.transpose(-1, 1).tanh().mT.reshape(len(x), -1))

    found = lg.read(lambda n: Mixed(n), ROWS, SMALL).kernel(ROWS)
    x = np.moveaxis(ROWS, 1, -1)
    h = hand.relu(hand.affine(hand.moved(hand.data(x), hand.taps_1d(6, padding=0), 2), 1))
    h = hand.tanh(hand.normed(hand.affine(h, 1), 1e-5))
    assert max(largest_error(found, hand.affine(hand.flattened(h, 4, 2), 1))) < 1e-8


def test_a_read_in_that_vanishes_has_a_kernel_at_a_width():
    def make(n):
        net = nn.Sequential(nn.Linear(5, n), nn.ReLU(), nn.Linear(n, 2))
        nn.init.kaiming_normal_(net[0].weight, mode="fan_out")
        nn.init.zeros_(net[0].bias)
        return net

    net = lg.read(make, VECTORS, SMALL)
    with pytest.raises(NoTheory, match=r"0.weight.*vanishes as width\^\(-1\).*width=n"):
        net.kernel(VECTORS)
    with pytest.raises(NoTheory, match="vanishes"):
        lg.kernel(net, VECTORS)
    assert "no limit" in str(net)
    found = [net.kernel(VECTORS, width=n).nngp - 1 / (3 * n) for n in (16, 64)]
    np.testing.assert_allclose(found[0], 4 * found[1], rtol=1e-6)


def test_powers_of_the_width_are_read_where_sizes_are_added():
    def make(n):  # 2/(n + 2) per entry: σ_w² = 2 n/(n + 2) → 2
        net = nn.Sequential(nn.Linear(5, n), nn.ReLU(), nn.Linear(n, 2))
        normal(net)
        nn.init.xavier_normal_(net[2].weight)
        return net

    net = lg.read(make, VECTORS, SMALL)
    assert net.weights[1].weight_variance.limit == pytest.approx(2, rel=1e-6)
    assert net.at(16).parts[-1].weight_std ** 2 == pytest.approx(2 * 16 / 18)


def test_the_module_is_named_where_kernels_have_no_rule():
    def forward(m, x):
        h = torch.relu(m.a(x))
        return m.head(torch.relu(h + m.b(h)))

    net = lg.read(lambda n: Net(n, forward), VECTORS, SMALL)
    with pytest.raises(NoTheory, match=r"lg\.read: relu#2: .*acts on the sum Net, which is not"):
        net.kernel(VECTORS, method="recursion")
    assert "kernels: populations" in str(net)


def test_kernels_of_convolutions_warn_of_uniform_read_ins():
    def make(n):
        return nn.Sequential(nn.Conv2d(3, n, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9 * n, 2))

    with pytest.warns(NotGaussian, match=r"0: sums of 12 uniform weights"):
        lg.read(make, IMAGES, SMALL).kernel(IMAGES)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda n: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)), "has to use"),
        (
            lambda n: nn.Sequential(nn.Linear(5, n), *[nn.Tanh()] * n, nn.Linear(n, 1)),
            "something else|operations",
        ),
        (lambda n: nn.Sequential(nn.Linear(4, n), nn.Linear(n, 1)), "the module fails"),
        (lambda n: 1 / 0, "ZeroDivisionError"),
        (lambda n: None, "wanted a torch.nn.Module"),
        (3, "wanted a function"),
        (nn.Linear, "raised TypeError"),
    ],
)  # fmt: skip
def test_wrong_functions_are_named(make, said):
    with pytest.raises((InvalidInput, NoRule), match=said):
        lg.read(make, VECTORS, SMALL)


@pytest.mark.slow
def test_the_report_has_laws_and_powers():
    text = str(lg.read(lambda n: Residual(n), VECTORS))
    assert "blocks.0.1.weight  n       uniform  0.3333  uniform  0.0104 (n/32)^(-1)" in text
    assert "vanishing biases: blocks.0.1.bias" in text
    assert lg.read(Residual(16), VECTORS)._repr_html_().startswith("<pre>Residual, read as it is")


def test_a_class_whose_argument_is_the_width_is_read():
    class Narrow(nn.Module):
        def __init__(self, width=8):
            super().__init__()
            self.first, self.last = nn.Linear(5, width), nn.Linear(width, 1)

        def forward(self, x):
            return self.last(torch.tanh(self.first(x)))

    x = np.eye(5)[:3]
    assert lg.read(Narrow, x).kernel(x).nngp.shape == (3, 3)


class TwoHeads(nn.Module):
    def __init__(self, width, returned):
        super().__init__()
        self.returned, self.first = returned, nn.Linear(80, width)
        self.policy, self.value = nn.Linear(width, 2), nn.Linear(width, 1)
        nn.init.normal_(self.policy.weight, std=0.1 * width**-0.5)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.returned(self.policy(h), self.value(h))


def test_one_output_of_several_is_read_by_its_name_only():
    x = np.random.default_rng(0).standard_normal((3, 80))
    for returned in (lambda p, v: (p, v), lambda p, v: {"policy": p, "value": v}):
        with pytest.raises(InvalidInput, match="returns 2 tensors that depend on x"):
            lg.read(lambda n, returned=returned: TwoHeads(n, returned), x, SMALL)
    alone = lg.read(lambda n: TwoHeads(n, lambda p, v: p), x, SMALL)
    named = lg.read(lambda n: TwoHeads(n, lambda p, v: {"value": v, "logits": p}), x, SMALL)
    np.testing.assert_array_equal(named.kernel(x).nngp, alone.kernel(x).nngp)
    checks = [net.check(x, widths=SMALL, seeds=8).to_xarray() for net in (alone, named)]
    assert checks[0].equals(checks[1])
