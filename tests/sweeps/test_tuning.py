"""The search of constants at the base: what it chooses, that it resumes, in both frameworks."""

from dataclasses import replace
from math import inf, log2

import jax
import numpy as np
import pytest
import torch
from torch import nn

import largen as lg
from largen.errors import InvalidInput
from largen.sweeps import BaseTraining, Ranges, Task, Tuned, tune
from largen.transfer import Constants
from largen.transfer.torch import scale
from largen.transfer.torch.process import fixed_seed

RANGES = Ranges(rate=(2**-10, 2**-3), init={"hidden": (1 / 8, 8)}, lr={"hidden": (1 / 4, 4)})
X = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
TASK = Task(X, (X[:, 0] > 0).astype(int), batch_size=16, steps=12)


def bowl(constants, lr, seed):
    """A loss that is least at output 4, initial values × 2, and the rate 2⁻⁶."""
    hidden = constants.init.get("hidden", 1.0)
    far = (log2(constants.output) - 2) ** 2 + (log2(hidden) - 1) ** 2 + (log2(lr) + 6) ** 2
    return 2 + far + 0.001 * seed


def mlp(width):
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
    )


def test_few_draws_are_kept_after_every_seed():
    calls = []

    def train(constants, lr, seed):
        calls.append((constants, lr, seed))
        return bowl(constants, lr, seed)

    found = tune(train, RANGES, draws=64, seeds=3)
    assert [sum(s == seed for _, _, s in calls[: 64 + 16 + 4]) for seed in range(3)] == [64, 16, 4]
    assert len(calls) == 64 + 16 + 4 + 3
    loss = found.data["loss"].values
    first = np.sort(loss[:, 0])
    np.testing.assert_array_equal(np.sort(loss[~np.isnan(loss[:, 1]), 0]), first[:16])
    assert found.cut == loss[:6, 0].min() > first[8]  # of the draws with a rate alone
    assert len(found.finalists) == 4
    assert found.chosen == int(np.argmin(loss[:, 0])) == found.finalists[0]
    assert calls[-1] == (found.constants, 2 * found.lr, 2)
    assert (found.constants, found.lr) == next((c, r) for c, r, _ in calls if r == found.lr)
    assert f"{found.lr:.3g}" in str(found)
    assert "with a rate alone: 7" in str(found)  # 2 + 4 + 1, at the best of six rates


def test_draws_are_even_in_the_logarithm_and_a_tenth_have_a_rate_alone():
    data = tune(bowl, RANGES, draws=2000, seeds=1).data
    logs = np.log2(data["factor"].values)
    assert (logs[:200, 1:] == 0).all()
    np.testing.assert_allclose(np.diff(logs[:200, 0]), 7 / 200, atol=0.015)  # three digits
    low, high = np.log2(data["low"].values), np.log2(data["high"].values)
    assert (logs >= low - 0.01).all()
    assert (logs <= high + 0.01).all()
    share = (logs - low) / (high - low)
    error = (1 / 12 / 1134) ** 0.5  # of the mean of a uniform distribution
    assert (abs(share[200:1334].mean(0) - 0.5) < 4 * error).all()
    np.testing.assert_allclose(share[200:1334].var(0), 1 / 12, rtol=0.15)
    # The last third is near the best four of the others, by an eighth of every range.
    first = data["loss"].values[:1334, 0]
    centres = share[np.argsort(first)[np.arange(666) % 4]]
    away = (share[1334:] - centres)[:, centres.std(0) < 0.2]
    assert (abs(np.median(away, 0)) < 4 * 1.25 / 8 / 666**0.5).all()
    np.testing.assert_allclose(np.quantile(abs(away), 0.5), 0.6745 / 8, rtol=0.1)


def test_a_base_at_its_edge_is_not_chosen():
    def cliff(constants, lr, seed):
        """Better outputs are less stable: only those below 2 train at twice the rate 2⁻⁶."""
        if lr > 2**-4 / constants.output:
            return inf
        return 3 - log2(constants.output) + 0.01 * seed - 0.1 * log2(lr)

    found = tune(cliff, Ranges(rate=(2**-10, 2**-4)), draws=100)
    best = found.finalists[0]
    assert found.chosen != best
    assert not np.isfinite(found.data["loss_at_twice"].values[best]).all()
    assert cliff(found.constants, 2 * found.lr, 0) < found.cut
    assert not found.at_edge

    def knife(constants, lr, seed):
        return 1.0 - lr if lr < 2**-4 else inf

    found = tune(knife, Ranges(rate=(2**-4.5, 2**-4)), draws=20)
    assert found.at_edge
    assert "every finalist is at its edge" in str(found)


def test_an_interrupted_search_resumes(tmp_path):
    calls = []

    def train(constants, lr, seed):
        if len(calls) == 30:
            raise KeyboardInterrupt
        calls.append(lr)
        return bowl(constants, lr, seed)

    with pytest.raises(KeyboardInterrupt):
        tune(train, RANGES, draws=24, seeds=2, checkpoint=tmp_path, identity="bowl")
    assert len(list(tmp_path.iterdir())) == 30
    calls = calls[:0]
    found = tune(train, RANGES, draws=24, seeds=2, checkpoint=tmp_path, identity="bowl")
    assert len(calls) == 24 + 6 + 2 - 30
    whole = tune(bowl, RANGES, draws=24, seeds=2)
    assert str(found) == str(whole)
    # Draws are known by their settings, and functions by what they do.
    other = tune(bowl, RANGES, draws=24, seeds=2, checkpoint=tmp_path)
    assert str(other) == str(whole)
    assert len(list(tmp_path.iterdir())) == 2 * 32


def test_a_result_is_read_back(tmp_path):
    found = tune(bowl, RANGES, draws=20)
    back = lg.load(found.save(tmp_path / "tuned.nc"))
    assert isinstance(back, Tuned)
    assert (back.constants, back.lr, str(back)) == (found.constants, found.lr, str(found))


def by_hand(constants, lr, seed):
    """A training function as a user writes it."""
    plan = scale(mlp, {"width": 16}, {"width": 16}, scheme="mup", optimizer="adam",
                 constants=constants, verify=False)  # fmt: skip
    model = plan.build(seed=seed)
    optimizer = torch.optim.Adam(plan.param_groups(model, lr=lr, weight_decay=0.0))
    measure = nn.functional.cross_entropy
    for step in range(TASK.steps):
        x, y = map(torch.as_tensor, TASK.batch(step))
        optimizer.zero_grad()
        measure(model(x), y).backward()
        optimizer.step()
    return measure(model(torch.as_tensor(TASK.x)), torch.as_tensor(TASK.y)).item()


def test_a_base_trains_as_by_hand():
    train = BaseTraining(make_model=mlp, task=TASK, base={"width": 16}, optimizer="adam")
    for constants in (None, Constants(output=3, init={"hidden": 2}, lr={"hidden": 0.5})):
        for seed in (0, 1):
            found, expected = (f(constants, 2**-5, seed) for f in (train, by_hand))
            assert found == pytest.approx(expected, rel=1e-4)
    names = tuple(RANGES.by_name)
    few = [tune(f, RANGES, draws=4, seeds=1) for f in (train, by_hand)]
    np.testing.assert_allclose(few[0].data["loss"], few[1].data["loss"], rtol=1e-3)
    assert tuple(few[0].data["name"].values) == names


def test_jax_trains_the_same_base():
    """From the same weights, which the builder in JAX takes from that in PyTorch."""

    def init(key, width):
        with fixed_seed(0):
            made = dict(mlp(width).named_parameters())
        return {name: np.asarray(p.detach()).T for name, p in made.items()}

    def apply(p, x):
        h = jax.nn.relu(x @ p["0.weight"] + p["0.bias"])
        h = jax.nn.relu(h @ p["2.weight"] + p["2.bias"])
        return h @ p["4.weight"] + p["4.bias"]

    common = {"task": TASK, "base": {"width": 16}, "optimizer": "adam"}
    there = BaseTraining(make_model=init, apply=apply, options={"layout": "in_out"}, **common)
    here = BaseTraining(make_model=mlp, **common)
    constants = Constants(output=3, init={"hidden": 2}, lr={"hidden": 0.5})
    for own in (None, constants):
        assert there(own, 2**-5, 0) == pytest.approx(here(own, 2**-5, 0), rel=1e-4)
    assert there(None, 2**-5, 0) != pytest.approx(there(constants, 2**-5, 0), rel=1e-2)


def test_a_factor_of_a_tied_read_out_is_not_lost_in_jax():
    def init(key, width):
        return {"e": jax.random.normal(key, (8, width))}

    train = BaseTraining(
        make_model=init, task=TASK, base={"width": 16}, optimizer="adam",
        apply=lambda p, x: (x @ p["e"]) @ p["e"].T, options={"layout": "in_out", "tied": ["e"]},
    )  # fmt: skip
    assert np.isfinite(train(None, 0.01, 0))
    with pytest.raises(InvalidInput, match="apply does not multiply the logits of a tied read-out"):
        train(Constants(output=2), 0.01, 0)


def test_ranges_follow_the_roles_of_a_plan():
    plan = scale(mlp, {"width": 16}, {"width": 64}, scheme="mup", verify=False)
    ranges = Ranges.of(plan, rate=(0.001, 0.1))
    assert list(ranges.by_name) == [
        "rate", "output", "init of input", "init of hidden", "lr of input", "lr of hidden",
    ]  # fmt: skip
    for pattern in ("init", "lr"):
        assert getattr(replace(ranges, **{pattern: {}}), pattern) == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ranges(rate=(0.1, 0.01)), "rate: wanted a pair of increasing numbers > 0"),
        (lambda: Ranges(rate=(0.1, 1), init={"hidden": (0, 1)}), r"init\['hidden'\]: wanted"),
        (lambda: tune(bowl, RANGES, keep=1.0), "keep: wanted a share between 0 and 1"),
        (lambda: tune(lambda c, r, s: None, RANGES, draws=4), "train: wanted a loss, a number"),
        (lambda: tune(lambda c, r, s: np.nan, RANGES, draws=4), "every draw diverges"),
        (lambda: tune(lambda c, r: 0.0, RANGES), "train: wanted a function of"),
        (lambda: BaseTraining(make_model=mlp, task=TASK, base={}), "base: wanted a dict such as"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
