"""The iteration that determines the response functions A and B of all layers.

A and B of one layer determine those of the next, from A⁰ = 0 and Bᴸ = 0. Since responses are
causal, the iteration up and down the layers ends after finitely many passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from largen.errors import NumericalFailure
from largen.parameterizations import momentum_of
from largen.runs import Run, Trajectory
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.neuron_responses import Neurons, stream_responses
from largen.theories.mean_field.engine.descent import Step, moved, sample_weights

SETTLED = 1e-10  # of A and B, relative to the largest entry


class Sites:
    """The neurons of all layers, and the matrices A and B so far.

    Rows and columns are n times and samples for h and u, and m times, samples and outputs for g and
    r.
    """

    def __init__(self, problem: Problem, limit: Trajectory):
        self.problem = problem
        self.neurons = _neurons(problem, limit)
        n, c = self.neurons[0].g.shape[1:]
        self.features = [np.repeat(one.feature_kernel, c, 1) for one in self.neurons]
        gradients = [one.gradient_kernel.reshape(n * c, n, c) for one in self.neurons[1:]]
        self.gradients = [*gradients, np.tile(np.eye(c)[:, None], (n, n, 1))]
        layers = len(self.neurons)
        self.a, self.b = np.zeros((layers, n, n * c)), np.zeros((layers, n * c, n))
        skips = np.eye(layers)
        for m, skip in enumerate(problem.skips):
            if skip >= 0:
                skips[m + 1, skip] = -1
        self.sums = np.linalg.inv(skips)

    def passes(self, past: np.ndarray, share: np.ndarray) -> Iterator[float]:
        """Pass up and down all layers until A and B stand still; yield the passes made so far."""
        made, moving = 0, True
        while moving:
            last_a, last_b = self.a.copy(), self.b.copy()
            for part in self._pass(past, share):
                yield made + part
            change = max(np.abs(self.a - last_a).max(), np.abs(self.b - last_b).max())
            if not np.isfinite(change):
                raise NumericalFailure("response functions diverge; lower the learning rate.")
            size = max(1.0, np.abs(self.a).max(), np.abs(self.b).max())
            made, moving = made + 1, bool(change > SETTLED * size)

    def _pass(self, past: np.ndarray, share: np.ndarray) -> Iterator[float]:
        """Pass up and down all layers once; yield the part that is done."""
        problem, (n, m) = self.problem, past.shape
        # Causality is imposed exactly: A vanishes unless s < t, and B unless s ≤ t.
        t = np.arange(n) // problem.samples
        before, until = (
            np.repeat(t[:, None] > t, m // n, 1),
            np.repeat(t[:, None] >= t, m // n, 0),
        )
        streams = np.array(problem.streams)
        visits = (*range(streams.max() + 1), *reversed(range(streams.max())))
        for done, stream in enumerate(visits, 1):
            at = np.flatnonzero(streams == stream).tolist()
            matrices = zip(*(self.coefficients(l, past, share) for l in at), strict=True)
            found = stream_responses(
                [self.neurons[l] for l in at], self.sums[np.ix_(at, at)], *matrices
            )
            for l, responses in zip(at, found, strict=True):
                self.a[l] = before * responses.forward
                if l:
                    self.b[l - 1] = until * responses.backward
            yield done / len(visits)

    def coefficients(
        self, l: int, past: np.ndarray, share: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return C and D of hidden layer l, counted from 0."""
        problem, (n, m) = self.problem, past.shape
        if l:
            into = problem.maps[l - 1]
            learnt = into.kernel_rate * self.features[l - 1] + into.bias_kernel_rate
            c = into.std**2 * _left(share, into.rate, self.a[l - 1]) + past * learnt
        else:
            rows = problem.fields[: problem.samples]
            first = rows * problem.field_rate @ rows.T
            times = n // problem.samples
            c = past * np.repeat(np.tile(first, (times, times)), m // n, 1)
        out = problem.maps[l]
        moves = np.repeat(past.reshape(n, n, m // n), m // n, 0)
        d = out.std**2 * _left(share, out.rate, self.b[l])
        return c, d + out.kernel_rate * (moves * self.gradients[l]).sum(2)

    def outputs(self, past: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Return γ₀f that follows from Φ and A of the last layer, (time and sample, output)."""
        last, (n, m) = self.problem.maps[-1], past.shape
        moved = past * (last.kernel_rate * self.features[-1] + last.bias_kernel_rate)
        known = last.std**2 * _left(share, last.rate, self.a[-1])
        return (moved + known).reshape(n, n, m // n).sum(1)


def _left(share: np.ndarray, rate: float, responses: np.ndarray) -> np.ndarray:
    """Return s_t s_s times a response; the initial weights of frozen maps do not decay."""
    rows, columns = (np.repeat(share, size // len(share)) for size in responses.shape)
    return rows[:, None] * columns * responses if rate else responses


def memory(run: Run, problem: Problem, limit: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """Return K(t, s)Δ(s), of times and samples by times, samples and outputs, and s_t."""
    optimizer, times, p = run.optimizer, len(run.times), problem.samples
    momentum = momentum_of(optimizer)
    # Shares of the updates in a weight, and last of its initial value.
    units = np.eye(times + 1)
    weights, velocity, seen = units[-1], 0 * units[-1], [units[-1]]
    for update, rate in zip(units, run.rates, strict=False):
        step = Step(rate, momentum, optimizer.weight_decay)
        weights, velocity = moved(weights, velocity, update, step)
        seen.append(weights)
    left = np.stack(seen)
    with jax.enable_x64(True):
        counted = np.asarray(sample_weights(run, np.float64))
        f, y = jnp.asarray(limit.f_train, jnp.float64), jnp.asarray(run.data.y_train)
        delta = np.stack([np.asarray(run.loss.residual(each, y)) for each in f])
    delta = problem.gamma * counted[:, :, None] * delta.reshape(times, p, -1)
    past = np.einsum("ts,snc->tsnc", left[:, :-1], delta).reshape(times, -1)
    return np.repeat(past, p, 0), left[:, -1]


def _neurons(problem: Problem, limit: Trajectory) -> list[Neurons]:
    """Return the neurons of all layers."""
    h, g, z = (np.asarray(getattr(limit, f"neuron_{name}")) for name in "hgz")
    times, layers, count, p = h.shape
    h = h.transpose(1, 2, 0, 3).reshape(layers, count, -1)
    g, z = (x.reshape(times, layers, count, p, -1).transpose(1, 2, 0, 3, 4) for x in (g, z))
    unit = np.where(problem.inside, problem.branch, 1.0)
    return [
        Neurons.of(phi, h[l], *(unit[l] * x[l].reshape(count, times * p, -1) for x in (g, z)))  # type: ignore[arg-type]
        for l, phi in enumerate(problem.phi)
    ]
