# %% [markdown]
# # The learning rate of a transformer, from its limit
#
# Handwritten digits are read as sequences of four strips, and transformers of some widths, numbers
# of heads and depths learn to tell noughts from ones. The infinitely wide transformer is solved at
# each learning rate, and its loss is that of the networks: a rate that is tuned on the limit, or on
# a small network, is the one to use.
#
#     python examples/transformer_rates.py [--out FOLDER]    # less than a minute
#     python examples/transformer_rates.py --key-size 4      # heads of a fixed size: minutes
#     python examples/transformer_rates.py --key-sizes 2 4 8 # their limits, and that of large keys

# %%
from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import largen as lg

# %% [markdown]
# ## Digits as sequences
# A strip is two rows of an image; the mean image is subtracted, and positions are encoded.


# %%
def strips(samples: int) -> lg.Dataset:
    """Return noughts and ones, (sample, strip, pixels and position), with targets ±1."""
    images, labels = load_digits(return_X_y=True)
    images, labels = np.asarray(images), np.asarray(labels)
    chosen = np.flatnonzero(labels < 2)[:samples]
    x = images[chosen].reshape(samples, 4, 16) / 16
    return lg.Dataset(lg.with_positions(x - x.mean(0)), 1.0 - 2 * labels[chosen])


# %% [markdown]
# ## A transformer of some depth
# Blocks of attention have the factor 1/L of `complete_p`, so that the depth L has a limit, too.
# Logits q·k/d of large keys are those of μP; heads of a fixed size have the usual q·k/√d, or, if
# their size is to grow, q·k/d as well.


# %%
def transformer(
    blocks: int, heads: int = 1, key_size: int | None = None, *, growing: bool = False
) -> lg.layers.Layer:
    """Return a transformer that reads its stream behind the last block."""
    if key_size is None:
        attention = lg.QKVAttention(logit_scale=2.0, heads=heads)
    else:
        scale = 2.0 / key_size**0.5 if growing else 1.0
        attention = lg.layers.MultiHeadAttention(key_size=key_size, logit_scale=scale)
    block = lg.Residual(lg.serial(lg.RMSNorm(), attention, lg.Dense()))
    return lg.serial(lg.Dense(), *[block] * blocks, lg.RMSNorm(), lg.GlobalAvgPool(), lg.Dense())


def run_of(net: lg.layers.Layer, samples: int, steps: int) -> lg.Run:
    """Return the run whose rate is to be found."""
    return lg.Run(net, lg.complete_p(), strips(samples), optimizer=lg.gd(1.0), steps=steps)


# %% [markdown]
# ## Loss against the rate
# The limit is exact for large keys. Heads of a fixed size are sampled, with an error of a few
# percent here, for which two replicates are enough.

# %%
SAMPLING = {"rtol": 3e-2, "replicates": 2}


def over_key_sizes(given: argparse.Namespace) -> None:
    """Draw the curves of many heads of each size and that of large keys."""
    depth, others = given.depths[0], []
    large = run_of(transformer(depth), given.samples, given.steps)
    limit = lg.learning_rate_curve(large, given.rates)
    print(f"large keys: best rate {limit.optimum:.2f}, loss {np.nanmin(limit.losses):.4f}")
    for size in given.key_sizes:
        run = large.with_changes(net=transformer(depth, key_size=size, growing=True))
        curve = lg.learning_rate_curve(run, given.rates, **SAMPLING)
        least = np.nanmin(curve.losses)
        print(f"keys of size {size}: best rate {curve.optimum:.2f}, loss {least:.4f}")
        others.append(replace(curve, of=f"heads of size {size}"))
    picture = given.out / "key_sizes.png"
    limit.plot(others=others).savefig(picture)
    print(f"picture: {picture}")


# %%
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--key-size", type=int)
    parser.add_argument("--key-sizes", type=int, nargs="+")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rates", type=float, nargs="+", default=np.geomspace(0.25, 2, 10))
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("transformer_rates"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.key_sizes:
        over_key_sizes(given)
        return
    sampling = {} if given.key_size is None else SAMPLING
    for depth in given.depths:
        run = run_of(transformer(depth, key_size=given.key_size), given.samples, given.steps)
        limit = lg.learning_rate_curve(run, given.rates, **sampling)
        print(f"{depth} block{'s' * (depth > 1)}: best rate of the limit {limit.optimum:.2f}")
        others = []
        for width in given.widths:
            for heads in (1, 4) if given.key_size is None else (None,):
                net = run.net if heads is None else transformer(depth, heads)
                one = run.with_changes(net=net)
                curve = lg.learning_rate_curve(one, given.rates, width=width, seeds=given.seeds)
                heads = heads or width // given.key_size
                words = f"width {width}, {heads} head{'s' * (heads > 1)}"
                print(f"    {words}: best rate {curve.optimum:.2f}")
                others.append(replace(curve, of=words))
        picture = given.out / f"{depth}_blocks.png"
        limit.plot(others=others).savefig(picture)
        print(f"    picture: {picture}")


if __name__ == "__main__":
    main()
