"""What every layer of the library keeps to: it is covered by having an example here.

Its kernels are those of networks with it, by Monte Carlo, or it is refused; and every other room
follows it or refuses it by a named error.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

import largen as lg
from largen.architectures import Layer, Repeat, Serial, kinds_of_layers
from largen.errors import NoRule, NoTheory
from largen.theories import registered

RNG = np.random.default_rng(8)
DENSE, WIDER = lg.Dense(), lg.Dense(weight_std=1.2, bias_std=0.3)
RELU, CONV = lg.Activation("relu"), lg.Conv((2,), weight_std=1.3, bias_std=0.2)
BRANCH = lg.serial(RELU, DENSE)


class Example(NamedTuple):
    """A network with a layer in it.

    Attributes
    ----------
    layers
        What stands before the read-out.
    inputs
        The shape of a sample.
    kernels, networks
        Whether it has kernels, and whether finite networks compute what they are of.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[int, ...] = (3,)
    kernels: bool = True
    networks: bool = True

    @property
    def net(self):
        return lg.serial(*self.layers, DENSE)


def pooled(layer: Layer, **options: Any) -> Example:
    return Example((CONV, RELU, layer, lg.Flatten()), (4, 2), **options)


def rows(*layers: Layer, **options: Any) -> Example:
    return Example((WIDER, *layers), **options)


EXAMPLES = {
    lg.Dense: rows(RELU),
    lg.Conv: Example((lg.Conv((2,), strides=2, bias_std=0.3), RELU, lg.Flatten()), (4, 2)),
    lg.layers.ConvTranspose: Example(
        (CONV, RELU, lg.layers.ConvTranspose((2,), strides=2), lg.Flatten()), (3, 2)
    ),
    lg.layers.LocallyConnected: Example(
        (lg.layers.LocallyConnected((2,)), RELU, lg.Flatten()), (3, 2)
    ),
    lg.Activation: rows(lg.Activation("tanh")),
    Serial: rows(lg.serial(RELU, DENSE)),
    Repeat: rows(lg.repeat(BRANCH, 2)),
    lg.Residual: rows(lg.Residual(BRANCH), RELU),
    lg.layers.Concatenate: rows(lg.layers.Concatenate(BRANCH, WIDER)),
    lg.layers.Product: rows(lg.layers.Product(DENSE, RELU)),
    lg.LayerNorm: rows(RELU, lg.LayerNorm()),
    lg.RMSNorm: rows(RELU, lg.RMSNorm(eps=0.1)),
    lg.layers.BatchNorm: rows(lg.layers.BatchNorm(), kernels=False),
    lg.layers.Dropout: rows(RELU, lg.layers.Dropout(0.2), networks=False),
    lg.layers.AvgPool: pooled(lg.layers.AvgPool((2,))),
    lg.layers.SumPool: pooled(lg.layers.SumPool((2,), strides=1)),
    lg.layers.Upsample: pooled(lg.layers.Upsample((2,))),
    lg.layers.MaxPool: pooled(lg.layers.MaxPool((2,)), kernels=False),
    lg.GlobalAvgPool: Example((CONV, RELU, lg.GlobalAvgPool()), (4, 2)),
    lg.layers.GlobalSumPool: Example((CONV, RELU, lg.layers.GlobalSumPool()), (4, 2)),
    lg.layers.ScalePositions: Example(
        (CONV, RELU, lg.layers.ScalePositions([0.5, -0.3, 1.0, 0.2]), lg.layers.GlobalSumPool()),
        (4, 2),
    ),
    lg.layers.Gain: rows(lg.layers.Gain(0.8, offset=True), lg.Activation("tanh"), lg.LayerNorm()),
    lg.Flatten: pooled(RELU),
    lg.layers.SelfAttention: Example(
        (WIDER, lg.layers.SelfAttention(), lg.GlobalAvgPool()), (3, 2)
    ),
    lg.layers.MultiHeadAttention: Example(
        (WIDER, lg.layers.MultiHeadAttention(mechanism="identity"), lg.GlobalAvgPool()), (3, 2)
    ),
    lg.QKVAttention: Example((WIDER, lg.QKVAttention(causal=True), lg.GlobalAvgPool()), (3, 2)),
    lg.layers.Graph: rows(
        lg.layers.Graph({"a": (BRANCH, "x"), "b": (BRANCH, "a"), "s": ("sum", "x", "a", "b")}),
    ),
    lg.layers.Axes: Example((lg.layers.Axes("CT"), CONV, RELU, lg.Flatten()), (2, 4)),
}
each_layer = pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)


def samples(example: Example) -> np.ndarray:
    return np.random.default_rng(8).standard_normal((3, *example.inputs))


def attempt(ask: Any) -> tuple[bool, str]:
    """Return whether something has a rule, or else what is said."""
    try:
        ask()
    except NoRule as refused:
        return False, str(refused)
    return True, ""


def test_every_layer_of_the_library_has_an_example():
    kinds = {
        kind for kind in kinds_of_layers() if kind.__module__.startswith("largen.architectures.")
    }
    bases = {base for kind in kinds for base in kind.__mro__[1:]}
    assert kinds - bases == set(EXAMPLES)
    for kind, example in EXAMPLES.items():
        assert kind.__name__.lower() in repr(example.net).lower() or kind is Serial


@pytest.mark.long_loops
@pytest.mark.slow
@each_layer
def test_kernels_are_those_of_networks(kind):
    # E[f f'] and E[NTK] differ from the limit by order 1/width, which two widths take out.
    example = EXAMPLES[kind]
    if not (example.kernels and example.networks):
        pytest.skip("has no kernels, or no networks that they are of")
    x, found = samples(example), []
    for width in (64, 128):
        found.append(
            lg.networks.monte_carlo_kernel(example.net, x, width=width, draws=1500, key=width)
        )
    limit = lg.kernel(example.net, x)
    for name in ("nngp", "ntk"):
        coarse, fine = (getattr(each, name).astype(float) for each in found)
        errors = [getattr(each, f"{name}_error").astype(float) for each in found]
        value = 2 * fine - coarse
        error = np.hypot(2 * errors[1], errors[0])
        z = np.abs(value - getattr(limit, name)) / (error + 1e-9)
        assert z.max() < 4.5, (name, z)
        assert np.all(error < 0.2 * np.abs(value).max()), name


@each_layer
def test_every_room_follows_a_layer_or_refuses_it_by_name(kind):
    example = EXAMPLES[kind]
    net, x = example.net, samples(example)
    if example.kernels:
        kernels = lg.kernel(net, x)
        for found in kernels:
            np.testing.assert_allclose(found, found.T, rtol=1e-12)
            assert np.linalg.eigvalsh(found)[0] > -1e-9 * np.abs(found).max()
    else:
        with pytest.raises((NoRule, NoTheory), match=kind.__name__):
            lg.kernel(net, x)
    if example.networks:
        outputs = lg.networks.finite_network(net, lg.ntk(), width=16, inputs=example.inputs)
        assert outputs.apply(outputs.init(0), x).shape == (3,)
        data = lg.Dataset(x, np.array([1.0, -1.0, 1.0]))
        run = lg.Run(net, lg.ntk(), data, optimizer=lg.gd(lr=0.1), steps=2)
        for theory in registered():
            try:
                said = theory.covers(run)
            except (NoRule, NoTheory) as why:
                said = str(why)
            assert len(said) > 20
    classified, why = attempt(lambda: lg.scaling.classify(lg.ntk(), net))
    assert classified or kind.__name__ in why
