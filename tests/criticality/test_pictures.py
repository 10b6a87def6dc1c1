"""Pictures of diagrams, of numbers that are given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray

import largen as lg
from largen.criticality import NetworkDiagram
from largen.errors import InvalidInput
from largen.plots import phase_figure

W, B = np.linspace(0.5, 2, 4), np.linspace(0, 1, 3)


class Phases:
    """A phase diagram with the edge at σ_w = 1, whose kernels fluctuate by ``spread``."""

    def __init__(self, spread):
        self.spread = np.broadcast_to(spread, (len(W), len(B)))

    def to_xarray(self):
        """Return all numbers with named axes."""
        chi = np.broadcast_to((W**2)[:, None], self.spread.shape)
        named = {"chi_perp": chi, "correlation_depth": 1 / np.abs(np.log(chi + 0.01))}
        data = {name: (("weight_std", "bias_std"), values) for name, values in named.items()}
        data["kernel_variance"] = ("weight_std", "bias_std"), self.spread
        data |= {"edge_weight_std": ("edge", np.ones(2)), "edge_bias_std": ("edge", B[[0, -1]])}
        return xarray.Dataset(data, {"weight_std": W, "bias_std": B}, {"activation": "linear"})


@pytest.mark.parametrize(("spread", "drawn"), [(0.1, False), (W[:, None], True)])
def test_the_legend_names_only_lines_that_are_there(spread, drawn):
    figure = phase_figure(Phases(spread))
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert any("fluctuates" in label for label in labels) == drawn
    assert any("edge of chaos" in label for label in labels)


@pytest.mark.parametrize("unbounded", [False, True])
def test_diagrams_of_networks_are_maps(unbounded, tmp_path):
    growth = np.add.outer(W - 1, -B)
    sizes = np.exp(growth), growth, growth, growth
    rest = [
        np.where(unbounded, other, size)
        for other, size in zip((np.inf, *[np.nan] * 3), sizes, strict=True)
    ]
    rest[0][0] = 0.0  # of networks without biases whose weights vanish
    found = NetworkDiagram(W, B, *rest)
    figure = found.plot(tmp_path / "map.png")
    titles = [ax.get_title() for ax in figure.axes[:3]]
    assert [title.split(",")[0].split()[0] for title in titles] == [
        "growth",
        "correlation",
        "variance",
    ]
    ax = plt.figure().subplots()
    found.plot(ax=ax, what="correlation")
    assert ax.get_title() == "correlation of outputs"
    with pytest.raises(InvalidInput, match="gradients, correlation, variance"):
        found.plot(what="edge")


@pytest.mark.slow
def test_methods_of_the_largest_variances_serve_the_others(monkeypatch):
    """One method for a diagram: functions of blocks are compiled once."""
    from largen.criticality import of_networks

    seen, propagated = [], of_networks.propagated

    def noted(net, x, param, compiled, methods):
        found = propagated(net, x, param, compiled, methods)
        seen.append((len(compiled), dict(methods)))
        return found

    monkeypatch.setattr(of_networks, "propagated", noted)
    x, w, b = np.eye(2), [0.5, 4.0], [0.0, 1.0]
    found = lg.criticality.network_diagram(
        lambda w, b: lg.residual_mlp(3, "tanh", weight_std=w, bias_std=b), x, w, b
    )
    assert [entry == seen[0] for entry in seen] == [True] * 4
    alone = lg.criticality.propagate(lg.residual_mlp(3, "tanh", weight_std=0.5, bias_std=1.0), x)
    np.testing.assert_allclose(found.variance[0, 1], alone.variance[-1].mean(), rtol=1e-8)
    growth = np.log(np.nanprod(alone.chi_perp[1:], axis=0)).mean()
    np.testing.assert_allclose(found.gradient_growth[0, 1], growth, rtol=1e-7)
