"""Audits: whether a plan can be made from a model's builder alone, and whether it is right.

A plan is right if a few steps of training change the model's outputs equally at all sizes: the
slope of the change, in log₂ per doubling, is then 0 up to finite-size corrections.

The initial outputs f₀ of a random read-out vanish as n^(−½). With targets y, the error f₀ − y and
the response to it would contain f₀, which is as large as y at the base of a model such as T5, and
would shrink with the width under the right plan. With targets f₀ + y, the error at the start is −y
at every size.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from largen.callables import takes
from largen.errors import InvalidInput, LargenError, instance_of
from largen.interrupts import in_main_thread
from largen.scalars import flag, integer, real, sequence
from largen.text import shown
from largen.transfer.coordinates import CoordinateCheck, slope_with_margin
from largen.transfer.hints import Hints
from largen.transfer.schemes import scheme_of
from largen.transfer.shapes import shapes
from largen.transfer.structure import correspondence
from largen.transfer.torch.check import coordinate_check
from largen.transfer.torch.scaling import scale
from largen.transfer.torch.survey import on_meta, part_of
from largen.transfer.updates import update
from tools.audit.quiet import Quiet
from tools.audit.stock import BASE, LARGEST, StockModel, stock_models
from tools.audit.table import Audit, Audited, Slope, format_of

GROWTH = (1, 2, 4)
TOLERANCE = 0.3
AGAIN = 1.0  # seconds between attempts to stop an audit that takes too long


def audit(
    make_model: Callable[..., nn.Module],
    base: Mapping[str, Any],
    *,
    growth: Sequence[int] = GROWTH,
    scheme: Any = "complete_p",
    optimizer: str = "adam",
    lr: float = 2e-3,
    steps: int = 4,
    seeds: int = 4,
    most_seeds: int | None = None,
    tolerance: float = TOLERANCE,
    name: str = "model",
    example: Any = None,
    depth: str = "depth",
    experts: str = "experts",
    **options: Any,
) -> Audited:
    """Make a plan from a model's builder alone, train the model at several sizes, return a verdict.

    The sizes are multiples of the base's, in all widths at once, in the depth, and in the number of
    experts if the base has one. The models are
    trained towards f₀ + y with the loss ½⟨(f − f₀ − y)²⟩, where f are their outputs, f₀ the initial
    ones and y is random, in evaluation mode except for batch normalisation. The slope of log₂ of
    the change of f against log₂ of the size is fitted, with an interval from the scatter between
    seeds. The verdict is one of:

    ``"flat"``
        All intervals are within the tolerance.
    ``"not flat"``
        One interval lies beyond the tolerance.
    ``"undecided"``
        One interval reaches beyond the tolerance, also with ``most_seeds`` networks of each size.
    ``"refused"``
        No plan could be made, and the message says what to pass; or larger models could not be
        trained.
    ``"not built"``
        The base could not be built.

    Parameters
    ----------
    make_model, base
        As in :func:`scale`.
    growth
        Multiples of the base's sizes.
    scheme, optimizer, example, depth, experts, **options
        As in :func:`scale`.
    lr
        η₀.
    steps, seeds
        The number of training steps, and of networks of each size: at least 2.
    most_seeds
        The number of networks of each size with which a slope is measured again if its interval
        reaches beyond the tolerance; 2 · seeds by default. Intervals are of 95 % each time, so that
        a slope at the tolerance is called flat at most one time in twenty instead of in forty.
    tolerance
        The largest |slope| that counts as flat.
    name
        Name of the model in the table.

    Returns
    -------
    Audited
        A row of a table.

    Raises
    ------
    InvalidInput
        If an argument is out of range. Failures of the model itself are recorded in the row.

    Examples
    --------
    >>> def mlp(width):
    ...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))
    >>> audit(mlp, {"width": 64}, seeds=8, scheme="mup").verdict
    'flat'
    """
    instance_of("name", name, str, "a text")
    instance_of("base", base, Mapping, "a dict such as dict(width=64, depth=2)")
    multiples = [integer("growth", g, at_least=1) for g in sequence("growth", growth, "numbers")]
    if len(set(multiples)) < 2:
        raise InvalidInput(f"growth: wanted at least two numbers, got {shown(growth)}.")
    if not callable(make_model):
        raise InvalidInput(f"make_model: wanted a function, got {shown(make_model)}.")
    shapes(base, base, depth, experts=experts)
    scheme_of(scheme)
    update(optimizer)
    integer("steps", steps, at_least=1)
    integer("seeds", seeds, at_least=2)
    most = 2 * seeds if most_seeds is None else integer("most_seeds", most_seeds, at_least=seeds)
    real("lr", lr, above=0)
    allowed = real("tolerance", tolerance, above=0)
    quiet = Quiet(make_model, example)
    row = {"model": name, "tolerance": allowed}
    widths = [key for key in base if key not in (depth, experts)]
    ways = {
        "width": widths,
        "depth": [depth] if depth in base else [],
        "experts": [experts] if experts in base else [],
    }
    largest = max(multiples)
    target = {key: largest * size for key, size in base.items()}
    common = {"scheme": scheme, "optimizer": optimizer, "example": example}
    common |= {"hints": Hints(depth=depth, experts=experts)}
    try:
        on_meta(make_model, base)
    except Exception as error:
        return Audited(**row, failure=f"{type(error).__name__}: {_first_line(error)}")
    try:
        plan = scale(make_model, base, target, **common, **options)
        row["notes"] = plan.notes
        for along, keys in ways.items():
            if not keys:
                continue
            targets = [{**base, **{k: g * base[k] for k in keys}} for g in multiples]
            for networks in dict.fromkeys((seeds, most)):
                check = coordinate_check(
                    quiet, base, targets, [0], quiet.loss, lr=lr, steps=steps, seeds=networks,
                    tolerance=allowed, **common, **options,
                )  # fmt: skip
                row[along] = _slope(check)
                if row[along].verdict(allowed) != "undecided":
                    break
    except LargenError as error:
        return Audited(**row, refusal=_first_line(error))
    except Exception as error:  # whatever a library's code raises at some size
        return Audited(**row, refusal=f"{type(error).__name__}: {_first_line(error)}")
    return Audited(**row)


def audit_stock(
    models: Iterable[str] | None = None,
    *,
    every: bool = False,
    save: str | Path | None = None,
    limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Audit:
    """Audit stock models of the installed libraries by :func:`audit`.

    Configurations are shrunk to width 64 and depth 2. Heads have dimension 16 and grow in number;
    the sizes of vocabularies and images, and the number of experts, are fixed.

    Parameters
    ----------
    models
        Names of models, or prefixes of names; all by default.
    every
        Whether to audit every architecture for text, vision or speech in ``transformers``, not
        only the best known.
    save
        A file, .md or .csv, to which the rows so far are written after each model.
    limit
        The number of seconds that a model may take; by default as long as it takes. Without effect
        in other threads than the main one, and on systems without timers.
    progress
        Function called with each row once it is computed.
    **options
        Passed on to :func:`audit`.

    Returns
    -------
    Audit
        A table; ``Audit.save("audit.md")`` writes it to a file.

    Raises
    ------
    InvalidInput
        If no library of stock models is installed, or no model has the given name; if the file is
        of another kind.
    """
    flag("every", every)
    if limit is not None:
        real("limit", limit, above=0)
    if save is not None:
        format_of(save)
    if progress is not None:
        takes("progress", progress, ("row",))
    known = stock_models("all" if every else "named")
    wanted = known
    if models is not None:
        given = sequence("models", models, "a list of names")
        names = [instance_of("models", m, str, "a list of names") for m in given]
        wanted = [m for m in known if any(m.name.startswith(name) for name in names)]
        if not wanted:
            raise InvalidInput(f"models: wanted some of {[m.name for m in known]}, got {names}.")
    scheme, optimizer = options.get("scheme", "complete_p"), options.get("optimizer", "adam")
    found = Audit((), f"{scheme}, {optimizer}")
    for model in wanted:
        begin = time.perf_counter()
        try:
            with _at_most(limit):
                row = _one(model, options)
        except _TooLong:
            row = Audited(model.name, model.library, refusal=f"it takes longer than {limit:g} s")
        found = replace(found, rows=(*found.rows, row))
        if save is not None:
            found.save(save)
        if progress is not None:
            progress(f"{row.model}: {row.verdict} ({time.perf_counter() - begin:.0f} s)")
    return found


class _TooLong(BaseException):
    """Raised by a timer; no Exception, which audits of a model take for a failure of its own."""


@contextmanager
def _at_most(seconds: float | None) -> Iterator[None]:
    """Raise an error in the main thread after some time."""
    if seconds is None or not hasattr(signal, "setitimer") or not in_main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    # Again and again, since what is raised within a callback of the garbage collection is ignored.
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _one(model: StockModel, options: Mapping[str, Any]) -> Audited:
    try:
        at, base = _base(model)
    except Exception as error:
        why = f"{type(error).__name__}: {_first_line(error)}"
        return Audited(model.name, model.library, failure=why)
    entries = sum(p.numel() for p in base.parameters())
    if entries > LARGEST:
        why = f"its configuration was not shrunk: {entries} weights"
        return Audited(model.name, model.library, failure=why)
    make, notes = model.make, ()
    try:
        fixed = [key for key in BASE if not _grows(model.make, base, at, key)]
    except Exception as error:
        why = f"{type(error).__name__}: {_first_line(error)}"
        return Audited(model.name, model.library, failure=f"not at another size: {why}")
    if "width" in fixed:
        why = "no field of its configuration was recognised as a width"
        return Audited(model.name, model.library, failure=why)
    if "depth" in fixed:
        make = partial(model.make, depth=at.pop("depth"))
        notes = ("no field of its configuration was recognised as a depth",)
    row = audit(make, at, name=model.name, **options)
    return replace(row, library=model.library, notes=(*notes, *row.notes))


def _base(model: StockModel) -> tuple[dict[str, int], nn.Module]:
    """Return the sizes of a base, and the base.

    Some models need a block of each kind, or of each stage, twice; in others, the first and the
    last block are unlike those between them, of which the base needs some.
    """
    at, twice = dict(BASE), BASE | {"depth": 2 * BASE["depth"]}
    try:
        base = on_meta(model.make, at)
    except Exception:
        return twice, on_meta(model.make, twice)
    if not _repeats(model.make, at) and _repeats(model.make, twice):
        return twice, on_meta(model.make, twice)
    return at, base


def _repeats(make_model: Callable[..., nn.Module], at: Mapping[str, int]) -> bool:
    """Whether a model of twice the depth repeats blocks."""
    try:
        both = [on_meta(make_model, {**at, "depth": k * at["depth"]}) for k in (1, 2)]
        correspondence(*map(part_of, both))
    except Exception:  # which the audit reports
        return False
    return True


def _grows(
    make_model: Callable[..., nn.Module], base: nn.Module, at: Mapping[str, int], key: str
) -> bool:
    """Whether a model with one size doubled has other weights."""
    larger = on_meta(make_model, {**at, key: 2 * at[key]})
    shapes_of = [{n: p.shape for n, p in m.named_parameters()} for m in (base, larger)]
    return shapes_of[0] != shapes_of[1]


def _slope(check: CoordinateCheck) -> Slope:
    """Return the slope of the outputs' change, and the worst inner layer."""
    if "" not in check.layers:
        raise InvalidInput("make_model: the model's outputs have other shapes after training.")
    values = check.change[..., check.layers.index("")]
    value, margin = slope_with_margin(check.ratios, values, 0.975)
    inside = [row for row in check.slopes if row.layer and not row.passed]
    worst = max(inside, key=lambda row: max(abs(row.change), row.size), default=None)
    words = ""
    if worst is not None:
        words = f"{worst.layer} changes {worst.change:+.2f}, is {worst.size:+.2f}"
    return Slope(value, margin, words)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:400]
