"""Sequences as inputs: tokens and their positions.

An embedding table is an affine map of one-hot tokens, and a table of positions one of one-hot
positions. With tokens and positions as inputs, both tables are weights of the first affine map:
they have its kernels, its rates and its scaling with the width in all theories.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.arrays import as_array, known, like, precision, samples
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.scalars import integer, real

ROUNDING = 1e-14  # relative size below which an eigenvalue is a rounding error


@cites("bahri2022les")
def token_inputs(tokens: Any, vocabulary: int) -> np.ndarray:
    """Return tokens as inputs √V·e_token, for which ``Dense(weight_std=σ)`` is an embedding table.

    The entries of this table have the standard deviation σ, and the covariance of its outputs is
    K[p, q] = σ² δ(token_p, token_q), that of one-hot vectors (Bahri and Hanin, Les Houches
    lectures, eq. (13)).

    Parameters
    ----------
    tokens
        Integers from 0 to ``vocabulary`` − 1, an array or lists, (sample, *space). Sequences
        that are shorter end in any token; pass masks to the kernels.
    vocabulary
        V, the number of different tokens.

    Returns
    -------
    array
        float64, (sample, *space, V).

    Raises
    ------
    InvalidInput
        For tokens that are not integers or not in the vocabulary, or have no axis of positions.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = lg.token_inputs([[0, 2, 0]], vocabulary=3)
    >>> x.shape
    (1, 3, 3)
    >>> net = lg.serial(lg.Dense(weight_std=1.5), lg.layers.GlobalSumPool(), lg.Dense())
    >>> bool(np.allclose(lg.nngp_kernel(net, x), 1.5**2 * (2**2 + 1)))  # twice 0 and once 2
    True
    """
    size = integer("vocabulary", vocabulary, at_least=1)
    known("tokens", tokens)
    codes = np.asarray(as_array("tokens", tokens))
    if codes.dtype.kind not in "iu":
        raise InvalidInput(f"tokens: wanted integers, got dtype {codes.dtype}.")
    if codes.ndim < 2 or not codes.size:
        raise InvalidInput(f"tokens: wanted (sample, position), got shape {codes.shape}.")
    if codes.min() < 0 or codes.max() >= size:
        raise InvalidInput(
            f"tokens: wanted numbers from 0 to {size - 1}, got {codes.min()} to {codes.max()}."
        )
    return np.sqrt(size) * np.eye(size)[codes]


@cites("hron2020infinite")
def with_positions(x: ArrayLike, std: float = 1.0, length_scale: float | None = None) -> Any:
    """Return inputs with features of their positions: a trainable positional encoding.

    The outputs of ``Dense(weight_std=σ_w, bias_std=σ_b)`` on these inputs contain an independent
    Gaussian process over positions (Hron, Bahri, Sohl-Dickstein and Novak 2020, *Infinite
    attention*),

        K[p, q] = σ_b² + σ_w² (x_p·x'_q/D + σ_p² R[p, q]),

    with R the identity, a table of independent entries, or exp(−|p − q|²/2ℓ²). It is trained with
    the other weights of the layer; the network has no further parameters. The inputs become
    √(D'/D) x and √D' σ_p r_p with rows r_p·r_q = R[p, q], D' of them together.

    Parameters
    ----------
    x
        Samples, (sample, *space, channel), the channels last.
    std
        σ_p, the standard deviation of the encoding before the factor σ_w, in the units of a channel
        of x.
    length_scale
        ℓ, in positions, of the radial basis function; None for R = 1.

    Returns
    -------
    array
        (sample, *space, D'), in the precision of x, with D' at most D and the number of positions.

    Raises
    ------
    InvalidInput
        For samples without positions, or a negative standard deviation or length.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = lg.with_positions(np.ones((1, 4, 2)), std=0.5)
    >>> x.shape
    (1, 4, 6)
    >>> bool(np.allclose(x[0] @ x[0].T / 6, 1 + 0.25 * np.eye(4)))
    True
    """
    given = samples("x", x)
    if given.ndim < 3:
        raise InvalidInput(f"x: wanted (sample, *space, channel), got shape {given.shape}.")
    size = real("std", std, at_least=0)
    length = None if length_scale is None else real("length_scale", length_scale, above=0)
    *shape, channels = given.shape
    rows = size * _root(tuple(shape[1:]), length)
    together = channels + rows.shape[-1]
    with precision(given):
        content = given * np.sqrt(together / channels).astype(given.dtype)
        where = jnp.asarray(np.sqrt(together) * rows, given.dtype)
        where = jnp.broadcast_to(where, (*shape, rows.shape[-1]))
        return like(jnp.concatenate([content, where], axis=-1), given)


def _root(space: tuple[int, ...], length: float | None) -> np.ndarray:
    """Return rows r with r_p·r_q = R[p, q], (*space, at most positions)."""
    places = np.stack(np.meshgrid(*map(np.arange, space), indexing="ij"), axis=-1)
    places = places.reshape(-1, len(space))
    if length is None:
        return np.eye(len(places)).reshape(*space, -1)
    squares = np.sum((places[:, None] - places[None]) ** 2, axis=-1)
    values, vectors = np.linalg.eigh(np.exp(-0.5 * (squares / length) / length))
    kept = values > ROUNDING * values[-1]
    return (vectors[:, kept] * np.sqrt(values[kept])).reshape(*space, -1)
