# %% [markdown]
# # A small GPT on characters, infinitely wide
#
# A causal transformer predicts the next character of a nursery rhyme at infinite width and infinite
# key size: its loss, and where its attention goes, before and after training. By default its blocks
# are attention alone, whose limit is exact and quick. With `--perceptrons` a multilayer perceptron
# follows each attention; its neurons are sampled, which takes about a minute. With `--key-size 4`
# there are many heads of four keys instead of large ones, which are sampled as well.
#
#     python examples/small_gpt.py [--steps 20] [--out FOLDER]    # less than a minute
#     python examples/small_gpt.py --perceptrons --steps 6
#     python examples/small_gpt.py --key-size 4 --steps 6

# %%
from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import largen as lg

TEXT = "hickory dickory dock the mouse ran up the clock the clock struck one the mouse ran down"

# %% [markdown]
# ## The text
# Windows of the text, and at each position the character that comes next. The characters are
# one-hot inputs, so that the first `Dense()` is the embedding; the last one, without pooling before
# it, is the unembedding.


# %%
def windows(context: int, stride: int) -> lg.Dataset:
    """Return windows of the text with the next character as target at each position."""
    alphabet, codes = np.unique(list(TEXT), return_inverse=True)
    starts = np.arange(0, len(codes) - context, stride)
    places = starts[:, None] + np.arange(context)
    inputs = lg.token_inputs(codes[places], len(alphabet))
    return lg.Dataset(lg.with_positions(inputs), codes[places + 1])


def gpt(blocks: int, perceptrons: bool = False, key_size: int | None = None) -> lg.layers.Layer:
    """Return a causal transformer whose blocks read the normalised stream."""
    if key_size is None:
        attention = lg.QKVAttention(logit_scale=4.0, causal=True)
    else:
        attention = lg.layers.MultiHeadAttention(key_size=key_size, causal=True)
    block = [lg.Residual(lg.serial(lg.RMSNorm(), attention, lg.Dense()))]
    if perceptrons:
        hidden = (lg.Dense(), lg.Activation("gelu"), lg.Dense())
        block.append(lg.Residual(lg.serial(lg.RMSNorm(), *hidden)))
    return lg.serial(lg.Dense(), *block * blocks, lg.RMSNorm(), lg.Dense())


# %% [markdown]
# ## What comes out
# At initialisation all logits of large keys are 0: the loss is log V, and attention is uniform over
# the characters that a position sees. In heads of a fixed size logits are random, and attention is
# uniform in their mean.


# %%
def solve(
    steps: int,
    perceptrons: bool = False,
    key_size: int | None = None,
    blocks: int = 2,
    lr: float = 3.0,
):
    """Return the limit of gradient descent on the text."""
    run = lg.Run(
        gpt(blocks, perceptrons, key_size),
        lg.mean_field(),
        windows(context=7, stride=11),
        loss="cross_entropy",
        optimizer=lg.gd(lr),
        steps=steps,
    )
    return lg.solve(run, rtol=0.05)  # without effect where nothing is sampled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--perceptrons", action="store_true")
    parser.add_argument("--key-size", type=int)
    parser.add_argument("--out", type=Path, default=Path("small_gpt"))
    given = parser.parse_args()
    limit = solve(given.steps, given.perceptrons, given.key_size)
    before, after = limit.loss_train[[0, -1]]
    seen = (limit.f_train[-1].argmax(-1) == limit.y_train).mean()
    print(f"loss for each character {before:.3f} → {after:.3f}; {seen:.0%} are the likeliest")
    ends = limit.to_xarray().attention.isel(record=[0, -1], sample=0, position=-1).values
    for layer, (start, end) in enumerate(ends.swapaxes(0, 1), start=1):
        print(f"block {layer}: the last character of the first window attends to")
        for character, old, new in zip(TEXT, start, end, strict=False):
            print(f"    {character!r} {old:.3f} → {new:.3f}")
    print(*limit.notes)
    given.out.mkdir(parents=True, exist_ok=True)
    limit.plot().savefig(given.out / "limit.png")
    print(f"picture: {given.out / 'limit.png'}")


if __name__ == "__main__":
    main()
