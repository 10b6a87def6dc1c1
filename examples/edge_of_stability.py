# %% [markdown]
# # The edge of stability, at infinite width
#
# Gradient descent on a quadratic converges if the rate times the sharpness, the largest eigenvalue
# of the Hessian, is below 2. Networks sharpen while they learn, until they reach this edge, and
# stay there while the loss falls on (Cohen et al. 2021, *Gradient descent on neural networks
# typically occurs at the edge of stability*). So do infinitely wide networks if their features
# move: here one hidden layer learns odd from even digits in the mean-field limit, beside a network
# of finite width.
#
#     python examples/edge_of_stability.py [--out FOLDER]    # a minute

# %%
from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import largen as lg
from largen.experiments.digits import digits
from largen.plots.panels import panels
from largen.plots.style import shades, style

NET = lg.mlp(1, "tanh")

# %% [markdown]
# ## Sharpness
# With the loss (1/P) Σ ½(f − y)² the Hessian is JᵀJ/P and that of the outputs, weighted by the
# residuals. The first has the eigenvalues of the tangent kernel, λ/P, and the second vanishes with
# the loss. The rates are fractions of the one that is critical at the start, 2P/λ(0), so that
# curves begin at twice the fraction; in the kernel limit they would stay there.


# %%
def sharpness(found: lg.Trajectory, rate: float) -> np.ndarray:
    """Return the rate times λ/P at each recorded step, (record,)."""
    kernels = found.ntk if found.ntk.ndim == 3 else found.ntk[0]  # of one network
    return np.array([2 * rate / lg.regression.critical_learning_rate(kernel) for kernel in kernels])


# %%
def main() -> None:
    """Solve for some rates, train a network at one of them, and draw both."""
    parser = argparse.ArgumentParser(description="The edge of stability at infinite width.")
    parser.add_argument("--out", type=Path, default=Path("edge"))
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--particles", type=int, default=512)
    parser.add_argument("--with-network", type=float, default=0.1, metavar="FRACTION")
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.025, 0.05, 0.1, 0.2])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    data = digits(options.samples, 1)
    critical = lg.regression.critical_learning_rate(lg.ntk_kernel(NET, data.x_train))
    every = max(options.steps // 100, 1)
    at = list(range(0, options.steps + 1, every))
    recorded = {"record": ["ntk"], "record_at": at, "progress": False}
    theory = lg.theories.MeanField(particles=options.particles, **recorded)
    with style():
        figure, ((left, right),) = panels(1, 2)
        colours = shades(len(options.fractions))
        for colour, fraction in zip(colours, options.fractions, strict=True):
            rate = fraction * critical
            run = lg.Run(
                NET, lg.mean_field(gamma=4.0), data, optimizer=lg.gd(rate), steps=options.steps
            )
            limit = lg.solve(run, theory=theory)
            edge = sharpness(limit, rate)
            name = f"{fraction:g} of the critical rate"
            left.plot(at, edge, color=colour)
            right.plot(limit.loss_train, color=colour, label=name)
            print(f"{name:25s} η₀λ/P from {edge[0]:.2f} to {edge[-1]:.2f}", end="")
            print(f", loss {limit.loss_train[-1]:.1e}")
            if fraction == options.with_network:
                nets = lg.train(run, width=options.width, seeds=1, key=0, **recorded)
                left.plot(at, sharpness(nets, rate), ".", color=colour)
                right.plot(
                    at, nets.loss_train[0, at], ".", color=colour, label=f"width {options.width}"
                )
                print(f"{'':25s} at width {options.width} to {sharpness(nets, rate)[-1]:.2f}")
        left.axhline(2, color="k", linestyle=":")
        left.set(title="rate times sharpness, η₀λ(t)/P", xlabel="step t", ylim=(0, 3))
        right.set(title="training loss", xlabel="step t", yscale="log")
        right.legend()
        figure.savefig(options.out / "edge.png")
    print(f"picture in {options.out}/")


if __name__ == "__main__":
    main()
