"""A plan from a function that returns parameters, and two shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from largen.callables import takes
from largen.errors import InvalidInput, one_of
from largen.parameterizations import Parameterization, Power
from largen.scalars import real
from largen.text import shown
from largen.transfer.constants import NO_LOGITS, Constants, constants_of, with_constants
from largen.transfer.experts import NOTE
from largen.transfer.hints import Hints, hints_of
from largen.transfer.horizon import Budget, horizon_of
from largen.transfer.initial import InitialDistribution
from largen.transfer.jax.layouts import LAYOUTS
from largen.transfer.jax.plan import JaxPlan
from largen.transfer.jax.survey import Survey
from largen.transfer.jax.verification import Request, verified
from largen.transfer.patterns import by_pattern, patterns
from largen.transfer.plan_entries import ForwardMultiplier, ScaledWeight
from largen.transfer.resolve import Folded, FoundWeight, resolve
from largen.transfer.roles import family
from largen.transfer.rules import (
    attention_multiplier,
    branch_multiplier,
    ratios,
    tied_multiplier,
    value,
)
from largen.transfer.schemes import as_built, scheme_of
from largen.transfer.shapes import shapes
from largen.transfer.updates import Update, update
from largen.transfer.verifying import hints_at


def scale(
    init: Callable[..., Any],
    base: Mapping[str, Any],
    target: Mapping[str, Any],
    *,
    scheme: Any = "depth_mup",
    optimizer: Any = "adamw",
    decay: str | None = None,
    hints: Hints | None = None,
    layout: str | None = None,
    tied: Collection[str] = (),
    budget: Budget | None = None,
    constants: Constants | None = None,
    verify: Any = None,
) -> JaxPlan:
    """Plan how a model of one shape takes over the hyperparameters of a smaller one.

    As :func:`largen.transfer.torch.scale`, for a function that returns a pytree of parameters:
    nested dicts and lists, an equinox module, or a state of flax nnx. Factors of read-outs,
    branches and attention logits are folded into weights and rates, so that the user's own forward
    pass stays as it is.

    Parameters
    ----------
    init
        ``init(key, **base)`` → the parameters, with the user's own initial values.
    base, target
        The shape that was tuned and the one to be trained, with the same keys.
    scheme, optimizer, decay
        As in :func:`largen.transfer.torch.scale`.
    hints
        What the parameters do not tell, a :class:`largen.transfer.Hints`. Experts of mixtures are
        in lists or dicts, or an axis of arrays that stack their weights, such as
        ``(experts, width, size)``, ``(depth, experts, width, size)`` and those of
        ``equinox.filter_vmap``.
    layout
        ``"in_out"`` if matrices are applied as ``x @ W``, as in flax and Haiku, where biases and
        names determine the sides of kernels with more axes; ``"out_in"`` if they are applied as
        ``W @ x``. Equinox's layers need no layout.
    tied
        Names of embeddings that the forward pass uses as a read-out, too; the forward pass has
        to multiply these logits by :meth:`JaxPlan.factor`. The one in ``verify`` is that of the
        base, without the factor: the verification multiplies by it.
    budget
        The target's batch size and number of training samples relative to the base's, a
        :class:`largen.transfer.Budget`: rates, weight decay and ε are adjusted by
        :mod:`largen.transfer.horizon`, and :meth:`JaxPlan.optax` adjusts the β that it is given.
    constants
        Factors of the output, of initial values and of rates that a search at the base chose, a
        :class:`largen.transfer.Constants`; the same at the base and at the target.
    verify
        ``(apply, inputs)``: ``apply(parameters, inputs)`` → the outputs, a function that JAX can
        differentiate, and its inputs, arrays or trees of them, or a function of the shapes' keys
        that returns them. With these it is measured, on networks of up to four times the base's
        width (and depth), how the effect of one update grows with the size
        (:mod:`largen.transfer.verdicts`): on the output, on attention logits, and on the tensor
        that each weight acts on first, also in a ``jax.lax.scan`` over up to 8 stacked blocks, but
        in no other loop. The result is :attr:`JaxPlan.verified`, which
        says so if nothing was measured; False leaves it out.

    Raises
    ------
    InvalidInput
        If the models cannot be compared, a role cannot be found, branches are missing, or an
        argument is not known. The message says what to pass.

    Warns
    -----
    WrongPlan
        If a slope is wrong: the plan does not keep updates of order one.

    Examples
    --------
    >>> import jax
    >>> def init(key, width):
    ...     sizes = [(8, width), (width, width), (width, 2)]
    ...     keys = jax.random.split(key, 3)
    ...     return [jax.random.normal(k, s) / s[0]**0.5 for k, s in zip(keys, sizes)]
    >>> plan = scale(init, {"width": 16}, {"width": 64}, scheme="mup", layout="in_out")
    >>> [weight.lr for weight in plan.weights]
    [1.0, 0.25, 0.25]
    >>> parameters = plan.init(key=0)
    >>> state = plan.optax(lr=1e-3).init(parameters)

    With the forward pass, the plan is verified:

    >>> def apply(p, x):
    ...     for w in p[:-1]:
    ...         x = jax.nn.relu(x @ w)
    ...     return x @ p[-1]
    >>> plan = scale(init, {"width": 16}, {"width": 64}, scheme="mup", layout="in_out",
    ...              verify=(apply, jax.random.normal(jax.random.key(1), (8, 8))))
    >>> plan.verified[0].passed
    True

    Four times as many experts, whose weights are stacked, under gradient descent:

    >>> def mixture(key, width, experts):
    ...     shapes = {"inp": (8, width), "router": (width, experts),
    ...               "up": (experts, width, width), "down": (experts, width, width),
    ...               "out": (width, 2)}
    ...     keys = jax.random.split(key, len(shapes))
    ...     return {name: jax.random.normal(k, shape) / shape[-2]**0.5
    ...             for k, (name, shape) in zip(keys, shapes.items())}
    >>> plan = scale(mixture, {"width": 16, "experts": 4}, {"width": 16, "experts": 16},
    ...              scheme="mup", layout="in_out", optimizer="sgd")
    >>> [plan[name].lr for name in ("inp", "router", "up", "down", "out")]
    [1.0, 4.0, 4.0, 4.0, 1.0]
    """
    param, moved, told = scheme_of(scheme), update(optimizer, decay), hints_of(hints)
    length, factors = horizon_of(budget, moved), constants_of(constants)
    if verify is not None and verify is not False:
        _check_forward(verify)
    if layout is not None:
        one_of("layout", layout, LAYOUTS)
    survey = Survey(init, shapes(base, target, told.depth, told.delta, told.experts), layout)
    found_roles = survey.roles(by_pattern("roles", told.roles))
    folds: dict[str, list[Folded]] = {name: [] for name in survey.weights}
    _put_on_branches(survey, param, told.branches, folds)
    notes = _put_on_queries(survey, param, told.attention, folds, factors.attention)
    more = survey.sizes.more(told.experts)
    if more != 1.0:
        notes.append(NOTE)
    distributions = {} if as_built(param) else survey.distributions()
    shared = survey.matching("tied", patterns("tied", tied))

    weights = tuple(
        _weight(survey, param, moved, name, role, distributions, shared, tuple(folds[name]), more)
        for name, role in found_roles.items()
    )
    if not any(family(w.role) == "output" for w in weights) and not shared:
        notes.append(
            "no read-out was found; name an embedding that is used as one in tied=…, or "
            "a vector that is summed over: hints=Hints(roles={name: 'output'})"
        )
    plan = JaxPlan(
        scheme=str(param),
        optimizer=moved.name,
        decay=moved.decay,
        base=survey.sizes.base,
        target=survey.sizes.target,
        width_ratio=max((w.n for w in weights), default=1.0),
        depth_ratio=survey.l,
        weights=weights,
        multipliers=tuple(_of_uses(survey, tied_multiplier(param, moved), shared)),
        notes=tuple(notes),
        batch_ratio=length.batch,
        horizon_ratio=length.samples,
        experts_ratio=more,
        make_parameters=init,
    )
    plan = with_constants(plan, factors, [(name, "use") for name in sorted(shared)])
    if verify is False:
        return plan

    def plan_at(at: Mapping[str, int]) -> JaxPlan:
        return scale(
            init, base, at, scheme=scheme, optimizer=optimizer, decay=decay,
            hints=hints_at(told, survey.sizes, at), layout=layout, tied=tied, budget=budget,
            constants=constants, verify=False,
        )  # fmt: skip

    return verified(plan, Request(survey, param, told, verify, plan_at))


def _check_forward(verify: Any) -> None:
    """Check that an argument is a pair of a forward pass and its inputs."""
    if not isinstance(verify, tuple) or len(verify) != 2:
        raise InvalidInput(
            "verify: wanted (apply, inputs), the forward pass apply(parameters, inputs) and its "
            f"inputs, or False, got {shown(verify)}."
        )
    takes("verify[0]", verify[0], ("parameters", "inputs"))


def _weight(
    survey: Survey,
    param: Parameterization,
    moved: Update,
    name: str,
    role: str,
    distributions: Mapping[str, InitialDistribution],
    shared: Collection[str],
    folds: tuple[Folded, ...],
    experts: float,  # the ratio of the number of experts to the base's
) -> ScaledWeight:
    source = survey.names[name]
    matrix = len(survey.shape("target", name)) == 2 and name not in survey.stacked
    fan_in = survey.fan_in(name) if matrix else None
    found = FoundWeight(
        name=name,
        role=role,
        in_branch=bool(param.branch) and survey.in_block(name),
        base_shape=survey.shape("base", source),
        shape=survey.shape("target", name),
        n=survey.ratio(name),
        built_n=survey.ratio(survey.builders_width(name)),
        distribution=distributions.get(source, InitialDistribution(0.0)),
        matrix=matrix,
        tied=("read-out",) if name in shared else (),
        fan_in=1 if fan_in is None else fan_in,
        factors=1 if as_built(param) else survey.factors_of_fan_in(name),
        experts=experts if name in survey.mixed and not as_built(param) else 1.0,
    )
    row = resolve(param, moved, found, survey.l, folds)
    if row.moved_by == "muon" and fan_in is None:
        raise InvalidInput(
            f"layout: Muon's step depends on which side of {name} is summed over. Pass "
            "layout='in_out' if matrices are applied as x @ W, 'out_in' if as W @ x."
        )
    return row


def _of_uses(survey: Survey, factor: Power, shared: Collection[str]) -> list[ForwardMultiplier]:
    """Return the factors of tied read-outs, which the forward pass is to multiply by."""
    names = [name for name in survey.weights if name in shared]
    numbers = {name: value(factor, survey.ratio(name), survey.l) for name in names}
    return [
        ForwardMultiplier(name, "output", "use", number, ratios(factor))
        for name, number in numbers.items()
        if number != 1.0
    ]


def _put_on_branches(
    survey: Survey,
    param: Parameterization,
    named: Collection[str] | None,
    folds: dict[str, list[Folded]],
) -> None:
    if not param.branch or not (survey.blocks or survey.stacked):
        return
    if named is None:
        if survey.l == 1.0:
            return
        raise InvalidInput(
            f"branches: {param} scales residual branches with the depth; name the weights they "
            "end in, such as hints=Hints(branches=['blocks.*.fc2']), or use a scheme such as 'mup'."
        )
    for name in dict.fromkeys(survey.matching("branches", patterns("branches", named))):
        folds[name].append(Folded("branch", branch_multiplier(param)))


def _put_on_queries(
    survey: Survey,
    param: Parameterization,
    named: Mapping[str, float] | None,
    folds: dict[str, list[Folded]],
    logits: float,  # the factor of all attention logits, the same at every size
) -> list[str]:
    """Put the attention logits' factor on queries; return notes of other likely queries."""
    power = attention_multiplier(param)
    found = survey.queries() if named is None else by_pattern("attention", named)
    for pattern, given in found.items():
        ratio = real(f"attention[{pattern!r}]", given, above=0)
        for name in survey.matching("attention", [pattern]):
            own = power
            if ratio != survey.ratio(name):  # not a power of this weight's own n
                own = Power(ratio ** float(power.width))
            folds[name].append(Folded("attention", own * Power(logits)))
    if logits != 1.0 and not found:
        raise InvalidInput(NO_LOGITS)
    if named is not None or power == Power():
        return []
    likely = (re.sub(r"(?<=\.)\d+(?=\.)", "*", n) for n in survey.likely_queries() if not folds[n])
    return [
        f"{pattern} may make the queries of attention, whose logits q·k/√d are to be multiplied by "
        f"h^({power.width}), where h is the ratio of the heads' dimensions: pass "
        f"hints=Hints(attention={{{pattern!r}: h}}), or attention={{}} if nothing is to be done"
        for pattern in dict.fromkeys(likely)
    ]
