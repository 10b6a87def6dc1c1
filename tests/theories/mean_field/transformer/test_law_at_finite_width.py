"""The same passes with vectors that are plainly Gaussian: networks of finite width in law.

A Gaussian matrix V with Vq = y for the directions q that it has acted on, and V*p = z, maps a new
direction x to the part that z determines, and to a fresh Gaussian vector beside the p. With N
neurons and fresh vectors that are not orthogonal to others this holds at any N, and the passes of
the limit follow a network of width N in law; a wrong matrix is seen best where N is small.
"""

import numpy as np
import pytest
from tests.theories.mean_field.transformer.test_attention import DATA, DENSE, run_of, transformer

import largen as lg
from largen.theories.mean_field.engine.descent import Step
from largen.theories.mean_field.options import wanted_kernels
from largen.theories.mean_field.transformer import dynamics, random_matrix
from largen.theories.mean_field.transformer.kernel_records import KernelRecords
from largen.theories.mean_field.transformer.network import Populations
from largen.theories.mean_field.transformer.populations import Population, averages, plus

WIDTH, SOLUTIONS, NETWORKS, RATE = 8, 400, 10_000, 0.25
ATTENTION = lg.layers.MultiHeadAttention(key_size=2, causal=True, logit_scale=1.5)
RUN = run_of(
    transformer(ATTENTION, DENSE),
    data=lg.Dataset(DATA.x_train[:2], DATA.y_train[:2]),
    optimizer=lg.gd(RATE),
    steps=2,
)


class PlainPopulation(Population):
    """Neurons whose fresh vectors are independent Gaussian numbers."""

    sampled = True

    def __init__(self, rng):
        super().__init__()
        self.size, self._rng = WIDTH, rng

    def fresh(self, number):
        return self._rng.standard_normal((number, self.size)) / self.size**0.5


def beside_backward_directions(side, new, other):
    """Add directions, whose images are as those of the limit, with fresh parts beside ``other``."""
    new = np.linalg.qr(side._beyond(new).T)[0].T
    images = side.norm * other.population.fresh(len(new))
    images = plus(images, -averages(images, other.directions.array) @ other.directions.array)
    known = averages(new, other.images.array) @ other.directions.array
    side.directions.append(new)
    side.images.append(plus(images, known))


def with_all_of_the_fresh_vectors(side, new, other):
    """Do the same without the projection, which is wrong."""
    new = np.linalg.qr(side._beyond(new).T)[0].T
    known = averages(new, other.images.array) @ other.directions.array
    side.directions.append(new)
    side.images.append(plus(side.norm * other.population.fresh(len(new)), known))


def solutions(monkeypatch, number, rule):
    """Return bounded functions of the changes of outputs, and of gradients at last."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(random_matrix.Side, "_add", rule)
    monkeypatch.setattr(dynamics, "SampledPopulation", lambda *_: PlainPopulation(rng))
    monkeypatch.setattr(Populations, "sampled", range(100))  # all of them
    problem = lg.theories.AttentionMeanField.pose(RUN).problem
    x, y, last = RUN.data.x, RUN.data.y_train, RUN.steps
    wanted, found = wanted_kernels(RUN, "gradient_kernel", [last], []), []
    for _ in range(number):
        network = dynamics.InfiniteNetwork(problem, dynamics.Drawn(WIDTH, 0, 0))
        kernels, f = KernelRecords(wanted, network.context.maps, len(x), 1, scalar=True), []
        for step in range(last + 1):
            with kernels.observation(step):
                f.append(network.forward(x)[:, 0, 0])
                kernels.meet(step, network.backward, 1.0)
            network.backward(problem.gamma * (y - f[-1])[:, None, None] / len(x))
            network.step(Step(RATE, 0.0, 0.0))
        found.append(bounded(np.stack(f), kernels.variables()["gradient_kernel"][0]))
    return np.stack(found)


def bounded(f, gradient_kernel):
    """Return bounded numbers of trajectories, so that their means have no heavy tails."""
    changes = np.tanh(f[..., 1:, :] - f[..., :1, :])
    sizes = np.einsum("...lmm->...lm", gradient_kernel)
    both = changes, sizes / (1 + sizes)
    return np.concatenate([x.reshape(*x.shape[:-2], -1) for x in both], -1)


def z_scores(found, networks):
    """Return z of the means and of the mean squares."""
    z = []
    for power in (1, 2):
        one, other = found**power, networks**power
        # Of few skewed numbers a low mean comes with a low variance: that of networks is better.
        error = other.std(0) * (1 / len(one) + 1 / len(other)) ** 0.5
        z.append((one.mean(0) - other.mean(0)) / error)
    return np.array(z)


@pytest.mark.slow
def test_plain_vectors_have_the_law_of_networks(monkeypatch):
    data = lg.Dataset(np.float32(RUN.data.x_train), np.float32(RUN.data.y_train))
    options = {"record": "gradient_kernel", "record_at": [RUN.steps], "progress": False}
    nets = lg.train(RUN.with_changes(data=data), width=WIDTH, seeds=NETWORKS, key=1, **options)
    networks = bounded(nets.f_train.astype(float), nets.gradient_kernel[:, 0].astype(float))
    z = z_scores(solutions(monkeypatch, SOLUTIONS, beside_backward_directions), networks)
    assert np.abs(z).max() < 4, z
    broken = solutions(monkeypatch, SOLUTIONS // 3, with_all_of_the_fresh_vectors)
    assert np.abs(z_scores(broken, networks)).max() > 6
