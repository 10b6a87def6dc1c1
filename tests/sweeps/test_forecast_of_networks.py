"""Forecasts against networks that were trained: digits, in one pass and in many epochs."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from largen.errors import InvalidInput
from largen.sweeps import Grid, Task, forecast, sweep
from largen.transfer import warmup_cosine

pytestmark = pytest.mark.slow

PILOTS = {16: 16, 32: 16, 64: 12}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def residual(width):
    return nn.Sequential(
        nn.Linear(64, width), Block(width), Block(width), nn.LayerNorm(width), nn.Linear(width, 10)
    )


def plain(width):
    hidden = nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    return nn.Sequential(nn.Linear(64, width), *hidden, nn.Linear(width, 10))


def digits(steps, batch, samples=1437, first=0):
    x, y = load_digits(return_X_y=True)
    x = ((np.asarray(x) - np.mean(x, 0)) / 4.3).astype(np.float32)
    order = np.random.default_rng(first).permutation(len(x))
    x, y = x[order], np.asarray(y)[order]
    return Task(
        x[:samples], y[:samples], batch_size=batch, steps=steps, x_final=x[1437:], y_final=y[1437:]
    )


def swept(make, task, rates, widths, scheme="mup", optimizer="adamw", verify=None):
    torch.set_num_threads(1)
    grid = Grid(lrs=rates, base=32, widths=list(widths), schemes=[scheme], seeds=widths)
    schedule = warmup_cosine(task.steps, warmup=task.steps // 10, final=0.05)
    return sweep(make, task, grid, optimizer=optimizer, schedule=schedule, verify=verify)


def errors(found, wide, of):
    """Return the relative errors of the forecast and of the widest pilots, and z."""
    data = found.data
    losses = wide.data[of].squeeze(("scheme", "width", "depth")).transpose("lr", "seed", ...).values
    if of == "loss_train":
        pairs = zip(data["time_start"].values, data["time"].values, strict=True)
        losses = np.stack([losses[..., a:b].mean(-1) for a, b in pairs], -1)
    losses = losses.reshape(*losses.shape[:2], -1)
    truth = losses.mean(1)
    error = np.hypot(data["loss_error"], data["loss_std"] / losses.shape[1] ** 0.5).values
    each = [data["loss"].values, data["pilot_loss"].values[-1]]
    ours, pilots = (np.sqrt(np.mean((a / truth - 1) ** 2)) for a in each)
    return ours, pilots, np.sqrt(np.mean(((each[0] - truth) / error) ** 2))


def test_one_pass_of_adam():
    """Half of the error of the widest pilots, within its own; and a right run raises no alarm."""
    rates, task = [2.0**-8, 2.0**-7, 2.0**-6], digits(88, 16)
    pilots = swept(residual, task, rates, PILOTS)
    wide = swept(residual, task, rates, {192: 6}, verify=False)
    for of in ("loss_train", "loss"):
        found = pilots.forecast(192, of=of)
        ours, theirs, z = errors(found, wide, of)
        assert ours < 0.6 * theirs
        assert z < 2
    found = pilots.forecast(192)
    runs = wide.data["loss_train"].squeeze().transpose("lr", "seed", "step").values
    # At the highest rate, above the best one, losses spike: the law is that of rates below.
    alarms = [
        found.monitor(run, rate).alarm
        for rate, own in zip(rates[:2], runs[:2], strict=True)
        for run in own
    ]
    assert alarms == [None] * 12
    # What a run at half the rate looks like, and one whose data are others from step 50 on.
    assert found.monitor(runs[0, 0], rates[1]).alarm <= 30
    other = swept(residual, digits(88, 16, first=1), rates[1:2], {192: 1}, verify=False)
    strange = other.data["loss_train"].squeeze().values
    mixed = np.where(np.arange(88) < 50, runs[1, 0], strange)
    assert 50 < found.monitor(mixed, rates[1]).alarm <= 80


def test_many_epochs_of_gradient_descent():
    task = digits(150, 50, samples=500)
    pilots = swept(residual, task, [2.0**-3], PILOTS, optimizer="sgd")
    wide = swept(residual, task, [2.0**-3], {192: 8}, optimizer="sgd", verify=False)
    for of in ("loss_train", "loss"):
        ours, theirs, z = errors(pilots.forecast(192, of=of), wide, of)
        assert ours < 0.6 * theirs
        assert z < 2


def test_the_standard_parameterization_is_refused_by_its_pilots_alone():
    task, rates = digits(88, 16), [2.0**-8, 2.0**-7, 2.0**-6]
    widths = {32: 8, 64: 8, 128: 8}
    found = swept(plain, task, rates, widths, scheme="standard", verify=False)
    by_width = [
        found.data["loss_train"].sel(width=n).squeeze().transpose("lr", "seed", "step").values
        for n in widths
    ]
    reasons = forecast(list(widths), by_width, rates, 512, throw=False).reasons
    assert any(reason.startswith("rule 5") for reason in reasons)


def test_rates_at_which_training_diverges():
    task, widths = digits(60, 50, samples=500), {16: 4, 32: 4, 64: 4}
    found = swept(residual, task, [0.125, 16.0, 32.0], widths, optimizer="sgd")
    kept = found.forecast(256, throw=False)
    assert kept.data["lr"].values.tolist() == [0.125]
    assert "pilots diverge at 16, 32" in kept.notes[0]
    with pytest.raises(InvalidInput, match="diverge at every rate"):
        type(found)(found.data.sel(lr=[16.0, 32.0])).forecast(256)
