"""Trials: what is drawn by a number, and what came of it."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from tests.compiled import forget_programs
from tests.ordinary import (  # noqa: F401
    of_kernels,
    of_limits,
    of_networks,
    of_reading,
    of_regression,
)
from tests.ordinary.data import KINDS, TARGETS
from tests.ordinary.networks import NETWORKS
from tests.ordinary.registry import CALLS, Call
from tests.ordinary.settings import Setting, refusal
from tests.wrong_arguments.outcomes import not_finite, raw

from largen.errors import LargenError, LostDigits

# Whose integrals take a minute with functions that have no closed form.
KINDS_OF_LARGE_NUMBERS = ("an outlier", "mean 100", "scale 1e3", "scale 1e6")
QUICK = ("kernels", "outputs", "empirical_ntk")  # with networks whose kernels take long to compile


@dataclass(frozen=True)
class Draw:
    """A call, a network, a kind of data and a kind of targets; the seed is that of the numbers."""

    call: str
    network: str
    kind: str
    target: str = "gaussian"
    seed: int = 0

    def __str__(self) -> str:
        return f"Draw({self.call!r}, {self.network!r}, {self.kind!r}, {self.target!r}, {self.seed})"


@cache
def networks_of(name: str) -> tuple[str, ...]:
    """Names of the networks that a call is made with."""
    takes = CALLS[name].takes
    return tuple(n.name for n in NETWORKS.values() if takes(n) and (n.rows or not CALLS[name].rows))


def draw(seed: int, among: tuple[str, ...] | None = None) -> Draw:
    """Draw a trial; the same seed draws the same one. ``among`` are the networks to choose from."""
    rng = np.random.default_rng([seed, 40])
    weights = {
        name: call.weight
        for name, call in CALLS.items()
        if among is None or set(networks_of(name)) & set(among)
    }
    total = sum(weights.values())
    call = str(rng.choice([*weights], p=[w / total for w in weights.values()]))
    allowed = [n for n in networks_of(call) if among is None or n in among]
    network = str(rng.choice(allowed))
    kinds = [k.name for k in KINDS.values() if CALLS[call].fits(NETWORKS[network], k)]
    return Draw(call, network, str(rng.choice(kinds)), str(rng.choice([*TARGETS])), seed)


@cache
def covering() -> tuple[Draw, ...]:
    """Return few trials that have each call, network, kind of data and kind of targets."""
    kinds, targets, calls = deque(KINDS), deque(TARGETS), deque(CALLS)
    found: list[Draw] = []

    def put(call: str, network: str) -> None:
        """Add a trial of the kind that has waited longest among those that fit."""
        large = KINDS_OF_LARGE_NUMBERS if NETWORKS[network].curved else ()
        kind = next(
            k for k in kinds if CALLS[call].fits(NETWORKS[network], KINDS[k]) and k not in large
        )
        kinds.remove(kind)
        kinds.append(kind)
        targets.rotate(-1)
        found.append(Draw(call, network, kind, targets[0]))

    for network in NETWORKS:  # with the calls that fit it, in turn
        quick = QUICK if NETWORKS[network].curved else CALLS
        call = next(c for c in calls if network in networks_of(c) and c in quick)
        calls.remove(call)
        calls.append(call)
        put(call, network)
    for call in CALLS:
        if call not in {trial.call for trial in found}:
            put(call, networks_of(call)[0])
    return tuple(found)


def outcome(trial: Draw) -> str:
    """Return "right", "refused: " and why that is right, or "FAULT: " and what is wrong."""
    rng = np.random.default_rng([trial.seed, 41])
    setting = Setting(NETWORKS[trial.network], KINDS[trial.kind], trial.target, rng)
    call: Call = CALLS[trial.call]
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = call.check(setting)
    except LargenError as error:
        why = refusal(setting, call.needs, error, call.check)
        return f"refused: {why}" if why else f"FAULT: {type(error).__name__}: {error}"
    except AssertionError as error:
        return f"FAULT: {error}"
    except Exception as error:
        return raw(error)
    for warning in warned:
        if issubclass(warning.category, RuntimeWarning) and "/largen/" in warning.filename:
            place = f"{warning.filename.rsplit('/src/')[-1]}:{warning.lineno}"
            return f"FAULT: warns {str(warning.message)!r} at {place}"
    if any(issubclass(w.category, LostDigits) for w in warned):
        return "right"
    problem = not_finite(result)
    return f"FAULT: {problem}" if problem else "right"


def outcomes(trials: Iterator[Draw] | list[Draw]) -> Iterator[tuple[Draw, str]]:
    """Make trials, and let go of compiled programs before a process has too many of them."""
    for trial in trials:
        yield trial, outcome(trial)
        forget_programs()
