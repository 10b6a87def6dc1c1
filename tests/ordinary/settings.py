"""Ordinary data for a network and a call; how numbers are compared; refusals that are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from tests.ordinary import data, references
from tests.ordinary.networks import JUMPS, ROWS, Network

import largen as lg
from largen.errors import InvalidInput, LargenError, NoRule, NoTheory, NumericalFailure

SAMPLES, NEW = 6, 3  # the same for all draws, so that compiled programs are shared
WIDTH = 8
DOUBLE, SINGLE = 2e-8, 5e-5  # relative to √(K_aa K_bb); largen promises 1e-8 an expectation


@dataclass
class Setting:
    """What a call is made with, and what it is checked with.

    Attributes
    ----------
    network, kind
        What was drawn.
    x, x_new
        Training and new samples, as given.
    rng
        The generator of further choices.
    target
        The name of the kind of targets.
    """

    network: Network
    kind: data.Kind
    target: str
    rng: np.random.Generator
    x: Any = field(init=False, repr=False)
    x_new: Any = field(init=False, repr=False)

    def __post_init__(self):
        shape = self.network.inputs
        columns = self.kind.columns or int(np.prod(shape))
        self.x, self.x_new = (self.kind.make(self.rng, n, columns) for n in (SAMPLES, NEW))
        if shape != ROWS:
            self.x, self.x_new = (_shaped(each, shape) for each in (self.x, self.x_new))

    @property
    def net(self) -> lg.layers.Layer:
        return self.network.net

    @cached_property
    def options(self) -> dict[str, Any]:
        return {} if self.network.param is None else {"param": self.network.param}

    @cached_property
    def plain(self) -> np.ndarray:
        """The numbers of ``x``."""
        return data.plain(self.x)

    @cached_property
    def plain_new(self) -> np.ndarray:
        return data.plain(self.x_new)

    @cached_property
    def double(self) -> np.ndarray:
        return self.plain.astype(np.float64)

    @cached_property
    def y(self) -> Any:
        """Targets, as given."""
        return data.TARGETS[self.target](self.rng, SAMPLES)

    @cached_property
    def plain_y(self) -> np.ndarray:
        return np.asarray(self.y, np.float64)

    @property
    def tolerance(self) -> float:
        return DOUBLE if self.plain.dtype == np.float64 else SINGLE

    @property
    def rare_slopes(self) -> bool:
        """Whether few neurons have a slope: means over neurons of a slope have heavy tails."""
        bounded = self.network.name.split(",")[0] in ("erf", "tanh")
        return bounded and float(np.abs(self.double).max(initial=0)) > 5

    @property
    def inputs(self) -> Any:
        """The shape of a sample, as ``lg.networks.init`` takes it."""
        return self.plain.shape[1] if self.plain.ndim == 2 else self.plain.shape[1:]

    def one_of(self, count: int, *checks: Callable[[], None]) -> None:
        """Make some of the checks."""
        for i in self.rng.permutation(len(checks))[:count]:
            checks[i]()

    # Kernels, by largen at the plain numbers and by the reference.

    @cached_property
    def kernels(self) -> tuple[Any, Any]:
        """NNGP and NTK of the plain numbers in double precision."""
        return self.kernels_at(self.double)

    def kernels_at(self, *x: np.ndarray) -> tuple[Any, Any]:
        if self.network.tangent:
            return tuple(lg.kernel(self.net, *x, **self.options))
        return lg.nngp_kernel(self.net, *x, **self.options), None

    @cached_property
    def reference(self) -> tuple[np.ndarray, np.ndarray | None] | None:
        """NNGP and NTK by NumPy, where there is such a reference and it resolves the numbers."""
        return self.reference_at(self.double, self.double)

    def reference_at(self, x1: np.ndarray, x2: np.ndarray) -> Any:
        if self.network.steps is None:
            return None
        jumps = any(step[1] in JUMPS for step in self.network.steps)
        if jumps and self.kind.name == "nearly equal rows":
            return None  # an angle of 1e-9 is not in the products of rows
        try:
            with np.errstate(all="ignore"):
                found = references.kernels(self.network.steps, x1, x2)
        except references.Unresolved:
            return None
        return found if all(k is None or np.isfinite(k).all() for k in found) else None

    def condition(self, which: int = 0) -> float:
        """The condition number of the NNGP (0) or of the NTK (1); infinite if it is singular."""
        K = self.kernels[which]
        size = np.sqrt(np.diag(K))
        if not size.all():
            return np.inf
        values = np.linalg.eigvalsh(K / np.outer(size, size))
        size = size.max() / size.min()
        return float(size**2 * values[-1] / max(values[0], 1e-300))


def _shaped(given: Any, shape: tuple[int, ...]) -> Any:
    """Samples of images from rows: lists and read-only arrays stay what they are."""
    if isinstance(given, list):
        arrays = np.asarray(given).reshape(len(given), *shape)
        return list(arrays) if isinstance(given[0], np.ndarray) else arrays.tolist()
    return given.reshape(len(given), *shape)


def near(what: str, got: Any, want: Any, tolerance: Any, size: Any = None) -> None:
    """Assert that numbers agree within a part of their size, by default the largest of them."""
    got, want = np.asarray(got, np.longdouble), np.asarray(want, np.longdouble)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, wanted {want.shape}"
    if size is None:
        size = np.max(np.abs(want), initial=0)
    with np.errstate(invalid="ignore"):
        error = np.where(got == want, 0, np.abs(got - want))  # ∞ is equal to ∞
    # Rounding of the largest number is allowed everywhere: rows of zeros have the size zero.
    with np.errstate(invalid="ignore"):  # 0 times the size ∞
        allowed = tolerance * np.asarray(size) + 1e-14 * np.max(size, initial=0) + 1e-300
    if not np.all((error == 0) | (error <= allowed)):  # NaN is not near
        i = np.unravel_index(
            np.argmax(np.where(np.isnan(error), np.inf, error - allowed)), error.shape
        )
        i = tuple(map(int, i))
        raise AssertionError(
            f"{what}: {float(got[i])!r} at {i}, wanted {float(want[i])!r}; "
            f"error/size {float((error / (np.asarray(size) + np.zeros_like(error)))[i]):.1e}"
        )


def sizes(K: np.ndarray, rows: Any = None, columns: Any = None) -> np.ndarray:
    """√(K_aa K_bb) of a symmetric kernel."""
    root = np.sqrt(np.maximum(np.diag(np.asarray(K, np.longdouble)), 0))
    return np.outer(
        root if rows is None else root[rows], root if columns is None else root[columns]
    )


def symmetric(what: str, K: Any, tolerance: float = 1e-10) -> None:
    """Assert that a matrix is exactly symmetric and positive up to rounding."""
    K = np.asarray(K, np.float64)
    assert (K == K.T).all(), f"{what}: is not symmetric, by {np.abs(K - K.T).max():.1e}"
    root = np.sqrt(np.maximum(np.diag(K), 0))
    root = np.maximum(root, 1e-6 * root.max(initial=0) + 1e-150)
    scaled = K / np.outer(root, root)
    least = np.linalg.eigvalsh(scaled)[0]
    assert least > -tolerance * len(K), f"{what}: has the eigenvalue {least:.1e} of correlations"


def right_dtype(what: str, got: Any, *given: Any) -> None:
    """Assert the rule of precision: double if any input is, single otherwise; NumPy for NumPy."""
    plain = [data.plain(each) for each in given]
    want = np.result_type(*plain)
    assert got.dtype == want, f"{what}: is of {got.dtype}, wanted {want}"
    arrays = any(isinstance(each, jax.Array) for each in given)
    assert isinstance(got, jax.Array if arrays else np.ndarray), f"{what}: is a {type(got)}"


# Refusals.

LIMITED = ("exp", "square", "hermite", "polynomial", "cubic, depth 2")
SINGULAR = 1e9
SIGNS_OF_SINGULAR = (
    "singular", "eigenvalue", "positive", "noise", "close", "equal", "vanish", "zero", "same",
)  # fmt: skip


def refusal(s: Setting, needs: str, error: LargenError, check: Callable[[Setting], object]) -> str:
    """Return why a refusal is right; an empty string if it is not."""
    text = str(error)
    of_form, failed = isinstance(error, InvalidInput), isinstance(error, NumericalFailure)
    if s.kind.refused and of_form and ("float" in text or "array" in text or "dtype" in text):
        return "the numbers are wanted in another form"
    if s.target in data.TARGETS_REFUSED and of_form and "y" in text.split(":")[0]:
        return "classes or numbers?"
    most = float(np.abs(s.plain).max(initial=0))
    if failed and s.network.name in LIMITED and most > 5:
        return "powers and exponentials of large inputs overflow"
    limited = "rtol", "resolve", "accura", "Hermite series"
    if failed and any(word in text for word in limited):
        if "own" in s.network.name:
            return "a function of the user's own is beyond what is integrated"
        if most > (10 if "Hermite series" in text else 4000):
            return "the variance is beyond what is integrated"
    if isinstance(error, (NoTheory, NoRule)) and "theory" in needs and _of_gaussian(s, check):
        return "no theory covers the network"
    if "inputs vanish" in text and not s.double.any():
        return "a row of zeros has no relative fluctuations"
    if "singular" in needs and s.network.kernels and (failed or (of_form and _singular(text))):
        tangent = "tangent" in needs and s.network.tangent
        try:
            singular = s.condition(1 if tangent else 0) > SINGULAR or s.condition(0) > SINGULAR
        except LargenError as other:
            return "has no kernel: see there" if type(other) is type(error) else ""
        if singular:
            return "the kernel is singular"
    rows = np.concatenate([s.double, s.plain_new])
    if of_form and "parallel" in text and (_parallel(rows) or _alike(s.kernels_at(rows)[0])):
        return "second derivatives of kernels of kinks diverge at parallel rows"
    return _of_values(s, needs, text, most) if failed else ""


def _of_values(s: Setting, needs: str, text: str, most: float) -> str:
    """Return why numbers fail for the values of inputs and targets; an empty string otherwise."""
    rows = np.concatenate([s.double, s.plain_new]) if s.double.ndim == 2 else np.ones((1, 1))
    if "its signal vanishes" in text and not rows.any(1).all():
        return "a row of zeros has no relative fluctuations"
    ends = re.search(r"tangent kernel has eigenvalues from (\S+) to (\S+): it is singular", text)
    if ends and float(ends[1]) < 1e-9 * float(ends[2]):
        return "the tangent kernel of a few neurons is singular"
    if "nothing is left of the targets" in text and not s.plain_y.any():
        return "there are no targets"
    far = np.abs(s.plain_y).max(initial=0) > 100
    if "moderate" in needs and (most > 5 or most < 1e-2 or far):
        return "training at a fixed rate diverges, or nothing moves"
    return ""


def _singular(text: str) -> bool:
    """Whether a message is about rows that a kernel cannot tell apart, or that vanish."""
    words = (
        "singular",
        "eigenvalue",
        "positive",
        "noise",
        "close",
        "equal",
        "vanish",
        "zero",
        "same",
        "is 0",
        "are 0",
    )
    return any(word in text for word in words)


def _of_gaussian(s: Setting, check: Callable[[Setting], object]) -> bool:
    """Whether the network is refused with Gaussian data as well: a theory does not see data."""
    target = "gaussian" if s.plain_y.ndim == 1 else "two outputs"
    plain = Setting(s.network, data.KINDS["gaussian"], target, np.random.default_rng(0))
    try:
        check(plain)
    except (NoTheory, NoRule):
        return True
    return False


def _parallel(x: np.ndarray) -> bool:
    """Whether two rows have one direction, or opposite ones."""
    x = x.reshape(len(x), -1)
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    return bool(np.abs(np.triu(unit @ unit.T, 1)).max() > 1 - 1e-9)


def _alike(K: np.ndarray) -> bool:
    """Whether two samples are one to a kernel, as rows are that are small beside a bias."""
    size = np.sqrt(np.maximum(np.diag(K), 1e-300))
    return bool(np.abs(np.triu(K / np.outer(size, size), 1)).max() > 1 - 1e-9)
