"""Names of the kernels to record during training, common to networks and limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from largen.errors import InvalidInput, one_of
from largen.parameterizations import Optimizer
from largen.scalars import integers, sequence
from largen.text import shown

OF_NETWORKS = ("feature_kernel", "gradient_kernel", "ntk")
OF_FEEDBACK = ("pseudo_gradient_kernel", "effective_ntk", "alignment")
RECORDS = OF_NETWORKS + OF_FEEDBACK
# Records that not all have, and why.
OTHERS = {
    "singular_values": "are those of hidden weights: lg.theories.DeepMeanField, in which they "
    "move, and lg.train record them.",
    "sharpness": "is recorded by lg.train, and in the mean field of one hidden layer. Of deeper "
    "networks of infinite width no closed equation of the whole Hessian is known, and early in "
    "training its largest eigenvalue may grow with the width. The part that has a limit is that of "
    "the tangent kernel: record 'ntk' and see Trajectory.sharpness.",
    "output_hessian": "is recorded by lg.train; at infinite width it is 0 in the kernel limit, and "
    "no equation of it is implemented for others.",
    "input_jacobian": "is recorded by lg.train. A limit's is the slope of its outputs on test "
    "samples: pass pairs of close inputs as x_test, and divide the differences of f_test.",
}


def record_names(record: Any, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the kernels to record, given one name or a list.

    They are those of :func:`largen.train`; ``more``: names of further records that there are.
    """
    if isinstance(record, (set, frozenset)):
        record = list(record)
    known = RECORDS + more
    wanted = f"names out of {', '.join(known)}"
    given = [record] if isinstance(record, str) else sequence("record", record, wanted)
    for name in given:
        if isinstance(name, str) and name in OTHERS and name not in known:
            raise InvalidInput(f"record: {name!r} {OTHERS[name]}")
    names = {one_of("record", name, known) for name in given}
    return tuple(name for name in known if name in names)


def check_rule(optimizer: Optimizer, names: Iterable[str]) -> None:
    """Check that kernels of pseudo-gradients are recorded under rules that have them only."""
    of_feedback = [name for name in names if name in OF_FEEDBACK]
    if of_feedback and optimizer.backward == "gradients":
        raise InvalidInput(
            f"record: {of_feedback[0]!r} is a kernel of lg.optimizers.feedback_alignment and "
            f"lg.optimizers.hebbian, and the run has {optimizer}."
        )


def check_descent(name: str, optimizer: Optimizer) -> None:
    """Check that the optimizer is gradient descent, of which the sharpness is."""
    if not optimizer.descends:
        raise InvalidInput(
            f"{name}: sharpness is in units of the rate of gradient descent, and the run has "
            f"{optimizer}."
        )


def pairs_of(name: str, wanted: Any) -> tuple[tuple[int, ...], ...] | Literal["all"]:
    """Return pairs of time indices in the given order, without repetition, or "all" as it is."""
    words = "a list of pairs of time indices, such as [(0, 10)], or 'all'"
    if isinstance(wanted, str):
        return one_of(name, wanted, ("all",))
    pairs = [sequence(name, pair, words) for pair in sequence(name, wanted, words)]
    if any(len(pair) != 2 for pair in pairs):
        raise InvalidInput(f"{name}: wanted {words}, got {shown(wanted)}.")
    return tuple(dict.fromkeys(tuple(integers(name, pair, at_least=0)) for pair in pairs))
