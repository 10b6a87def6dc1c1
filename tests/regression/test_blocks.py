"""Large matrices in blocks, between which interrupts are answered: the same numbers."""

import numpy as np
import pytest

import largen as lg
from largen.regression import conditioning, factor, moments

RNG = np.random.default_rng(5)
X, Y, NEW = RNG.standard_normal((20, 3)), RNG.standard_normal((20, 2)), RNG.standard_normal((23, 3))
NET = lg.mlp(1, "erf", bias_std=0.3)


@pytest.mark.parametrize("size", [20, 21, 40])
def test_cholesky_by_panels(size, monkeypatch):
    monkeypatch.setattr(factor, "PANEL_FROM", 4)
    monkeypatch.setattr(factor, "PANEL", 8)
    looks = []
    monkeypatch.setattr(factor, "check", lambda: looks.append(1))
    root = RNG.standard_normal((size, size + 3))
    matrix = root @ root.T
    found = factor.cholesky_factor(matrix)
    np.testing.assert_allclose(found, np.linalg.cholesky(matrix), rtol=1e-9, atol=1e-12)
    assert len(looks) > 2  # for an interrupt
    with pytest.raises(np.linalg.LinAlgError):
        factor.cholesky_factor(matrix - 100 * np.eye(size))


@pytest.mark.parametrize("kind", ["nngp", "ntk", "ntk-gp"])
@pytest.mark.parametrize("twins", [False, True])
def test_covariances_in_blocks(kind, twins, monkeypatch):
    x = np.concatenate([X[:10], X[:10]]) if twins else X
    given = lg.posterior(NET, x, Y, kind=kind, noise=0.0 if twins else 0.1, throw=False)
    assert (given.status == "singular") is twins
    wanted = given.predict(NEW, covariance=True)
    monkeypatch.setattr(conditioning, "MANY", 4)
    monkeypatch.setattr(moments, "BLOCK", 7)
    looks = []
    monkeypatch.setattr(moments, "check", lambda: looks.append(1))
    found = given.predict(NEW, covariance=True)
    assert len(looks) == 10  # for an interrupt: 23 samples fill up to 32, five blocks, twice
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9 * np.abs(other).max())
