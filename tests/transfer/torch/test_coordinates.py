"""The coordinate check: what it calls wrong, and what the schemes make right."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tests.transfer.faulty_models import FAULTS
from tests.transfer.torch_models import Captioner, ResidualMLP, SmallNet
from tests.transfer.verified_models import RIGHT
from torch import nn
from torch.nn import functional as F

from largen.errors import InvalidInput
from largen.transfer import CoordinateCheck, Hints
from largen.transfer.torch import coordinate_check, scale


class Digits(ResidualMLP):
    """A read-out that starts at zero: no transient of the initial output."""

    def __init__(self, width, depth):
        super().__init__(width, depth)
        nn.init.zeros_(self.out.weight)


@pytest.fixture(scope="module")
def batches():
    digits = load_digits()
    x = torch.tensor((digits.data - digits.data.mean()) / digits.data.std(), dtype=torch.float32)
    y = torch.tensor(digits.target)
    return [(x[64 * i : 64 * (i + 1)], y[64 * i : 64 * (i + 1)]) for i in range(4)]


def cross_entropy(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def largest(check):
    return max(max(row.size, abs(row.change)) for row in check.slopes if row.judged)


def in_width(batches, widths, scheme, optimizer, **options):
    base, rates = {"width": 64, "depth": 4}, {"sgd": 0.1, "adamw": 2e-3}
    targets = [{"width": n, "depth": 4} for n in widths]
    return coordinate_check(
        Digits, base, targets, batches, cross_entropy, lr=rates[optimizer], scheme=scheme,
        optimizer=optimizer, **options,
    )  # fmt: skip


def in_depth(batches, scheme, optimizer, **options):
    base, rates = {"width": 64, "depth": 4}, {"sgd": 0.1, "adamw": 2e-3}
    targets = [{"width": 64, "depth": depth} for depth in (4, 8, 16, 32)]
    return coordinate_check(
        ResidualMLP, base, targets, batches, cross_entropy, lr=rates[optimizer], scheme=scheme,
        optimizer=optimizer, **options,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_in_width(batches, optimizer):
    widths = (256, 512, 1024, 2048)
    assert largest(in_width(batches, widths, "mup", optimizer)) <= 0.1
    standard = in_width(batches, widths, "standard", optimizer)
    assert standard["out"].size >= 0.4
    assert not standard.passed
    assert standard.guilty is not None


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_in_depth(batches, optimizer):
    check = in_depth(batches, "depth_mup", optimizer)
    assert check.passed
    assert check.along == "depth"
    assert largest(check) <= 0.35
    for scheme in ("standard", "mup"):
        wrong = in_depth(batches, scheme, optimizer, seeds=1)
        assert largest(wrong) > 1
        assert not wrong.passed


@pytest.mark.slow
def test_a_read_out_without_its_rule_is_found_guilty(batches):
    # μP, but for one weight: the read-out keeps the standard scheme's standard deviation and rate.
    wrong = in_width(
        batches, (64, 128, 256, 512), "mup", "adamw", hints=Hints(roles={"out.weight": "input"})
    )
    assert wrong.guilty == "out"
    assert wrong["blocks.0"].passed
    right = in_width(batches, (64, 128, 256, 512), "mup", "adamw", tolerance=0.2)
    assert right.passed


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_derived_rules_of_vectors_and_convolutions(optimizer):
    # Embedding, positional, depthwise, grouped, norms, biases, attention, tied read-out at once.
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(8, 1, 8, 8, generator=generator)
    tokens = torch.randint(0, 11, (8, 6), generator=generator)

    def loss(model, batch):
        logits = model(*batch)[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(logits, torch.arange(len(logits)).remainder(11))

    make = partial(Captioner, tied=optimizer != "muon")
    check = coordinate_check(
        make,
        {"width": 64, "depth": 2},
        [{"width": n, "depth": 2} for n in (128, 256, 512)],
        [(images, tokens)],
        loss,
        lr={"sgd": 0.05, "adamw": 2e-3, "muon": 5e-3}[optimizer],
        optimizer=optimizer,
        make_optimizer=Both if optimizer == "muon" else None,
        scheme="mup",
        tolerance=0.2,
    )
    assert check.passed, str(check)


class Both:
    """Muon and AdamW side by side."""

    def __init__(self, groups):
        own = [g for g in groups if g["moved_by"] == "muon"]
        rest = [g for g in groups if g["moved_by"] == "adamw"]
        self.both = torch.optim.Muon(own), torch.optim.AdamW(rest)

    def zero_grad(self):
        for optimizer in self.both:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.both:
            optimizer.step()


def synthetic(**changes):
    ratios, noise = np.array([1.0, 2.0, 4.0]), np.ones((3, 2, 3))
    grows = noise * np.sqrt(ratios)[:, None, None] ** np.array([0, 1, 0])
    options = {
        "along": "width", "ratios": ratios, "layers": ("a", "b", "frozen"), "start": noise,
        "size": grows, "change": grows * np.array([1, 1, 0]), "tolerance": 0.1,
    }  # fmt: skip
    return CoordinateCheck(**options | changes)


def test_slopes_are_fitted_and_the_guilty_is_named():
    check = synthetic(title="test")
    assert check["a"].size == pytest.approx(0)
    assert check["b"].change == pytest.approx(0.5)
    assert (check.passed, check.guilty) == (False, "b")
    assert "failed, first at b" in str(check)
    with pytest.raises(KeyError):
        check["frozen"]
    data = check.to_xarray()
    assert data["size"].dims == ("ratio", "seed", "layer")
    assert np.isnan(data["change_slope"].values[2])
    assert synthetic(tolerance=0.6).passed
    # Along the depth, branches are not judged; what diverged never passes.
    assert synthetic(along="depth", inside=frozenset({"b"})).passed
    assert synthetic(size=np.full((3, 2, 3), np.nan)).guilty == "a"


def noisy(slopes, seeds, rng, spread=0.2, sizes=(1.0, 2.0, 4.0)):
    """A check of layers with these slopes, whose logarithms scatter."""
    ratios = np.array(sizes)
    logs = np.log2(ratios)[:, None, None] * np.array(slopes)
    change = 2 ** (logs + spread * rng.standard_normal((len(ratios), seeds, len(slopes))))
    names = tuple(map(str, range(len(slopes))))
    return CoordinateCheck("width", ratios, names, change, change, change, 0.1)


@pytest.mark.parametrize(("seeds", "layers"), [(2, 3), (3, 12), (1, 3)])
def test_right_models_fail_at_most_one_time_in_twenty(seeds, layers):
    # All slopes at the tolerance, the worst of what is right.
    rng, trials = np.random.default_rng(seeds), 400
    slopes = 0.1 * np.where(np.arange(layers) % 2, 1, -1)
    failed = sum(not noisy(slopes, seeds, rng).passed for _ in range(trials))
    z = (failed - 0.05 * trials) / np.sqrt(0.05 * 0.95 * trials)
    assert z < 3, f"{failed} of {trials}"
    assert failed > 0  # intervals are no wider than they need be


def test_what_is_wrong_is_found():
    rng = np.random.default_rng(0)
    found = [noisy([0, 0.5, 0], 3, rng, 0.05).guilty for _ in range(50)]
    assert found.count("1") == 50
    wide = noisy([0, 0.5, 0], 2, rng, spread=1.0)
    assert wide.passed
    assert "more seeds tell more" in str(wide)
    with pytest.raises(InvalidInput, match="seeds: wanted at least 2"):
        noisy([0.0], 1, rng, sizes=(1.0, 2.0))


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        ([{"width": 8, "depth": 2}, {"width": 16, "depth": 4}], {}, "width only, or in depth"),
        ([{"width": 8, "depth": 2}] * 2, {}, "width only, or in depth"),
        ([{"width": 8, "depth": 2}, {"width": 16, "depth": 2}], {"optimizer": "lion"},
         "make_optimizer: PyTorch has no optimizer 'lion'"),
    ],
)  # fmt: skip
def test_doors(targets, options, message):
    with pytest.raises(InvalidInput, match=message):
        coordinate_check(
            SmallNet, {"width": 8, "depth": 2}, targets, [None], cross_entropy, lr=0.1, **options
        )


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model, x: model(x).square().mean().detach(), "loss: does not depend on a weight"),
        (lambda model, x: model(x), r"loss: wanted a tensor .* got an array of shape \(4, 2\)"),
    ],
)
def test_losses_that_cannot_be_trained(loss, message):
    def make(width):
        return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))

    sizes = [{"width": n} for n in (8, 16)]
    with pytest.raises(InvalidInput, match=message):
        coordinate_check(make, sizes[0], sizes, [torch.ones(4, 3)], loss, lr=0.1, scheme="mup")


def test_the_picture():
    from largen.plots import coordinate_figure
    from largen.plots.style import FAILED

    figure = coordinate_figure(synthetic(title="test").to_xarray())
    sizes, changes, slopes = figure.axes
    assert len(sizes.lines) == len(changes.lines) == 2
    assert sizes.lines[1].get_color() == FAILED
    assert [label.get_text() for label in slopes.get_yticklabels()] == ["a", "b"]


def check_of(make, example, draw=0):
    """Return a check of three widths, towards random targets or the next of random tokens."""
    generator = torch.Generator().manual_seed(draw)
    ids = torch.randint(0, 32, (8, 13), generator=generator)

    def loss(model, batch):
        if example[0].dtype == torch.long and len(example) == 1:
            values = model(ids[:, :-1])
            if values.ndim == 3:
                return F.cross_entropy(values.flatten(0, 1), ids[:, 1:].flatten())
        values = model(*example)
        target = torch.randn(values.shape, generator=torch.Generator().manual_seed(draw))
        return (values - target).square().mean()

    return coordinate_check(
        make, {"width": 32}, [{"width": n} for n in (32, 64, 128)], [0], loss, lr=1e-3,
        optimizer="adam", scheme="mup", example=example,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_plans_pass_towards_random_targets(name):
    for draw in range(2):
        check = check_of(*RIGHT[name], draw)
        assert check.passed, str(check)


@pytest.mark.parametrize(
    "name",
    [n if n in ("distance", "unit rows") else pytest.param(n, marks=pytest.mark.slow)
     for n in FAULTS],
)  # fmt: skip
def test_faults_do_not_pass(name):
    check = check_of(*FAULTS[name][:2])
    assert not check.passed
    assert "wrong in width (base × 1, " in str(check)


def test_weights_that_parametrizations_return_are_no_activations():
    def make(width):
        hidden = nn.utils.parametrizations.weight_norm(nn.Linear(width, width))
        return nn.Sequential(nn.Linear(8, width), nn.ReLU(), hidden, nn.ReLU(), nn.Linear(width, 2))

    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    check = coordinate_check(
        make, {"width": 16}, [{"width": n} for n in (16, 32, 64)], [x],
        lambda model, batch: (model(batch) - 1.0).square().mean(), lr=1e-3, scheme="mup",
    )  # fmt: skip
    assert [row.layer for row in check.slopes] == ["0", "1", "2", "3", "4", ""]


class Autoencoder(nn.Module):
    """All signals pass through a latent of fixed size."""

    def __init__(self, width):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width))
        self.latent = nn.Linear(width, 4)
        self.decoder = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 12))

    def forward(self, x):
        return self.decoder(self.latent(torch.relu(self.encoder(x))))


@pytest.mark.slow
def test_a_latent_is_moved_alike_as_a_read_out_only():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 8, 12, generator=generator)
    base, sizes = {"width": 32}, [{"width": n} for n in (128, 256, 512)]
    changes = {}
    for role in ("shared", "output"):
        check = coordinate_check(
            Autoencoder, base, sizes, [x], lambda model, x: (model(x) - y).square().mean(),
            lr=2e-3, seeds=8, scheme="mup", optimizer="adam", example=x,
            hints=Hints(roles={"latent.weight": role}),
        )  # fmt: skip
        changes[role] = check["latent"].change
        assert check.passed == (role == "output"), str(check)
    assert changes["shared"] > 0.3
    assert abs(changes["output"]) < 0.1
    plan = scale(Autoencoder, base, sizes[0], scheme="mup", example=x, verify=False)
    assert "Hints(roles={'latent.weight': 'output'})" in plan.notes[0]
