"""Functions, objects and settings told by what they do."""

import math
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache, partial, update_wrapper

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import largen as lg
from largen.errors import InvalidInput
from largen.identity import identity
from largen.runs.identity import identity_of
from largen.transfer import warmup_cosine

GAIN = 2.0


def told(value):
    return identity("value", value, "Name it")


class Net(nn.Module):
    def __init__(self, width, gain=1.0):
        super().__init__()
        self.layer, self.gain = nn.Linear(2, width), gain

    def forward(self, x):
        return GAIN * torch.relu(self.layer(x))


def closing_over(c):
    return lambda x: c * x


def reads_global(x):
    return GAIN * x


def takes_from_module(x):
    from math import cosh, sinh  # noqa: F401

    return np.linalg.norm(x) + cosh(x)


def seeded(make):
    torch.manual_seed(0)
    return make()


def counted(calls=()):
    net = Net(2)
    net.load_state_dict(seeded(lambda: Net(2)).state_dict())
    net.calls = {"n": len(calls)}
    return net


@dataclass(frozen=True)
class Setting:
    a: int = 1
    b: object = None

    @cached_property
    def computed(self):
        return object()


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


class Times:
    """A wrapper with a number of its own beside the function."""

    def __init__(self, function, factor):
        update_wrapper(self, function)
        self.factor = factor

    def __call__(self, x):
        return self.factor * self.__wrapped__(x)


class Own(eqx.Module):
    w: jax.Array
    name: str = "own"

    def __call__(self, x):
        return self.w @ x


class Colour(Enum):
    red = 1
    blue = 2


def recursive(n):
    return n * recursive(n - 1) if n else 1


def circle(size):
    own = [size]
    own.append(own)
    return own


# Values that are made twice and told alike, each of them from all others.
VALUES = {
    "none": lambda: None, "true": lambda: True, "one": lambda: 1, "one.": lambda: 1.0,
    "text": lambda: "1", "bytes": lambda: b"1", "list": lambda: [1, 2], "tuple": lambda: (1, 2),
    "nested": lambda: [1, [2]], "set": lambda: {"a", "b", "c"}, "dict": lambda: {"a": 1, "b": 2},
    "dict in another order": lambda: {"b": 2, "a": 1}, "nan": lambda: float("nan"),
    "array": lambda: np.arange(3.0), "float32": lambda: np.arange(3, dtype="float32"),
    "jax": lambda: jnp.arange(4.0), "key": lambda: jax.random.key(3),
    "torch": lambda: torch.arange(5.0), "parameter": lambda: nn.Parameter(torch.arange(5.0)),
    "bfloat16": lambda: torch.arange(5, dtype=torch.bfloat16), "objects": lambda:
    np.array([1, "a"], dtype=object), "dtype": lambda: torch.float16, "numpy type":
    lambda: np.float32, "closure": lambda: closing_over(2.0), "other closure": lambda:
    closing_over(3.0), "closure over array": lambda: closing_over(np.ones(2)),
    "lambda": lambda: lambda x: x + 1, "other lambda": lambda: lambda x: x + 2,
    "default": lambda: lambda x, y=1: x, "keyword": lambda: lambda x, *, y=1: x,
    "global": lambda: reads_global, "module": lambda: takes_from_module, "recursive":
    lambda: recursive, "partial": lambda: partial(reads_global, 1), "partial, keyword":
    lambda: partial(reads_global, x=1), "cached": lambda: lru_cache(reads_global),
    "ufunc": lambda: np.tanh, "jax function": lambda: jax.nn.relu, "torch function":
    lambda: nn.functional.relu, "builtin": lambda: len, "method of list": lambda:
    [1.0, 2.0].__getitem__, "jitted": lambda: jax.jit(lambda x: x + 1), "mapped": lambda:
    jax.vmap(reads_global), "class": lambda: Net, "class with settings": lambda: partial(Net, 4),
    "installed class": lambda: nn.Linear, "net": lambda: seeded(lambda: Net(2)), "wider net":
    lambda: seeded(lambda: Net(3)), "net's gain": lambda: seeded(lambda: Net(2, 2.0)),
    "method": lambda: seeded(lambda: Net(2)).forward, "net that counts": counted,
    "net that has counted": lambda: counted([0]), "setting": Setting, "other setting":
    lambda: Setting(2), "setting of class": lambda: Setting(1, Setting), "slots": lambda:
    Slotted(1), "other slots": lambda: Slotted(2), "equinox": lambda: Own(jnp.ones((2, 2))),
    "other equinox": lambda: Own(jnp.zeros((2, 2))), "enum": lambda: Colour.red,
    "other enum": lambda: Colour.blue, "circle": lambda: circle(1), "other circle":
    lambda: circle(2), "mup": lg.mup, "gamma": lambda: lg.mup(gamma=2.0), "layers":
    lambda: lg.mlp(2, "tanh"), "schedule": lambda: warmup_cosine(10),
    "other schedule": lambda: warmup_cosine(11), "generator": lambda:
    np.random.default_rng(0), "other generator": lambda: np.random.default_rng(1),
    "ordered": lambda: OrderedDict(a=1), "grad": lambda: jax.grad(reads_global),
    "wrapper": lambda: Times(reads_global, 2.0), "other wrapper": lambda: Times(reads_global, 3.0),
    "wrapper of another": lambda: Times(recursive, 2.0), "eqx.filter_vmap": lambda:
    eqx.filter_vmap(reads_global, in_axes=0), "eqx.filter_vmap, other axes": lambda:
    eqx.filter_vmap(reads_global, in_axes=1),
}  # fmt: skip


def test_each_is_told_from_all_others_and_alike_when_it_is_made_again():
    found = {name: told(make()) for name, make in VALUES.items()}
    again = {name: told(make()) for name, make in VALUES.items()}
    assert again == found
    alike = {}
    for name, own in found.items():
        alike.setdefault(own, []).append(name)
    assert [names for names in alike.values() if len(names) > 1] == []


@pytest.mark.slow
def test_another_process_tells_the_same():
    code = (
        "import sys; sys.path.insert(0, 'tests'); import test_identity as t; "
        "print({n: t.told(m()) for n, m in t.VALUES.items()})"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=dict(__import__("os").environ, PYTHONHASHSEED="7"),
    )  # fmt: skip
    found = {name: told(make()) for name, make in VALUES.items()}
    theirs = eval(out.stdout)
    for name in ("schedule", "other schedule"):  # under pytest their types are checked
        del theirs[name], found[name]
    assert theirs == found


def test_what_a_function_reads_is_part_of_it(monkeypatch):
    before = told(reads_global), told(Net), told(seeded(lambda: Net(2)))
    monkeypatch.setitem(globals(), "GAIN", 3.0)
    after = told(reads_global), told(Net), told(seeded(lambda: Net(2)))
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_shared_weights_are_not_equal_ones():
    a, b = torch.ones(2), torch.ones(2)
    assert told([a, a]) != told([a, b])


def test_what_is_computed_from_the_rest_does_not_count():
    setting = Setting()
    before = told(setting)
    assert setting.computed is not None
    assert told(setting) == before


def test_a_module_of_the_users_own_is_its_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own_helpers.py"

    def helper():
        import own_helpers

        return own_helpers

    def one():
        from own_helpers import f

        return f

    found = []
    for text in ("def f(x):\n    return x\n", "def f(x):\n    return x + 100\n"):
        file.write_text(text)
        sys.modules.pop("own_helpers", None)
        found.append((told(helper), told(one)))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def on_one_line(c):
    return (lambda x: c * x, lambda x: c + x, lambda: lambda x: x, lambda x: c * x)


def test_lambdas_on_one_line_have_their_own_text():
    times, plus, outer, again = map(told, on_one_line(2.0))
    assert len({times, plus, outer, told(on_one_line(2.0)[2]())}) == 4
    assert again == times
    assert told(on_one_line(3.0)[0]) != times


def test_the_text_counts_and_not_where_it_is(tmp_path, monkeypatch):
    """Lines above a function, its decorators' place and other functions do not change it."""
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for i, (above, body) in enumerate([("", "x + 1"), ("K = 1\n\n\n", "x + 1"), ("", "x - 1")]):
        (tmp_path / f"moved{i}.py").write_text(f"{above}def f(x):\n    return {body}\n")
        digests.append(told(__import__(f"moved{i}").f))
    assert digests[0] == digests[1] != digests[2]


def test_a_function_without_source_is_refused():
    scope = {"__name__": "__main__"}
    exec("def f(x):\n    return x + 1", scope)
    with pytest.raises(InvalidInput, match=r"a function 'f', whose source is not known\. Name it"):
        told([scope["f"]])


# As Python 3.11 and 3.13 compute them, with different versions of NumPy and JAX.
DIGESTS = {
    "closure": "154ae214e2bdf53d", "recursive": "02acd4e413ffe6c1", "other setting":
    "ad72ddb441ed339d", "slots": "918c45d07e0d88a7",
}  # fmt: skip


@pytest.mark.parametrize("name", DIGESTS)
def test_nothing_of_the_interpreter_enters(name):
    assert told(VALUES[name]()).startswith(DIGESTS[name])


UNTOLD = {
    "lock": threading.Lock,
    "file": lambda: sys.__stdout__,
    "generator": lambda: (x for x in ()),
    "closure over a lock": lambda: closing_over(threading.Lock()),
    "in a container": lambda: {"a": [threading.Lock()]},
}


@pytest.mark.parametrize("name", UNTOLD)
def test_what_nothing_tells_is_refused(name):
    with pytest.raises(InvalidInput, match=r"value: it holds .*cannot be told apart.*Name it\."):
        told(UNTOLD[name]())


def test_saved_runs_keep_the_digest_of_their_parameterization():
    """Digests as files had them when the field ``distributions`` was named ``laws``."""
    data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    param = lg.scaling.from_reference(
        width=8, scaling="NTK", reference=lg.ntk().with_distribution("uniform")
    )
    run = lg.Run(lg.mlp(1), param, data, optimizer=lg.gd(0.1), steps=2)
    assert identity_of(run)["parameterization"] == "19021e090b7313c8"


def test_written_out_blocks_are_repeated_blocks():
    data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))

    def digest(*blocks):
        net = lg.serial(lg.Dense(), *blocks, lg.Activation("tanh"), lg.Dense())
        run = lg.Run(net, lg.depth_mup(), data, optimizer=lg.gd(0.1), steps=1)
        return identity_of(run)["net of any depth"]

    a, b = (
        lg.Residual(lg.serial(lg.Activation("tanh"), lg.Dense(weight_std=std))) for std in (1, 2)
    )
    for unit in ((a,), (a, b), (a, a, b)):
        endless = digest(lg.repeat(lg.serial(*unit), math.inf))
        assert digest(*unit) == digest(*unit, *unit) == digest(lg.repeat(lg.serial(*unit), 3))
        assert digest(*unit) == endless
    assert len({digest(a), digest(b), digest(a, b), digest(b, a), digest(a, a, b)}) == 5
