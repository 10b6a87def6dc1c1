"""Recording of the variances that occur in the Gaussian expectations of a computation.

Within :func:`watch`, functions for moments do not compute integrals. They record the activation and
the variances, and return cheap upper bounds on the moments. A computation can thus be traversed for
a few representative variances before it is carried out for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import is_traced
from largen.expectations.accuracy import FARTHEST, SingleMoments, by_angle, moments_at
from largen.expectations.activations import ActivationFunction
from largen.expectations.quadrature import gaussian_mean
from largen.expectations.series_pair import square


@partial(jax.tree_util.register_dataclass, data_fields=["variances"], meta_fields=["phi"])
@dataclass(frozen=True)
class MomentRequest:
    """An activation with extreme variances of its argument in a layer, or all concrete ones."""

    phi: ActivationFunction
    variances: Any


class Watch:
    """The moments that a block of code requests; see :func:`separate_watch`.

    With ``only_which``, moments at concrete variances are replaced by these: nothing is compiled.
    """

    def __init__(self, only_which: bool = False):
        self.only_which = only_which
        self._own: dict[ActivationFunction, list[Any]] = {}
        self._passed_on: list[MomentRequest] = []

    @property
    def all(self) -> list[MomentRequest]:
        """All requests: those of the block, one for each activation, and those of inner blocks."""
        requests = [MomentRequest(phi, _told(variances)) for phi, variances in self._own.items()]
        return [*self._passed_on, *requests]

    def note(self, phi: ActivationFunction, *variances: Any) -> None:
        """Add variances that the block itself requests."""
        self._own.setdefault(phi, []).extend(variances)

    def add_requests(self, requests: Iterable[MomentRequest]) -> None:
        """Add the requests of an inner block."""
        self._passed_on += requests


def _told(variances: list[Any]) -> Any:
    if isinstance(variances[0], np.ndarray):
        return np.unique(np.concatenate([np.ravel(q) for q in variances]))
    low, high = ([end(q) for q in variances] for end in (jnp.min, jnp.max))
    return jnp.stack([jnp.min(jnp.stack(low)), jnp.max(jnp.stack(high))])


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watch(only_which: bool = False) -> Iterator[Watch]:
    """Record the requested moments within the block, instead of computing them."""
    record = Watch(only_which)
    token = _WATCH.set(record)
    try:
        yield record
    finally:
        _WATCH.reset(token)


@contextmanager
def separate_watch() -> Iterator[Watch]:
    """Record the requests of a block separately, if there is a watch around it."""
    if (outer := _WATCH.get()) is None:
        yield Watch()
    else:
        with watch(outer.only_which) as inner:
            yield inner


def add_requests(requests: Iterable[MomentRequest]) -> None:
    """Add requests that were recorded separately to the current watch."""
    if (record := _WATCH.get()) is not None:
        record.add_requests(requests)


def current_watch() -> Watch | None:
    """Return the innermost active watch, or None."""
    return _WATCH.get()


def single(record: Watch, phi: ActivationFunction, moment: str, q: Any) -> Any:
    """Record a variance and return a moment under one Gaussian, for a variance of any size."""
    (q,) = _numpy_if_known(q)
    record.note(phi, q)
    return _moment(record, phi, moment, q)


def pair(record: Watch, phi: ActivationFunction, q1: Any, q2: Any, gap: Any) -> tuple[Any, Any]:
    """Record two variances and return a gap and E[φ'φ'].

    The correlation of φ(u) and φ(v) is set to that of u and v, which is exact for linear φ and for
    equal u and v; sums over positions then attain their largest values.
    """
    q1, q2, gap = _numpy_if_known(q1, q2, gap)
    record.note(phi, q1, q2)
    one, two = (_moment(record, phi, "second_moment", q) ** 0.5 for q in (q1, q2))
    slopes = [_moment(record, phi, "derivative_second_moment", q) ** 0.5 for q in (q1, q2)]
    size = q1**0.5 * q2**0.5
    apart = gap - (q1**0.5 - q2**0.5) ** 2 / 2  # (1 − c) √(q1 q2)
    apart = apart / (size + (size == 0))
    return (one - two) ** 2 / 2 + apart * one * two, slopes[0] * slopes[1] + 0 * gap


def pair_of_two(
    record: Watch, phi: ActivationFunction, psi: ActivationFunction, q1: Any, q2: Any, q12: Any
) -> tuple[Any, Any]:
    """Record variances, and return E[φψ] and E[φ'ψ'] with the correlation of u and v."""
    q1, q2, q12 = _numpy_if_known(q1, q2, q12)
    values, slopes = (
        _moment(record, phi, moment, q1) ** 0.5 * _moment(record, psi, moment, q2) ** 0.5
        for moment in ("second_moment", "derivative_second_moment")
    )
    size = q1**0.5 * q2**0.5
    return q12 / (size + (size == 0)) * values, slopes + 0 * q12


def _numpy_if_known(*arrays: Any) -> tuple[Any, ...]:
    return arrays if is_traced(arrays) else tuple(np.asarray(x, np.float64) for x in arrays)


def _moment(watch: Watch, phi: ActivationFunction, moment: str, q: Any) -> Any:
    if isinstance(q, np.ndarray):
        if watch.only_which:
            return q
        return getattr(_moments_once(phi, q.tobytes()), moment).reshape(q.shape)
    if phi.closed_form is not None:
        return getattr(phi.closed_form, moment)(q)
    function = phi.derivative if moment == "derivative_second_moment" else phi
    if moment != "mean":
        function = square(function)
    value = gaussian_mean(function, q, reach=FARTHEST if by_angle(phi) else None)
    return jnp.where(jnp.isfinite(q), value, jnp.inf)


@lru_cache(maxsize=64)
def _moments_once(phi: ActivationFunction, q: bytes) -> SingleMoments:
    variances = np.frombuffer(q)
    if phi.closed_form is None:
        return moments_at(phi, variances)
    return SingleMoments(*map(np.asarray, _in_closed_form(phi, variances)))


@partial(jax.jit, static_argnums=0)
def _in_closed_form(phi: ActivationFunction, q: Any) -> SingleMoments:
    return SingleMoments(*(getattr(phi.closed_form, name)(q) for name in SingleMoments._fields))
