"""Functions with two forms: quick to compile, and quick to run."""

import jax.numpy as jnp
import numpy as np

from largen import compilation
from largen.compilation import Compiled


def test_what_is_called_often_is_compiled_in_full(monkeypatch):
    monkeypatch.setattr(compilation, "OFTEN", 2)
    power = Compiled(lambda exponent, x: jnp.asarray(x) ** exponent, static_argnums=0)
    full = []
    monkeypatch.setattr(power, "_full", lambda *values: full.append(values) or values[1] ** 3)
    for _ in range(4):
        np.testing.assert_array_equal(power.quickly(3, np.arange(3.0)), [0, 1, 8])
    assert len(full) == 2
    power.quickly(3, np.arange(4.0))  # other shapes and static arguments are other forms
    power.quickly(2, np.arange(3.0))
    assert len(full) == 2
