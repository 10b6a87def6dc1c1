# %% [markdown]
# # What feature learning does to an infinitely wide network
#
# Three pictures from the mean-field limit: the kernels of a deep network before and after it has
# learnt handwritten digits, beside networks of width 2048; learning curves from lazy to rich; and
# residual networks that become deeper and deeper.
#
#     python examples/features_that_learn.py [--out FOLDER]    # some minutes

# %%
from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

import largen as lg
from largen.experiments.digits import digits
from largen.plots.panels import panels
from largen.plots.style import shades, size_axis, style

# %% [markdown]
# ## The task
# Threes against eights, sorted by class, so that kernels show blocks if features tell them apart.


# %%
def task(train: int = 24, test: int = 100) -> lg.Dataset:
    """Return digits sorted by class."""
    data = digits(train, test, classes=(3, 8))
    order = np.argsort(data.y_train, kind="stable")
    return lg.Dataset(data.x_train[order], data.y_train[order], data.x_test, data.y_test)


def run_of(
    net: lg.layers.Layer, param: lg.scaling.Parameterization, *, lr=0.5, steps=60, samples=(24, 100)
):
    """Return gradient descent on the task."""
    return lg.Run(net, param, task(*samples), optimizer=lg.gd(lr), steps=steps)


# %% [markdown]
# ## Kernels before and after
# Φˡ of a network with three hidden layers of tanh, at infinite width and averaged over four
# networks of width 2048. In the lazy limit nothing would move; here blocks appear, the deeper
# the clearer.


# %%
def kernels(folder: Path, width: int = 2048, seeds: int = 4, steps: int = 60, samples=(24, 100)):
    """Draw the feature kernels of theory and networks."""
    run = run_of(lg.mlp(3, "tanh"), lg.mean_field(2.0), steps=steps, samples=samples)
    limit = lg.solve(run, rtol=1e-2)
    nets = lg.train(run, width=width, seeds=seeds, key=0, record=["feature_kernel"])
    with style():
        figure, axes = panels(3, 4)
        for layer, row in enumerate(axes):
            largest = float(np.abs(limit.feature_kernel[:, layer]).max())
            for record, when in enumerate(("before", "after")):
                theory = limit.feature_kernel[record, layer]
                seen = nets.feature_kernel[:, record, layer].mean(0)
                off = np.linalg.norm(seen - theory) / np.linalg.norm(theory)
                for ax, kernel, who in (
                    (row[2 * record], theory, "infinite width"),
                    (row[2 * record + 1], seen, f"width {width}, {off:.1%} off"),
                ):
                    ax.imshow(kernel, cmap="RdBu_r", vmin=-largest, vmax=largest)
                    ax.set(title=f"layer {layer + 1}, {when}\n{who}", xticks=[], yticks=[])
                    ax.grid(False)
        figure.savefig(folder / "kernels.png")
    print(limit)


# %% [markdown]
# ## From lazy to rich
# γ₀ says how much features move while the outputs do. At the same rate η₀ the rich network learns
# slowly at first and then faster.


# %%
def richness(folder: Path, gammas=(0.1, 0.5, 1.0, 2.0, 3.0), steps: int = 60, samples=(16, 20)):
    """Draw learning curves against γ₀."""
    with style():
        figure, (axes,) = panels(1, 2)
        for colour, gamma in zip(shades(len(gammas)), gammas, strict=True):
            param = lg.mean_field(gamma)
            run = run_of(lg.mlp(3, "tanh"), param, steps=steps, samples=samples)
            limit = lg.solve(run, rtol=1e-2, record_at=[])
            for ax, loss in zip(axes, (limit.loss_train, limit.loss_test), strict=True):
                ax.plot(limit.time, loss, color=colour, label=f"γ₀ = {gamma:g}")
        for ax, what in zip(axes, ("training", "test"), strict=True):
            ax.set(title=f"{what} loss", xlabel="time η₀t", yscale="log")
        axes[0].legend()
        figure.savefig(folder / "richness.png")


# %% [markdown]
# ## Depth
# Residual networks in depth-μP: with branches 1/√L their learning curves approach a limit of
# infinite depth. Linear networks have closed equations, whose solutions are exact: their distance
# falls as 1/L. That of tanh networks does so until it is level with the error of the averages.


# %%
def by_depth(activation: str, depths, steps: int, particles: int) -> dict[int, lg.Trajectory]:
    """Return the limits of residual networks of some depths."""
    found = {}
    for blocks in depths:
        net = lg.residual_mlp(blocks, activation)
        run = run_of(net, lg.depth_mup(), lr=0.2, steps=steps, samples=(8, 1))
        found[blocks] = lg.solve(run, rtol=4e-3, max_particles=particles, record_at=[])
    return found


def depth(folder: Path, depths=(2, 4, 8, 16, 32), steps: int = 25, particles: int = 2**16) -> None:
    """Draw learning curves of residual networks, and what doubling their depth changes."""
    found = {
        activation: by_depth(activation, some, steps, particles)
        for activation, some in (("tanh", depths), ("linear", depths[:-1]))
    }
    with style():
        figure, (axes,) = panels(1, 2)
        for colour, (blocks, limit) in zip(shades(len(depths)), found["tanh"].items(), strict=True):
            axes[0].plot(limit.time, limit.loss_train, color=colour, label=f"L = {blocks}")
        axes[0].set(title="training loss, tanh", xlabel="time η₀t", yscale="log")
        axes[0].legend()
        for activation, limits in found.items():
            pairs = list(pairwise(limits))
            size = {blocks: np.linalg.norm(limit.f_train) for blocks, limit in limits.items()}
            off = {blocks: np.linalg.norm(limit.f_train_error) for blocks, limit in limits.items()}
            gaps = [
                np.linalg.norm(limits[a].f_train - limits[b].f_train) / size[b] for a, b in pairs
            ]
            # What the neurons' randomness alone would make them differ by.
            noise = [np.hypot(off[a], off[b]) / size[b] for a, b in pairs]
            at = [a for a, _ in pairs]
            axes[1].errorbar(at, gaps, noise, fmt="o-", label=activation)
            axes[1].plot(at, gaps[-1] * at[-1] / np.array(at), "k:")
            for (a, b), gap, chance in zip(pairs, gaps, noise, strict=True):
                print(f"{activation}, L = {a:2} and {b:2}: {gap:.2%} apart, by chance {chance:.2%}")
        axes[1].set(title="|f(L) − f(2L)| / |f(2L)|, and 1/L", yscale="log")
        size_axis(axes[1], depths[:-1], "blocks L")
        axes[1].legend()
        figure.savefig(folder / "depth.png")


# %%
def main() -> None:
    """Draw all three."""
    parser = argparse.ArgumentParser(description="Three pictures of feature learning.")
    parser.add_argument("--out", type=Path, default=Path("features"))
    parser.add_argument("--only", choices=("kernels", "richness", "depth"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for draw in (kernels, richness, depth):
        if options.only in (None, draw.__name__):
            draw(options.out)
    print(f"pictures in {options.out}/")


if __name__ == "__main__":
    main()
