"""Models at populations of neurons: against exact kernels, draws of the models, and refusals."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.reading.models import CASES, IMAGES, TOKENS, VECTORS, normal
from tests.reading.population_models import MODELS, WORDS
from tests.reading.test_reading import Net
from torch import nn

import largen as lg
from largen.errors import InvalidInput, NoRule, NoTheory, NumericalFailure
from largen.kernels import Kernels
from largen.networks import KernelEstimate
from largen.reading import Population
from largen.reading.engine.calls import Affine
from largen.reading.engine.fields import Matrix
from largen.reading.torch.population.recurrent import CELLS
from largen.reading.torch.population.run import Population as Run

SMALL = (8, 16)
FEW = Population(neurons=512, replicates=16)


def relative_error(found):
    pairs = ((found.nngp, found.nngp_error), (found.ntk, found.ntk_error))
    return max(error.max() / kernel.max() for kernel, error in pairs)


def largest_z(found, expected):
    pairs = ((found.nngp, found.nngp_error), (found.ntk, found.ntk_error))
    return max(np.abs((f - k) / error).max() for (f, error), k in zip(pairs, expected, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [None, 24])
def test_both_readings_agree(name, width):
    case = CASES[name]
    found = lg.read(case.make, case.x, SMALL).kernel(case.x, width=width, method=FEW)
    expected = case.by_hand(case.x, np.inf if width is None else width)
    assert largest_z(found, expected) < 4
    assert (
        max(found.nngp_error.max() / found.nngp.max(), found.ntk_error.max() / found.ntk.max())
        < 0.05
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_draws_of_a_model_agree_with_its_population(name):
    make, x = MODELS[name]
    net = lg.read(make, x, SMALL)
    assert net.unread
    check = net.check(widths=(32, 64, 128), seeds=48)
    assert check.agrees, check
    assert check.nngp_error.max() < 0.12


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_without_exact_rules_have_kernels(name):
    make, x = MODELS[name]
    net = lg.read(make, x, SMALL)
    found = net.kernel(x)
    assert isinstance(found, KernelEstimate)
    assert (
        max(found.nngp_error.max() / found.nngp.max(), found.ntk_error.max() / found.ntk.max())
        < 0.05
    )
    assert "populations of neurons" in str(net)
    with pytest.raises(NoTheory, match=r"lg\.read: .*net\.kernel"):
        lg.kernel(net, x)
    with pytest.raises(NoTheory, match=r"lg\.read: "):
        net.kernel(x, method="recursion")


def test_populations_tell_their_progress():
    told = []
    how = Population(neurons=64, replicates=3, progress=lambda *done: told.append(done))
    case = CASES["perceptron"]
    lg.read(case.make, case.x, SMALL).kernel(case.x, method=how)
    assert told == [(1, 3), (2, 3), (3, 3)]


def twice(join):
    """Return a family of networks whose second map reads every neuron twice."""

    class Twice(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(5, n), nn.Linear(2 * n, n), nn.Linear(n, 2)
            normal(self)

        def forward(self, x):
            return self.head(torch.tanh(self.b(join(torch.tanh(self.a(x))))))

    return Twice


@pytest.mark.parametrize(
    "join", [lambda h: torch.repeat_interleave(h, repeats=2, dim=-1), lambda h: h.repeat(1, 2),
             lambda h: torch.tile(h, (2,))]
)  # fmt: skip
def test_copies_of_neurons_are_those_of_a_concatenation(join):
    found = lg.read(twice(join), VECTORS, SMALL).kernel(VECTORS, method=FEW)
    joined = lg.read(twice(lambda h: torch.cat([h, h], -1)), VECTORS, SMALL)
    assert largest_z(found, joined.kernel(VECTORS, method="recursion")) < 4


def alone(self, its: Affine) -> Matrix:
    return Matrix()


def without_old_uses(monkeypatch):
    monkeypatch.setattr(Run, "_matrix", alone)


def without_a_square_root(monkeypatch):
    own = Run._use

    def use(self, value, its):
        found = own(self, value, its)
        return found._replace(weight_variance=found.weight_variance**0.5)

    monkeypatch.setattr(Run, "_use", use)


def without_derivatives(monkeypatch):
    own = Run._use
    monkeypatch.setattr(
        Run, "_use", lambda self, value, its: own(self, value, its)._replace(derivative=None)
    )


def both_steps(m, x):
    one = torch.tanh(m.b(torch.tanh(m.a(x))))
    return m.head(one + torch.tanh(m.b(one)))


def steps(n):
    net = Net(n, both_steps)
    normal(net, 2.0, 0.5)
    return net


@pytest.mark.slow
def test_uses_of_a_matrix_are_drawn_together():
    net = lg.read(steps, VECTORS, SMALL)
    assert largest_z(net.kernel(VECTORS, method="population"), net.kernel(VECTORS)) < 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "make", "x"),
    [
        (without_old_uses, steps, VECTORS),
        (without_a_square_root, CASES["hourglass"].make, CASES["hourglass"].x),
        (without_derivatives, CASES["tokens"].make, CASES["tokens"].x),
    ],
)
def test_a_wrong_rule_disagrees_with_the_exact_reading(monkeypatch, break_it, make, x):
    net = lg.read(make, x, SMALL)
    break_it(monkeypatch)
    assert largest_z(net.kernel(x, method="population"), net.kernel(x)) > 5


def without_a_reset(x, h, state):
    (_, xz, xn), (_, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    z = torch.sigmoid(xz + hz)
    return ((1 - z) * torch.tanh(xn + hn) + z * state[0],)


@pytest.mark.slow
def test_a_wrong_rule_is_found_by_draws(monkeypatch):
    monkeypatch.setitem(CELLS, "gru", without_a_reset)
    make, x = MODELS["recurrent layers"]
    check = lg.read(make, x, SMALL).check(widths=(32, 64, 128), seeds=48)
    assert not check.agrees, check


@pytest.mark.slow
def test_a_reading_without_exact_rules_is_the_same_as_with_them():
    class Written(nn.Module):
        """The maximum of two equal values, and a norm by hand, over a known network."""

        def __init__(self, n):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(5, n), nn.Linear(n, n), nn.Linear(n, 2)
            normal(self, 1.5, 0.3)

        def forward(self, x):
            h = torch.tanh(self.a(x))
            h = torch.maximum(h, h.flip(0).flip(0))
            h = h * (h.square().sum(-1, keepdim=True) / h.shape[-1] + 1e-5).rsqrt()
            return self.head(torch.relu(self.b(h)))[:, 0]

    class Known(Written):
        def forward(self, x):
            h = F.rms_norm(torch.tanh(self.a(x)), (self.b.in_features,), eps=1e-5)
            return self.head(torch.relu(self.b(h)))

    found = lg.read(lambda n: Written(n), VECTORS, SMALL).kernel(VECTORS)
    exact = lg.read(lambda n: Known(n), VECTORS, SMALL).kernel(VECTORS)
    assert isinstance(exact, Kernels)
    assert largest_z(found, exact) < 4


@pytest.mark.slow
def test_rates_of_a_module_as_it_is():
    case = CASES["recurrent"]
    net = lg.read(case.make, case.x, SMALL)
    rates = {"hidden.weight": 0.5, "head.bias": 2.0}
    found = net.kernel(case.x, width=24, rates=rates, method=FEW)
    exact = net.kernel(case.x, width=24, rates=rates)
    assert largest_z(found, exact) < 4
    tokens = lg.read(*MODELS["causal"], SMALL)
    assert 0 < tokens.critical_rate(width=32) < tokens.critical_rate(width=16)


@pytest.mark.slow
def test_a_sum_that_is_not_gaussian_is_sampled():
    def forward(m, x):
        h = torch.relu(m.a(x))
        return m.head(torch.relu(h + m.b(h)))

    net = lg.read(lambda n: Net(n, forward), VECTORS, SMALL)
    assert not net.unread
    assert isinstance(net.kernel(VECTORS), KernelEstimate)
    assert isinstance(net.kernel(VECTORS, method="population"), KernelEstimate)


@pytest.mark.slow
def test_two_sets_of_samples_and_seeds():
    make, x = MODELS["siamese"]
    net = lg.read(make, x, SMALL)
    whole, part = net.kernel(x, method=FEW), net.kernel(x[:2], x[2:], method=FEW)
    np.testing.assert_allclose(part.ntk, whole.ntk[:2, 2:], rtol=1e-12)
    other = net.kernel(x, method=Population(neurons=512, replicates=16, key=1))
    assert 0 < np.abs(other.nngp - whole.nngp).max() < 0.1 * whole.nngp.max()
    with pytest.raises(NumericalFailure, match="wanted more neurons") as failed:
        net.kernel(x, method=FEW, rtol=1e-4)
    assert isinstance(failed.value.result, KernelEstimate)
    assert net.kernel(x, method=FEW, rtol=1e-4, throw=False).nngp.shape == (3, 3)
    mean = net.predict(x, np.arange(3.0), x).mean
    np.testing.assert_allclose(mean, np.arange(3.0), atol=1e-6)


@pytest.mark.slow
def test_a_read_in_that_vanishes_has_a_population_at_a_width():
    def make(n):
        net = nn.Sequential(
            nn.Conv2d(3, n, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(n, 2, bias=False)
        )
        nn.init.kaiming_normal_(net[0].weight, mode="fan_out")
        nn.init.zeros_(net[0].bias)
        return net

    net = lg.read(make, IMAGES, SMALL)
    with pytest.raises(NoTheory, match=r"0.weight.*vanishes as width\^\(-1\)"):
        net.kernel(IMAGES)
    found = [net.kernel(IMAGES, width=n).nngp for n in (16, 64)]
    np.testing.assert_allclose(found[0], 4 * found[1], rtol=1e-9)


def test_a_function_that_sets_a_seed_is_named():
    def make(n):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, n), nn.ReLU(), nn.Linear(n, 2))

    with pytest.raises(InvalidInput, match=r"make: .*equal; wanted a function that sets no seed"):
        lg.read(make, VECTORS, SMALL).check(widths=(8, 16), seeds=8)


@pytest.mark.slow
def test_tables_that_vanish_have_kernels_at_a_width_alone():
    def make(n):
        net = nn.Sequential(nn.Embedding(7, n), nn.LayerNorm(n), nn.Flatten(), nn.Linear(4 * n, 2))
        nn.init.normal_(net[0].weight, 0, n**-0.5)
        nn.init.zeros_(net[3].bias)
        return net

    net = lg.read(make, WORDS, SMALL)
    assert "no variance in the limit, where 0.weight vanishes; net.kernel(x, width=n)" in str(net)
    with pytest.raises(NoTheory, match="no variance in the limit"):
        net.kernel(WORDS)
    assert net.kernel(WORDS, width=16, method=FEW).nngp[0, 0] > 0.3
    assert net.check(widths=(16, 32), seeds=12).agrees


def test_factors_of_the_width_are_with_the_constants():
    class Factors(nn.Module):
        def __init__(self, n, given):
            super().__init__()
            self.n, self.given = n, given
            self.a, self.w = nn.Parameter(torch.randn(5, n)), nn.Parameter(torch.randn(n, n))
            self.v = nn.Parameter(torch.randn(n, 1))

        def forward(self, x):
            h = torch.relu(x @ self.a / 5**0.5)
            h = torch.relu((h * self.n**-0.5) @ self.w) if self.given else torch.relu(h @ self.w)
            return h @ self.v / self.n**0.5

    net = lg.read(lambda n: Factors(n, True), VECTORS, SMALL)
    for width in (None, 64):
        assert largest_z(net.kernel(VECTORS, width=width, method=FEW), net.kernel(VECTORS)) < 4
    with pytest.raises(NoTheory, match="w: its variance times the fan-in grows"):
        lg.read(lambda n: Factors(n, False), VECTORS, SMALL).kernel(VECTORS, method=FEW)


class Heads(nn.Module):
    def __init__(self, n, heads, scale):
        super().__init__()
        self.heads, self.scale = heads, scale
        self.q, self.k, self.v = nn.Linear(3, n), nn.Linear(3, n), nn.Linear(3, n)
        self.head = nn.Linear(n, 2)

    def forward(self, x):
        q, k, v = (
            p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        w = torch.softmax(q @ k.mT * self.scale(q.shape[-1]), -1)
        return self.head((w @ v).transpose(1, 2).flatten(2).mean(1))


def test_heads_that_grow_in_size_need_logits_that_converge():
    with pytest.raises(NoRule, match=r"forward \(matmul\).*number of heads that grows"):
        lg.read(lambda n: Heads(n, 2, lambda d: d**-0.5), TOKENS, SMALL)
    found = lg.read(lambda n: Heads(n, 2, lambda d: 1 / d), TOKENS, SMALL).kernel(TOKENS)
    assert relative_error(found) < 0.05
    with pytest.raises(NoRule, match=r"self_attn \(multi_head.*num_heads=n // 8"):
        lg.read(encoder_of_fixed_heads, TOKENS, SMALL)


def encoder_of_fixed_heads(n):
    layer = nn.TransformerEncoderLayer(n, 2, n, batch_first=True)
    return nn.Sequential(nn.Linear(3, n), layer, nn.Linear(n, 2), nn.Flatten())


class Mixing(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.mix, self.head = nn.Linear(3, n), nn.Linear(4, 4), nn.Linear(n, 2)

    def forward(self, x):
        return self.head(self.mix(torch.tanh(self.a(x)).mT).mean(-1))


class Tied(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.table, self.hidden = nn.Embedding(7, n), nn.Linear(n, n)

    def forward(self, ids):
        return F.linear(torch.tanh(self.hidden(self.table(ids).mean(1))), self.table.weight)


class TiedParts(nn.Module):
    """Two modules that share a weight, as the word embeddings of transformers."""

    def __init__(self, n):
        super().__init__()
        self.table, self.hidden = nn.Embedding(7, n), nn.Linear(n, n)
        self.head = nn.Linear(n, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.hidden(self.table(ids).mean(1))))


class PartlyZero(nn.Module):
    """A row of a table that is 0 and trained."""

    def __init__(self, n):
        super().__init__()
        self.table, self.head = nn.Embedding(7, n), nn.Linear(n, 2)
        with torch.no_grad():
            self.table.weight[3].zero_()

    def forward(self, ids):
        return self.head(torch.tanh(self.table(ids)).mean(1))


class Mixer(nn.Module):
    """Tokens that are mixed by matrices between which a hidden axis grows."""

    def __init__(self, n):
        super().__init__()
        self.a, self.up, self.down = nn.Linear(3, n), nn.Linear(4, n), nn.Linear(n, 4)
        self.head = nn.Linear(n, 2)

    def forward(self, x):
        return self.head(self.down(torch.tanh(self.up(self.a(x).mT))).mT.mean(1))


def without_a_head(n):
    net = nn.Sequential(nn.Conv1d(2, n, 3), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(n, 2))
    nn.init.zeros_(net[-1].weight)
    return net


class Buffered(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.head = nn.Linear(3, n), nn.Linear(n, 2)
        self.register_buffer("numbers", torch.randn(n))

    def forward(self, x):
        return self.head(torch.relu(self.a(x) * self.numbers))


def sparse(n):
    net = nn.Sequential(
        nn.Linear(5, n), nn.Linear(n, n), nn.BatchNorm1d(n, track_running_stats=False)
    )
    nn.init.sparse_(net[1].weight, 0.5)
    return net.append(nn.Linear(n, 1))


REFUSED = {
    "softmax over channels": (lambda m, x: m.head(m.a(x).softmax(-1)), r"forward \(softmax\)"),
    "a cumulative sum": (lambda m, x: m.head(m.a(x).cumsum(-1)), "cumsum"),
    "the largest channels": (
        lambda m, x: m.head(m.a(x) * m.a(x).topk(3, -1)[0][:, :1]), "topk over axis 1",
    ),
    "an unknown function": (lambda m, x: m.head(torch.fft.fft(m.a(x)).real), "fft.*no rule"),
    "parts of channels": (lambda m, x: m.head(m.b(m.a(x))[:, :3] @ m.b.weight[:3]), "part of"),
    "the input beside": (
        lambda m, x: m.head(torch.cat([m.a(x), x.amax(1, True)], 1)[:, 1:]), r"cat.*and others",
    ),
    "numbers of the width": (
        lambda m, x: m.head(torch.maximum(m.a(x), -m.a(x)) + m.b.in_features), "number",
    ),
    "a product of neurons": (lambda m, x: m.head(m.a(x) @ (m.a(x).mT @ m.a(x))), "matmul"),
    "narrow layers": (lambda m, x: m.few(m.a(x)).amax(1) + m.head(m.a(x))[:, 0], "read-out|grow"),
    "the samples": (lambda m, x: m.head(m.a(x).amax(0, True).expand_as(m.a(x))).T, "samples|of"),
    "twice": (lambda m, x: m.head(m.b(torch.amax(m.a(x)[None], 0)) @ m.b.weight), "b.weight: "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_limit_is_refused_by_name(name):
    forward, said = REFUSED[name]
    with pytest.raises(NoRule, match=rf"(?s)lg\.read: .*{said}"):
        lg.read(lambda n: Net(n, forward), VECTORS, SMALL)


def weight_normalised(n):
    hidden = nn.utils.parametrizations.weight_norm(nn.Linear(n, n))
    return nn.Sequential(nn.Linear(VECTORS.shape[1], n), hidden, nn.ReLU(), nn.Linear(n, 2))


class Skipping(nn.Module):
    def __init__(self, n):
        super().__init__()
        d = VECTORS.shape[1]
        self.hidden, self.head, self.skip = nn.Linear(d, n), nn.Linear(n, 1), nn.Linear(d, 1)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x))) + self.skip(x)


def test_bags_of_tokens_are_means_of_their_rows():
    class Bags(nn.Module):
        def __init__(self, n, table):
            super().__init__()
            self.table, self.head = table(7, n), nn.Linear(n, 2)

        def forward(self, x):
            rows = self.table(x)
            return self.head(torch.tanh(rows if rows.ndim == 2 else rows.mean(1)))

    found = [
        lg.read(lambda n, table=table: Bags(n, table), WORDS, SMALL).kernel(WORDS, method=FEW)
        for table in (nn.Embedding, nn.EmbeddingBag)
    ]
    np.testing.assert_allclose(found[1].nngp, found[0].nngp, rtol=1e-12)
    np.testing.assert_allclose(found[1].ntk, found[0].ntk, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "x", "said"),
    [
        (lambda n: Mixing(n), TOKENS, r"mix.weight: no axis of it grows"),
        (lambda n: Tied(n), WORDS, r"table.weight: .*table of tokens"),
        (lambda n: TiedParts(n), WORDS, r"table.weight: .*head.*tie_word_embeddings=False"),
        (lambda n: PartlyZero(n), WORDS, r"table.weight: .*a part of it was overwritten"),
        (lambda n: Mixer(n), TOKENS, r"down.weight and head.weight: outputs of channels"),
        (without_a_head, np.ones((2, 2, 4)), "3.weight: its entries are all 0 at initialisation"),
        (lambda n: Buffered(n), VECTORS[:, :3], r"numbers: its entries"),
        (sparse, np.ones((8, 5)), r"1.weight: .*law"),
        (weight_normalised, VECTORS, r"1.*weight_norm.*remove_parametrizations"),
        (lambda n: Skipping(n), VECTORS, r"skip.weight: no axis of it grows.*adds to the kernel"),
    ],
)
def test_parameters_without_a_limit_are_refused_by_name(make, x, said):
    with pytest.raises(NoRule, match=rf"lg\.read: {said}"):
        lg.read(make, x, SMALL)


@pytest.mark.slow
def test_arguments_are_checked():
    net = lg.read(*MODELS["causal"], SMALL)
    assert net.kernel(WORDS.astype(float), method=FEW).nngp.shape == (2, 2)
    for wrong in (0.5 * WORDS, WORDS + 100):
        with pytest.raises(InvalidInput, match=r"^x"):
            net.kernel(wrong)
    with pytest.raises(InvalidInput, match=r"^method"):
        net.kernel(WORDS, method="exact")
    with pytest.raises(InvalidInput, match="method: the model was read from one module"):
        lg.read(nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 1)), VECTORS).kernel(
            VECTORS, method="population"
        )
