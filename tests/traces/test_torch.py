"""Traces of PyTorch modules are these modules, at weights and inputs other than those recorded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.reading.models import CASES
from tests.reading.population_models import MODELS as AT_POPULATIONS
from tests.traces.zoo import MODELS, READING
from torch.utils import _pytree

from largen.errors import InvalidInput
from largen.traces.torch.recording import record

OF_READING = {f"{name} of reading": (lambda c=c: c.make(8), c.x) for name, c in CASES.items()}
OF_POPULATIONS = {
    f"{name} at a population": (lambda make=make: make(8), x)
    for name, (make, x) in AT_POPULATIONS.items()
}
ALL = MODELS | OF_READING | OF_POPULATIONS
QUICK = ("in place", "bags")


def built(make, x, train=False):
    torch.manual_seed(0)
    x = torch.as_tensor(x)
    return make().float().train(train), x.float() if x.is_floating_point() else x


def redrawn(module, x):
    """Draw other weights and inputs, of the same size."""
    torch.manual_seed(1)
    with torch.no_grad():
        for p in [*module.parameters(), *module.buffers()]:
            if p.is_floating_point() and p.ndim:
                p.add_(0.1 * torch.rand_like(p))
    if x.is_floating_point():
        return x + 0.3 * torch.randn_like(x)
    return torch.flip(x, [0, 1])


def arrays(module):
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: jnp.asarray(p.detach().numpy()) for name, p in named.items()}


def tensors(output):
    return [t for t in _pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]


def assert_close(got, want, rtol=1e-5, what=""):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= rtol * max(np.abs(want).max(), 1e-3), what


def compare(module, x, trace, gradients=True):
    weights, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    values = arrays(module)
    out = tensors(module(x))
    directions = [torch.randn_like(t) for t in out]

    def total(parameters, x):
        given = values | parameters
        found = jax.tree.leaves(trace.run(given, [x]))
        sums = [jnp.vdot(d.numpy(), o) for d, o in zip(directions, found, strict=True)]
        return sum(sums), found

    parameters = {name: values[name] for name in weights}
    run = jax.jit(jax.value_and_grad(total, has_aux=True) if gradients else total)
    if gradients:
        (_, found), slopes = run(parameters, jnp.asarray(x.numpy()))
    else:
        _, found = run(parameters, jnp.asarray(x.numpy()))
    for got, want in zip(found, out, strict=True):
        assert_close(got, want.detach())
    if not gradients:
        return
    sum((d * o).sum() for d, o in zip(directions, out, strict=True)).backward()
    size = max(float(p.grad.abs().max()) for p in weights.values() if p.grad is not None)
    for name, p in weights.items():
        want = torch.zeros_like(p) if p.grad is None else p.grad
        error = np.abs(np.asarray(slopes[name]) - want.numpy()).max()
        assert error <= 1e-5 * max(size, 1e-3), name
    assert buffers.keys() <= values.keys()


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ALL]
)
def test_a_trace_is_its_module(name):
    """At other weights and inputs than those recorded, with gradients by all parameters."""
    module, x = built(*ALL[name])
    trace, _ = record(module, x)
    assert not trace.without_form()
    compare(module, redrawn(module, x), trace)


@pytest.mark.parametrize("name", ["controlled", pytest.param("sparse", marks=pytest.mark.slow)])
def test_what_values_decide_is_noted(name):
    """The trace is of the inputs that were recorded, and says so."""
    module, x = built(*READING[name])
    trace, _ = record(module, x)
    assert trace.reads
    found = trace.run(arrays(module), [jnp.asarray(x.numpy())])
    assert_close(found, module(x).detach())


def test_an_operation_without_form_keeps_its_place():
    """It is named only if its result is needed."""
    module, x = built(*MODELS["Fourier"])
    trace, _ = record(module, x)
    assert {"linalg_eig"} <= trace.kinds
    assert trace.without_form() == []

    class Needed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            return self.inner(x) + self.inner.kept.real.sum()

    needed = Needed()
    trace, _ = record(needed, x)
    assert "linalg_eig" in trace.without_form()
    with pytest.raises(InvalidInput, match="linalg_eig in inner has no form in JAX"):
        trace.run(arrays(needed), [jnp.asarray(x.numpy())])


def test_module_paths_are_name_scopes():
    module, x = built(*MODELS["mixer"])
    trace, _ = record(module, x)
    assert {call.scope for call in trace.calls} >= {"tokens/0", "channels/2", "one", ""}
    lowered = jax.jit(lambda w, x: trace.run(w, [x])).lower(arrays(module), jnp.asarray(x.numpy()))
    assert "channels/2" in lowered.as_text(debug_info=True)


def test_training_mode_writes_statistics_and_draws():
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.25)
    ).train()
    x = torch.randn(4, 3, 8, 8)
    before = arrays(module)
    trace, _ = record(module, x)
    assert set(trace.written) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    with pytest.raises(InvalidInput, match="draws random numbers"):
        trace.run(before, [jnp.asarray(x.numpy())])
    out, state = trace.run(before, [jnp.asarray(x.numpy())], jax.random.key(0), written=True)
    assert_close(state["1.running_mean"], module[1].running_mean)
    assert_close(state["1.running_var"], module[1].running_var)
    assert int(state["1.num_batches_tracked"]) == 1
    kept = np.asarray(out) != 0
    assert abs(kept.mean() - 0.75) < 4 * (0.75 * 0.25 / kept.size) ** 0.5
    module[2].p, module[1].momentum = 0.0, 0.0
    assert_close(np.asarray(out)[kept], (module(x).detach().numpy() / 0.75)[kept])
