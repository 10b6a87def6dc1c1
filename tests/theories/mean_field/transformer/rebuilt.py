"""Networks of finite width that repeat a solution: an oracle that knows nothing of its passes.

The directions and images that a solution has found are a matrix between the coordinates of two
populations. A network of finite width whose neurons are these coordinates, turned at random, has
the same averages over neurons; ``lg.networks.finite_network`` and its derivatives by JAX then train
it. Neurons of sampled populations are neurons of this network.
"""

import jax
import jax.numpy as jnp
import numpy as np

import largen as lg
from largen.networks.modules import Direct, Errors
from largen.networks.tangent import kernels, probe
from largen.parameterizations import Hebbian, PseudoGradient
from largen.programs import Affine
from largen.theories.mean_field.feedback.weights import DirectMatrix, FeedbackMatrix
from largen.theories.mean_field.options import NO_KERNELS
from largen.theories.mean_field.transformer.dynamics import Drawn, InfiniteNetwork, train
from largen.theories.mean_field.transformer.weights import Matrix

SAMPLED = 512  # neurons of sampled populations


def initial_matrix(operator):
    """Return V(0) between coordinates, as far as it has been drawn."""
    before, behind = (side.population.size for side in (operator.before, operator.behind))

    def wide(rows, size):
        return np.pad(rows.array, [(0, 0), (0, size - rows.array.shape[1])])

    q, y = wide(operator.before.directions, before), wide(operator.before.images, behind)
    p, z = wide(operator.behind.directions, behind), wide(operator.behind.images, before)
    return y.T @ q + p.T @ (z - (z @ q.T) @ q)


def solution_and_network(run, ratio=None):
    """Return f (step, sample[, output]) of the solution, and of the network that repeats it.

    ``ratio`` is that of the widths of sampled populations, if there are any.
    """
    solved, (f, _) = solved_and_trained(run, ratio)
    return solved.f, f.reshape(solved.f.shape)


def solved_and_trained(run, ratio=None, wanted=NO_KERNELS):
    """Return the solution with its kernels, and f and probes of the network at each step."""
    by_rule = isinstance(run.optimizer, PseudoGradient)
    theory = lg.theories.FeedbackMeanField if by_rule else lg.theories.AttentionMeanField
    problem = theory.pose(run).problem
    limit = InfiniteNetwork(problem, None if ratio is None else Drawn(SAMPLED, 30, 0))
    solved = train(limit, problem, run, wanted=wanted)
    rows = run.param.table(run.net, run.optimizer, inputs=run.data.inputs).rows
    sizes = [p.size for p in limit.context.populations if not p.sampled]
    unit = 2 * (1 + max(sizes, default=0))
    if ratio is not None:
        assert unit < SAMPLED / ratio
        unit = int(SAMPLED / ratio)
    # A map of a concatenation has a matrix for each of its parts.
    maps = iter(node for node in problem.network.nodes if isinstance(node.operation, Affine))
    named = [
        (row.name, row.site)
        for row in rows
        if not (row.site.role == "output" and row.kind == "bias")
        for _ in (next(maps).reads if row.kind == "weight" else [row])
    ]
    inner = [
        (weights, site.width_ratio)
        for weights, (_, site) in zip(limit.context.weights, named, strict=True)
        if site.role != "output"
    ]
    embed, found, back = embeddings(inner, unit), {}, {}
    for (name, site), weights in zip(named, limit.context.weights, strict=True):
        if isinstance(weights, Matrix):
            sides = weights.operator.behind, weights.operator.before
            into, out_of = (embed[side.population] for side in sides)
            blocks = [
                (into @ matrix @ out_of.T).T * len(into) ** 0.5
                for matrix in (initial_matrix(weights.operator), backward_matrix(weights))
            ]
            if isinstance(weights, DirectMatrix):
                rows = weights._rows
                blocks[1] = (rows @ out_of[:, : rows.shape[1]].T).T * len(out_of) ** 0.5
        else:
            into = embed[weights.population]
            blocks = [
                rows @ into[:, : rows.shape[1]].T * len(into) ** 0.5
                for rows in (weights._trained._initial, weights.backward_rows)
            ]
        for kept, block in zip((found, back), blocks, strict=True):
            kept.setdefault(name, []).append(block.T if site.role == "output" else block)
    found, back = ({name: np.concatenate(x) for name, x in kept.items()} for kept in (found, back))
    back = back if by_rule and not isinstance(run.optimizer, Hebbian) else None
    return solved, trained(run, unit, found, bool(wanted.names), back)


def backward_matrix(weights):
    """Return the fixed matrix of backward fields, under feedback alignment."""
    found = initial_matrix(weights.operator)
    if not isinstance(weights, FeedbackMatrix):
        return found
    rho = weights._rho
    rest = 0.0 if weights._other is None else (1 - rho**2) ** 0.5 * initial_matrix(weights._other)
    return rho * found + rest


def embeddings(inner, unit):
    """Return an isometry from the coordinates of each population to its neurons of mean zero."""
    draw, found = np.random.default_rng(0), {}
    for weights, ratio in inner:
        matrix = isinstance(weights, Matrix)
        population = weights.operator.behind.population if matrix else weights.population
        neurons = int(ratio * unit)
        if population.sampled:
            assert population.size == neurons
            found[population] = np.eye(neurons)
        elif population not in found:
            beside = draw.standard_normal((neurons, population.size))
            basis = np.linalg.qr(np.concatenate([np.ones((neurons, 1)), beside], 1))[0]
            found[population] = basis[:, 1:]
    return found


def trained(run, width, initial, probed, feedback=None):
    """Return f of a finite network along gradient descent from given weights, and its probes.

    ``feedback``: the weights by which derivatives pass backward, instead of those in training.
    """
    network = lg.networks.finite_network(
        run.net, run.param, width=width, inputs=run.data.inputs, outputs=run.outputs
    )
    table = run.param.table(run.net, run.optimizer, width=width, inputs=run.data.inputs)
    rate, decays = (network.per_leaf(table, what) for what in ("lr", "weight_decay"))
    momentum, decay = run.optimizer.momentum, run.optimizer.weight_decay
    p = len(run.data.x_train)
    with jax.enable_x64(True):
        x, y = jnp.asarray(run.data.x), jnp.asarray(run.data.y_train)
        leaves, tree = jax.tree.flatten(network.module.shapes)
        names = jax.tree.leaves(network.module.names)

        def placed(initial):
            return tree.unflatten(
                table[name].init_std * initial[name].reshape(leaf.shape)
                if name in initial
                else np.zeros(leaf.shape)
                for name, leaf in zip(names, leaves, strict=True)
            )

        params = placed(initial)
        if feedback is None or not run.optimizer.direct:
            back = None if feedback is None else placed(feedback)
        else:
            scale = table.rows[-1].rule.multiplier * table.rows[-1].rule.init_std
            feedback.pop(table.rows[0].name)
            rows = [
                scale * feedback.get(name, np.zeros((leaf.shape[0], run.outputs or 1)))
                for name, leaf in zip(names, leaves, strict=True)
            ]
            back = Direct(tree.unflatten(rows))
        velocity = jax.tree.map(np.zeros_like, params)

        def errors_of(params):
            f = jax.lax.stop_gradient(network.outputs_of(params, x))
            slopes = jax.vmap(jax.grad(run.loss.sample))(f[:p], y).reshape(p, -1)
            values = jnp.zeros((len(x), slopes.shape[1])).at[:p].set(-slopes)
            return Errors(values / (width**0.5 * network.table.gamma))

        @jax.jit
        def gradient(params, batch):
            def loss(params):
                how = errors_of(params) if isinstance(run.optimizer, Hebbian) else back
                f = network.outputs_of(params, x, how)
                return run.loss.mean(f[:p][batch], y[batch]), f

            return jax.grad(loss, has_aux=True)(params)

        @jax.jit
        def around(params):
            # Features, the gradients γ ∂f/∂h behind them, and the tangent kernel.
            one = probe(network, params, x)
            training = jax.tree.map(lambda a: a[:p], one)
            gradients = jax.tree.map(lambda g: network.table.gamma * g, one.gradient)
            return one.capture, gradients, kernels(network, one, training).tangent

        def moved(velocity, slope, params, eta):
            def one(v, g, w, r, d):
                return momentum * v - eta * r * (g + decay * d * w)

            return jax.tree.map(one, velocity, slope, params, rate, decays)

        batches = [np.arange(p)] * run.steps if run.batches is None else run.batches
        history, probes = [], []
        for step in range(run.steps + 1):
            now = min(step, run.steps - 1)
            slope, f = gradient(params, batches[now])
            history.append(np.asarray(f))
            if probed:
                probes.append(around(params))
            velocity = moved(velocity, slope, params, run.rates[now])
            params = jax.tree.map(np.add, params, velocity)
    return np.stack(history), probes
