"""Finite networks compute what their programs say, and weights that are used twice are one weight.

The interpreter here is independent of the rules: NumPy, one axis of positions, windows tap by tap.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.own_layers import FullSum, Half, Mean, Scale, Standardise, Twice
from tests.test_layer_contracts import EXAMPLES, samples

import largen as lg
from largen.architectures import Affine
from largen.errors import InvalidInput
from largen.expectations import as_activation
from largen.networks import FiniteNetwork
from largen.programs import Window, operations, program_of

DENSE, TANH = lg.Dense(bias_std=0.3), lg.Activation("tanh")
FUNCTIONS = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}
KEPT = Window((2,), (1,), (1,))  # one window for each position


def taps(window, space):
    """Which position each tap of each output reads, (tap, output, input)."""
    behind, before = [], []
    sizes = space, window.lengths, window.strides, window.dilation, window.paddings()
    for n, w, s, d, padding in zip(*sizes, strict=True):
        reach, outputs = d * (w - 1) + 1, -(-n // s)
        if window.transposed:
            outputs, missing = n * s, s + reach - 2
            first = reach - 1 if s > reach - 1 else -(-missing // 2)
            if padding == "VALID":
                outputs, first = (n - 1) * s + max(reach, s), reach - 1
        elif padding == "VALID":
            outputs, first = (n - reach) // s + 1, 0
        elif isinstance(padding, tuple):
            outputs, first = (n + sum(padding) - reach) // s + 1, padding[0]
        else:
            first = max(0, (outputs - 1) * s + reach - n) // 2
        behind.append(outputs)
        before.append(first)
    found = np.zeros((window.size, *behind, *space))
    for tap, k in enumerate(product(*map(range, window.lengths))):
        for out in product(*map(range, behind)):
            steps = (1,) * len(space) if window.transposed else window.strides
            read = [
                s * o + d * i - b
                for s, o, d, i, b in zip(steps, out, window.dilation, k, before, strict=True)
            ]
            if window.transposed:
                if any(r % s for r, s in zip(read, window.strides, strict=True)):
                    continue
                read = [r // s for r, s in zip(read, window.strides, strict=True)]
            if all(0 <= r < n for r, n in zip(read, space, strict=True)):
                found[(tap, *out, *read)] = 1
    return found.reshape(window.size, np.prod(behind), np.prod(space, dtype=int))


def interpret(program, x, numbers, branch):
    """Return the output of a program; ``numbers`` has (multiplier, array) by names of the table."""
    values = [x]
    for operation in program.operations[1:]:
        read = [values[i] for i in operation.reads]
        signal = program.signals[operation.reads[0]]
        match operation:
            case operations.Affine(weight=weight):
                name = program.weights[weight].name
                y = affine(operation, name, read[0], signal.space, numbers)
            case operations.Gain(weight=weight, initial=initial, offset=offset):
                name = program.weights[weight].name
                m, gains = numbers[f"{name}.gain"]
                y = (initial + m * gains) * read[0]
                if offset:
                    m, offsets = numbers[f"{name}.offset"]
                    y = y + m * offsets
            case operations.Repeat(body=body, times=times):
                inside, y = {weight.name for weight in body.weights}, read[0]
                for n in range(int(times)):
                    of_copy = {
                        name: (m, array[n])
                        for name, (m, array) in numbers.items()
                        if name.rpartition(".")[0] in inside
                    }
                    y = interpret(body, y, of_copy, branch)
            case operations.Attend():
                y = attended(operation, *read)
            case operations.Sum(factors=factors):
                each = zip(factors, read, strict=True)
                y = sum((branch if c == operations.BRANCH else c) * v for c, v in each)
            case operations.Product():
                y = reduce(np.multiply, read)
            case operations.Concatenate():
                y = np.concatenate(read, -1)
            case _:
                y = of_one_value(operation, read[0], signal)
        values.append(y)
    return values[-1]


def of_one_value(operation, x, signal):
    """Return the value of an operation without weights that reads a single value."""
    match operation:
        case operations.Function(phi=phi):
            return FUNCTIONS[phi.name](x)
        case operations.Mask():
            return x
        case operations.Flatten():
            return x.reshape(len(x), 1, -1)
        case operations.MoveChannels(axis=axis):
            moved = np.moveaxis(x.reshape(len(x), *signal.sample), axis + 1, -1)
            return moved.reshape(len(x), -1, moved.shape[-1])
        case operations.Scale(factors=factors):
            return np.reshape(factors, (-1, 1)) * x
        case operations.Pool(window=window, total=total):
            matrix = np.ones((1, x.shape[1]))
            if window is not None:
                matrix = taps(window, signal.space).sum(0)
            return np.einsum("ab,nbc->nac", matrix if total else matrix / matrix.sum(1)[:, None], x)
        case operations.Maximum(window=window):
            inside = taps(window, signal.space).sum(0)[None, :, :, None] > 0
            return np.where(inside, x[:, None], -np.inf).max(2)
        case operations.Normalise(over=over, centred=centred, eps=eps):
            axes = {"channels": 2, "sample": (1, 2), "batch": (0, 1)}[over]
            x = x - centred * x.mean(axes, keepdims=True)
            return x / np.sqrt((x**2).mean(axes, keepdims=True) + eps)
    raise NotImplementedError(operation)


def affine(operation, name, x, space, numbers):
    multiplier, weight = numbers[f"{name}.weight"]
    matrices = np.eye(x.shape[1])[None]
    if operation.window is not None:
        roots = np.sqrt(operation.window.of_taps()).reshape(-1, 1, 1)
        matrices = roots * taps(operation.window, space)
    patches = np.einsum("kab,nbc->nakc", matrices, x)
    groups, (n, positions, count, _) = operation.groups, patches.shape
    patches = patches.reshape(n, positions, count, groups, -1)
    shape = (count, patches.shape[-1], groups, weight.shape[-1] // groups)
    if operation.tied:
        y = np.einsum("nakgc,kcgo->nago", patches, weight.reshape(shape))
    else:
        y = np.einsum("nakgc,akcgo->nago", patches, weight.reshape(positions, *shape))
    y = multiplier * y.reshape(n, positions, -1)
    if f"{name}.bias" in numbers:
        m, bias = numbers[f"{name}.bias"]
        y = y + m * bias.reshape(-1, bias.shape[-1])
    return y


def attended(operation, queries, keys, values):
    heads = operation.heads
    if heads is None and operation.key_size is not None:
        heads = queries.shape[-1] // operation.key_size
    if heads is None:
        width = queries.shape[-1]
        heads = max(h for h in range(1, width + 1) if width % h == 0 and h * h <= width)
    q, k, v = (np.split(each, heads, -1) for each in (queries, keys, values))
    root = q[0].shape[-1] ** (1 if operation.concentrated else 0.5)
    found = []
    for a, b, c in zip(q, k, v, strict=True):
        logits = operation.scale / root * a @ b.swapaxes(1, 2)
        if operation.causal:
            logits = np.where(np.tri(logits.shape[-1]), logits, -np.inf)
        if operation.softmax:
            logits = np.exp(logits - logits.max(-1, keepdims=True))
            logits /= logits.sum(-1, keepdims=True)
        found.append(logits @ c)
    return np.concatenate(found, -1)


def as_the_program_says(network: FiniteNetwork, params, x):
    names, leaves = jax.tree.leaves(network.module.names), jax.tree.leaves(params)
    numbers = {
        name: (network.table[name].multiplier, leaf)
        for name, leaf in zip(names, leaves, strict=True)
    }
    program = program_of(network.net, network.inputs)
    flat = x.reshape(len(x), -1, x.shape[-1])
    return interpret(program, flat, numbers, network.table.branch)


def of_size(net, inputs, outputs=2):
    return lg.networks.finite_network(
        net, lg.depth_mup(1.3), width=12, inputs=inputs if len(inputs) > 1 else inputs[0],
        outputs=outputs,
    )  # fmt: skip


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_networks_compute_their_programs(kind):
    example = EXAMPLES[kind]
    network, x = of_size(example.net, example.inputs), samples(example)
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(1, np.float64))  # gains start at 0
    got = network.apply(params, x)
    want = as_the_program_says(network, params, x).reshape(got.shape)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def weight_of(layer, program, value):
    constants = {name: getattr(layer, name) for name in ("weight_std", "bias_std", "width_ratio")}
    return program.weight(value, **constants, patch=2)


@dataclass(frozen=True, repr=False)
class Recurrent(Affine):
    """y = x + W·tanh(W x + b) + b, of one weight, perhaps one for each position."""

    tied: bool = True

    def lower(self, program, value):
        weight = program.weight(
            value,
            weight_std=self.weight_std,
            bias_std=self.bias_std,
            width_ratio=self.width_ratio,
            patch=2,
        )

        def once(value):
            return program.add(operations.Affine((value,), weight, KEPT, self.tied))

        moved = program.add(operations.Function((once(value),), as_activation("tanh")))
        return program.add(operations.Sum((value, once(moved)), (1.0, 1.0)))


@dataclass(frozen=True, repr=False)
class TwoScales(Affine):
    """The sum over positions of a convolution of the input and of its average."""

    def space_behind(self, space):
        return () if space is not None else None

    def lower(self, program, value):
        signal = program.signal(value)
        weight = weight_of(self, program, value)

        def summed(value):
            convolved = program.add(operations.Affine((value,), weight, KEPT))
            pooled = operations.Pool((convolved,), None, total=True)
            return program.add(pooled, self.signal_behind(signal))

        halves = Window((2,), (2,), (1,), "VALID")
        coarse = lg.layers.AvgPool((2,)).signal_behind(signal)
        half = program.add(operations.Pool((value,), halves), coarse)
        return program.add(operations.Sum((summed(value), summed(half)), (1.0, 1.0)))


SHARED = {
    "positions alike": (Recurrent(bias_std=0.4), lg.GlobalAvgPool()),
    "positions apart": (Recurrent(bias_std=0.4, tied=False), lg.GlobalAvgPool()),
    "copies": (lg.repeat(lg.serial(Recurrent(bias_std=0.4), TANH), 3), lg.GlobalAvgPool()),
    "two scales": (TwoScales(bias_std=0.4), TANH),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_weight_that_is_used_twice_is_one_weight(name):
    """K = Σ_θ ρ_θ ∂f/∂θ ∂f'/∂θ has the products of the derivatives of two uses as well."""
    net = lg.serial(lg.Conv((2,), bias_std=0.3), TANH, *SHARED[name], DENSE)
    network, rng = of_size(net, (4, 2)), np.random.default_rng(7)
    x1, x2 = rng.standard_normal((3, 4, 2)), rng.standard_normal((2, 4, 2))
    params = network.init(1, np.float64)
    got = network.apply(params, x1)
    np.testing.assert_allclose(got, as_the_program_says(network, params, x1)[:, 0], rtol=1e-12)
    with jax.enable_x64(True):
        jacobian = jax.jit(jax.jacobian(network.outputs_of))
        both = [jacobian(params, jnp.asarray(x)) for x in (x1, x2)]
    rates = network.per_leaf(network.table, "lr")
    want = sum(
        rate * np.einsum("ncp,mdp->nmcd", *(np.reshape(j, (*j.shape[:2], -1)) for j in pair))
        for rate, *pair in zip(*map(jax.tree.leaves, (rates, *both)), strict=True)
    )
    ntk = lg.networks.empirical_ntk(net, params, x1, x2, param=network.param, outputs=2)
    np.testing.assert_allclose(ntk, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("layers", "inputs"),
    [
        ((DENSE, Scale(1.5), Standardise(2.0), TANH), (3,)),
        ((DENSE, Twice(lg.serial(TANH, DENSE)), Mean(DENSE, TANH)), (3,)),
        ((lg.Conv((3,)), TANH, FullSum(bias_std=0.2), TANH), (4, 2)),
        (
            (
                lg.Conv((3,), padding=((2, 1),), strides=2),
                lg.layers.AvgPool((2,), padding=1),
                lg.Flatten(),
            ),
            (5, 2),
        ),
        (
            (
                lg.layers.ScalePositions([[1.0, -2.0], [0.5, 3.0]]),
                lg.Conv((2, 1), tap_variances=((0.2, 0.7), (1.5,))),
                lg.Residual(TANH, skip_factor=0.3),
                lg.Flatten(),
            ),
            (2, 2, 3),
        ),
        ((lg.Conv((2,), groups=2), lg.Conv((3,), strides=2, groups=3), lg.Flatten()), (4, 2)),
    ],
)
def test_layers_need_no_rule(layers, inputs):
    network = of_size(lg.serial(*layers, DENSE), inputs)
    x, params = np.random.default_rng(3).standard_normal((3, *inputs)), network.init(1, np.float64)
    want = as_the_program_says(network, params, x)[:, 0]
    np.testing.assert_allclose(network.apply(params, x), want, rtol=1e-12)


def test_operations_of_a_user_have_a_rule_of_their_own():
    network = of_size(lg.serial(DENSE, Half(), TANH, DENSE), (3,))
    params = network.init(1, np.float64)
    assert [layer["weight"].shape for layer in params if layer] == [(3, 12), (6, 2)]
    x = np.random.default_rng(3).standard_normal((4, 3))
    plain = of_size(lg.serial(DENSE, TANH, DENSE), (3,))
    (first, _, _, last), wide = params, np.zeros((12, 2))
    wide[::2] = 2**0.5 * last["weight"]
    want = plain.apply((first, (), last | {"weight": wide}), x)
    np.testing.assert_allclose(network.apply(params, x), want, rtol=1e-12)


def test_values_of_different_sizes_are_not_added():
    class Added(lg.architectures.Layer):
        def lower(self, program, value):
            inner = lg.Dense().lower(program, value)
            return program.add(operations.Sum((value, inner), (1.0, 1.0)))

    with pytest.raises(InvalidInput, match="Added"):
        of_size(lg.serial(DENSE, TANH, Added()), (3,))


def test_copies_without_weights():
    network, x = of_size(lg.serial(DENSE, lg.repeat(TANH, 3), DENSE), (3,)), np.eye(3)
    params = network.init(1, np.float64)
    want = as_the_program_says(network, params, x)[:, 0]
    np.testing.assert_allclose(network.apply(params, x), want, rtol=1e-12)
    ntk = lg.networks.empirical_ntk(network.net, params, x, param=network.param, outputs=2)
    assert ntk.shape == (3, 3, 2, 2)
