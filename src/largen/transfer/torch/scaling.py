"""A plan from a model's builder and two shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn
from warnings import warn

from torch import nn

from largen.errors import InvalidInput, WrongPlan, one_of
from largen.scalars import flag
from largen.text import shown
from largen.transfer.constants import Constants, constants_of
from largen.transfer.hints import Hints, hints_of
from largen.transfer.horizon import Budget, horizon_of
from largen.transfer.schemes import scheme_of
from largen.transfer.shapes import shapes
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.planning import Request
from largen.transfer.torch.verification import verified
from largen.transfer.updates import update
from largen.transfer.verifying import width_ratio


def scale(
    make_model: Callable[..., nn.Module],
    base: Mapping[str, Any],
    target: Mapping[str, Any],
    *,
    scheme: Any = "depth_mup",
    optimizer: Any = "adamw",
    decay: str | None = None,
    hints: Hints | None = None,
    multipliers: str = "weights",
    example: Any = None,
    budget: Budget | None = None,
    constants: Constants | None = None,
    verify: bool = True,
) -> TorchPlan:
    """Plan how a model of one shape takes over the hyperparameters of a smaller one.

    Models of both shapes and of a larger width and depth than the base are built without memory.
    The axes that grow between them determine the role of every weight, and the role determines its
    settings by the scheme's rules relative to the base (:mod:`largen.transfer.rules`). At the base
    shape nothing changes but by ``constants``.

    The base, and models of twice its width and depth, are also built in memory and called once. The
    recorded forward passes determine where residual branches end, which weights multiply attention
    logits, where the read-out is, and which powers of the width the user's forward pass has
    (:mod:`largen.transfer.torch.reading`). Branches and logits are verified by forward passes in
    which the weights found are multiplied. No memory is allocated for the target, unless its
    builder fails on the meta device, which a note then says.

    Parameters
    ----------
    make_model
        Builds the model: ``make_model(**base)``.
    base, target
        The shape that was tuned and the one to be trained, with the same keys.
    scheme
        ``"standard"``, ``"ntk"``, ``"mean_field"``, ``"mup"``, ``"depth_mup"`` (branches l^(−½)),
        ``"complete_p"`` (branches 1/l), or a :class:`largen.scaling.Parameterization`; or a pair
        such as ``("mup", "1/2")``, whose second entry is the exponent α of branches l^(−α).
    optimizer
        ``"sgd"``, ``"momentum"``, ``"adam"``, ``"adamw"``, ``"adamax"``, ``"nadam"``,
        ``"adagrad"``, ``"rmsprop"``, ``"signsgd"``, ``"lion"``, ``"muon"`` or ``"shampoo"``;
        others are refused with the reason. Or a class of the user's own, derived from
        ``largen.parameterizations.Stepped``, which says the kind of its update.
    decay
        ``"coupled"``, ``"decoupled"`` or ``"independent"`` weight decay; by default that of
        PyTorch's optimizer of the given name.
    hints
        What the model does not tell, a :class:`largen.transfer.Hints`: which keys of the shapes are
        the depth and the number of experts, roles of weights, where branches end, what makes the
        queries of attention.
    multipliers
        ``"weights"``: the factors of read-outs, attention logits and branches are folded into
        weights and rates wherever that is exact, so that a checkpoint is complete by itself.
        ``"forward"``: they stay in the forward pass. Training is the same, but norms of gradients
        differ, so that with ``"weights"`` gradients have to be clipped by
        :meth:`TorchPlan.clip_grad_norm_`.
    example
        Inputs of the model: a tensor, a tuple of arguments, a dict of keyword arguments, or a
        function of the builder's arguments that returns one of these. By default token ids,
        images or rows of features are generated.
    budget
        The target's batch size and number of training samples relative to the base's, a
        :class:`largen.transfer.Budget`: rates, weight decay and ε are adjusted by
        :mod:`largen.transfer.horizon`, and :meth:`TorchPlan.param_groups` adjusts β.
    constants
        Factors of the output, of initial values and of rates that a search at the base chose, a
        :class:`largen.transfer.Constants`; the same at the base and at the target.
    verify
        Whether to measure, on networks of up to four times the base's width (and depth), how the
        effect of one update grows with the size (:mod:`largen.transfer.verdicts`). The result is
        :attr:`TorchPlan.verified`; wrong slopes are a warning with the weight's name, and
        :meth:`TorchPlan.repaired` corrects them. Where it is not possible, the record says why.

    Raises
    ------
    InvalidInput
        If the models cannot be compared or called, a role, a branch or a head's dimension cannot
        be found, or an argument is not known. The message says what to pass.

    Warns
    -----
    WrongPlan
        If a slope is wrong: the plan does not keep updates of order one. Also if no weight grows
        with the width.

    Examples
    --------
    >>> from torch import nn
    >>> def mlp(width):
    ...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width),
    ...                          nn.ReLU(), nn.Linear(width, 2))
    >>> plan = scale(mlp, base={"width": 16}, target={"width": 64}, scheme="mup")
    >>> [plan[f"{i}.weight"].lr for i in (0, 2, 4)]
    [1.0, 0.25, 0.25]
    >>> model = plan.build(seed=0)
    >>> groups = plan.param_groups(model, lr=1e-3, weight_decay=0.1)
    """
    if isinstance(make_model, nn.Module) or not callable(make_model):
        _refuse_model(make_model, base)
    param, moved, told = scheme_of(scheme), update(optimizer, decay), hints_of(hints)
    length = horizon_of(budget, moved)
    one_of("multipliers", multipliers, ("weights", "forward"))
    flag("verify", verify)
    sizes = shapes(base, target, told.depth, told.delta, told.experts)
    request = Request(
        make_model, sizes, param, moved, length, told, constants_of(constants),
        fold=multipliers == "weights", example=example,
    )  # fmt: skip
    facts = Facts(make_model, sizes)
    plan = replace(request.plan(facts), request=request)
    ratio = width_ratio(told, sizes.base, sizes.target)
    if ratio != 1.0 and not any(facts.growing(name) for name in facts.uses):
        warn(
            f"make_model: no weight is larger at {sizes.wide} than at {sizes.base}, so that the "
            "plan changes nothing in width: does make_model use its arguments?",
            WrongPlan,
            stacklevel=2,
        )
    return verified(plan, facts, request) if verify else plan


def _refuse_model(model: Any, base: Any) -> NoReturn:
    """Refuse a model, or something else, in place of its builder."""
    keys = ", ".join(base) if isinstance(base, Mapping) else "width"
    own = isinstance(model, nn.Module) and not type(model).__module__.startswith("torch.")
    kind = type(model).__name__ if own else "YourModel"
    got = f"a model ({type(model).__name__})" if isinstance(model, nn.Module) else shown(model)
    raise InvalidInput(
        f"make_model: wanted the function that builds the model from base's keys, such as the "
        f"class {kind} itself, or lambda {keys}: {kind}({keys}), got {got}; models of other sizes "
        "are built with it."
    )
