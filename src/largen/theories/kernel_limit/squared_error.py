"""Mean and standard deviation over initialisations for the squared error, exact up to rounding.

Outputs are linear in the initial outputs. Their mean is therefore the trajectory that starts from
0, and their fluctuations are trajectories with targets 0 that start from the columns of a square
root of the NNGP kernel.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from largen.kernels import modes
from largen.theories.kernel_limit import observables
from largen.theories.kernel_limit.dynamics import Answer, KernelProblem, factors, follow
from largen.theories.kernel_limit.prior import Root, square_root


def solve_squared_error(problem: KernelProblem, std: bool, covariance: bool) -> Answer:
    """Return the mean, and standard deviations and covariances if they are requested."""
    solved = by_mode = largest = None
    if problem.closed_form:
        solved = modes.decompose(problem.ntk, problem.ntk_test)
        largest = float(np.asarray(solved.values)[-1])
        by_mode = factors(problem, solved.values)
        both = modes.outputs(solved, by_mode, problem.targets, *problem.zero_start)
        f_train, f_test = (np.asarray(f)[0] for f in both)  # slices of JAX are compiled
    else:
        seen, _ = follow(problem, *problem.zero_start)
        f_train, f_test = (np.asarray(f)[:, 0] for f in seen)
    extra: dict[str, Any] = {}
    if std or covariance:
        root = _root(problem)
        moments = _second_moments(problem, solved, by_mode, root, covariance)
        for name, moment in zip(("train", "test"), moments, strict=True):
            variance = moment
            if covariance:
                extra[f"f_{name}_covariance"] = moment
                variance = np.diagonal(moment, axis1=1, axis2=2)
            if std:
                spread = np.sqrt(variance)[..., None]
                shape = (*variance.shape, problem.channels)
                extra[f"f_{name}_std"] = np.broadcast_to(spread, shape)
    return Answer(f_train, f_test, extra, largest=largest)


def _root(problem: KernelProblem) -> Root:
    if problem.starts_at_zero:
        return square_root(jnp.asarray(np.zeros_like(problem.nngp)), len(problem.ntk))
    return square_root(problem.nngp, len(problem.ntk))


def _second_moments(problem, solved, by_mode, root: Root, covariance: bool) -> tuple[Any, Any]:
    """Return variances (step, sample) or covariances (step, sample, sample), train and test."""
    if solved is not None:
        roots = root.train, root.test
        train, test = modes.second_moments(solved, by_mode, *roots, covariance)
    else:
        observe = observables.covariances if covariance else observables.variances
        still = jnp.asarray(np.zeros_like(root.train))
        noise = root.train[None], root.test[None]
        (train, test), _ = follow(problem, *noise, observe, targets=still)
    own = np.asarray(root.own)
    unseen = own @ own.T if covariance else np.sum(own**2, axis=1)
    return np.asarray(train), np.asarray(test) + unseen
