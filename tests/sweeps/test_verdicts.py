"""Verdicts on sweeps: whether networks learn, whether rates stay, and whether larger is better."""

import numpy as np
import pytest
import xarray

from largen.sweeps import Sweep, Task
from largen.sweeps.verdicts import difference


@pytest.mark.parametrize(("seeds", "samples"), [(1, 200), (1, 6), (3, 200)])
def test_networks_that_learn_nothing_seem_to_train_as_rarely_as_is_said(seeds, samples):
    """A one-sided test at 5 % for all rates of a shape together: 400 shapes, nothing to learn."""
    draw, rates = np.random.default_rng(1), 5
    task = Task(np.zeros((samples, 1)), np.arange(samples) % 2, batch_size=4)

    def made(gain):
        # Networks of several seeds scatter, each at or above the best constant prediction.
        each = task.constant + draw.normal(size=(400, 1, rates, samples)) - gain
        each = each + (seeds > 1) * 0.1 * abs(draw.normal(size=(400, seeds, rates, 1)))
        error = task.margin_error(each.reshape(-1, samples)).reshape(each.shape[:3])
        axes = ("width", "seed", "lr")
        values = {"loss": (axes, each.mean(-1)), "margin_error": (axes, error)}
        data = xarray.Dataset(values, {"width": np.arange(400), "lr": np.arange(1, rates + 1)})
        data = data.expand_dims(scheme=["s"], depth=[1])
        return Sweep(data.assign_attrs(chance=task.chance, samples=samples))

    share = float(made(0.0).trains().any("lr").mean())
    least = 0.05 if seeds == 1 else 0.0
    assert abs(share - np.clip(share, least, 0.05)) < 3 * (0.05 * 0.95 / 400) ** 0.5
    for learned in (made(4.0).trains().all("lr"), made(4.0).best()["trains"]):
        assert learned.mean() > 0.95


def surface_of(losses, chance=3.08, **sizes):
    """A sweep from losses (scheme, width, seed, lr), whose error over samples is 0.02."""
    schemes, widths = sizes.pop("scheme", ["mup"]), np.arange(losses.shape[1])
    axes = ("scheme", "width", "seed", "lr")
    data = xarray.Dataset(
        {"loss": (axes, losses), "margin_error": (axes, np.full(losses.shape, 0.02))},
        {"scheme": schemes, "width": 32 * 2**widths, "lr": 2.0 ** np.arange(losses.shape[-1])},
    )
    data = data.assign_coords(seed=np.arange(losses.shape[2])).expand_dims(depth=[2])
    return Sweep(data.assign_attrs(chance=chance, samples=256))


def test_two_seeds_far_below_a_constant_answer_train():
    """2.61 ± 0.01 against 3.08: one degree of freedom and eleven rates refuse no such distance."""
    losses = np.full((1, 1, 2, 11), 3.3)
    losses[0, 0, :, 5] = 2.60, 2.62
    found = surface_of(losses)
    assert found.trains().values.ravel().tolist() == [i == 5 for i in range(11)]
    assert found.best()["trains"].all()


def test_verdicts():
    """A base whose rate stays, that gains nothing by width, and loses to standard tuned there."""
    x = np.arange(7.0)
    mup = np.stack([2.7 + 0.05 * (x - 3) ** 2, 2.71 + 0.05 * (x - 3.2) ** 2])
    standard = np.stack([2.7 + 0.05 * (x - 3) ** 2, 2.6 + 0.05 * (x - 1) ** 2])
    mean = np.stack([standard, mup])[:, :, None]
    noise = np.array([-0.01, 0.0, 0.01])[:, None]
    found = surface_of(mean + noise, scheme=["standard", "mup"])
    data = found.verdicts("width")
    own = data.sel(scheme="mup", depth=2)
    error = (2 * 0.01**2 / 3) ** 0.5
    assert float(own["shift"]) == pytest.approx(0.2, abs=0.02)
    assert float(own["shift_error"]) == pytest.approx(2**-0.5, rel=0.1)
    assert float(own["change"]) == pytest.approx(0.01 + 0.05 * 0.2**2)
    assert float(own["change_error"]) == pytest.approx(error)
    assert float(own["against_standard"]) == pytest.approx(0.112)
    assert (own["change_sure"], own["against_standard_sure"], own["edge"]) == (0, 1, 0)
    assert float(data["shift"].sel(scheme="standard")[0]) == pytest.approx(-2, abs=0.01)
    assert np.isnan(data["against_standard"].sel(scheme="standard")).all()
    assert str(found).splitlines()[-4:] == [
        "mup, width 32 to 64:",
        "  the best rate stays (+0.2 ± 0.7 grid steps)",
        "  whether wider is better is open (+0.012 ± 0.0082 at the base's rate)",
        "  worse than standard tuned there (+0.112 ± 0.0082): search the base's constants "
        "(largen.sweeps.tune)",
    ]
    assert "the best rate moves (-2.0" in str(found)
    # Wider is better; the grid ends at the best rate; one seed has no error.
    better = np.stack([2.7 - 0.1 * x, 2.5 - 0.1 * x])[None, :, None]
    assert "wider is better (-0.2 ± 0.0082 at" in str(surface_of(better + noise))
    assert "is at an end of the grid" in str(surface_of(better))
    assert "whether wider is better is open (-0.2, one seed" in str(surface_of(better))
    better[0, 1, 0, -1] = np.inf
    assert "training diverges at the base's rate" in str(surface_of(better))


@pytest.mark.slow
def test_verdicts_are_as_rarely_wrong_as_is_said():
    """Two equal sets of two or three networks of unequal scatter: Welch's test at 5 %."""
    draw = np.random.default_rng(0)
    sets = [(3, 3, 1.0), (2, 3, 1.0), (4, 4, 10.0)]
    for first, second, scale in sets:
        wrong = np.mean([
            difference(draw.normal(size=first), scale * draw.normal(size=second)).sure
            for _ in range(4000)
        ])  # fmt: skip
        assert 0.01 < wrong < 0.05 + 3 * (0.05 * 0.95 / 4000) ** 0.5 + 0.015
    assert not difference(np.array([1.0]), np.array([9.0])).sure
