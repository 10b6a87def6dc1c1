"""How the updates of optimizers scale with the gradient, on which the transfer rules depend.

========================  ==============================  =====================================
kind                      update                          θ' = mθ moves alike at the rate
========================  ==============================  =====================================
``"proportional"``        linear in the gradient          m²η (its gradient is 1/m of θ's)
``"normalised"``          of the size of the rate         mη, with ε/m
``"orthogonal"``          a matrix whose singular         mη
                          values are equal to the rate
========================  ==============================  =====================================

Momentum is a linear filter of past gradients, the same for every weight, so that heavy-ball and
Nesterov momentum have the rules of plain gradient descent. RMSProp, Adam and its kin, AdaGrad, Lion
and the sign of the gradient are all normalised: their denominator is a mean, a sum or a maximum
of gradients, of the gradient's own size. Muon orthogonalises the update of hidden matrices;
AdamW updates every other weight.

Shampoo (Gupta, Koren and Singer 2018) orthogonalises the gradients of all matrices:
L^(−¼) G R^(−¼), with L = GGᵀ and R = GᵀG of the first step, is UVᵀ of G = UΣVᵀ, and later L and R
are sums over a number of gradients that does not grow with the width. Vectors move by L^(−½) g,
which is g/|g| in the first step. If its update is given the norm of Adam's (grafting), it is
normalised: plan for AdamW. Its ε goes by several names and units, and is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from largen.errors import InvalidInput, one_of
from largen.parameterizations import Optimizer
from largen.parameterizations.updates import Kind

DECAYS = ("coupled", "decoupled", "independent")
MUONS = ("hidden", "shared")  # families of weights that Muon updates


@dataclass(frozen=True)
class Update:
    """The properties of one optimizer that the rules use."""

    name: str
    kind: Kind  # how its step scales with the gradient
    # Where weight decay enters: "coupled" is added to the gradient, "decoupled" shrinks the weight
    # by ηλ of itself, "independent" shrinks it by λ of itself.
    decay: str
    eps: float | None = None  # its default ε, or None if it has none
    weight_decay: float = 0.0  # its default λ, as PyTorch has it
    record: Optimizer | None = field(default=None, repr=False)  # one of the user's own


UPDATES = {
    update.name: update
    for update in (
        Update("sgd", "proportional", "coupled"),
        Update("momentum", "proportional", "coupled"),
        Update("adam", "normalised", "coupled", 1e-8),
        Update("adamw", "normalised", "decoupled", 1e-8, 1e-2),
        Update("adamax", "normalised", "coupled", 1e-8),
        Update("nadam", "normalised", "coupled", 1e-8),
        Update("adagrad", "normalised", "coupled", 1e-10),
        Update("rmsprop", "normalised", "coupled", 1e-8),
        Update("signsgd", "normalised", "decoupled"),
        Update("lion", "normalised", "decoupled"),
        Update("muon", "orthogonal", "decoupled", 1e-8, 0.1),
        Update("shampoo", "orthogonal", "decoupled"),
    )
}

# Optimizers without a rule, and the reason.
REFUSED = {
    "adafactor": "its step is the weight's size times a rate that is cut off at 1/√t, whatever the "
    "group's own; take 'adamw'",
    "adadelta": "its one ε is added to squares of gradients and of steps alike, which ask for "
    "different ε; take 'rmsprop'",
    "radam": "its first steps are those of momentum, which ask for other rates than the rest; take "
    "'adamw' with a warm-up",
    "rprop": "its steps end between absolute sizes, the same for all weights; take 'signsgd'",
    "asgd": "its rate falls the faster the larger it is, so that rates do not keep their ratios; "
    "take 'sgd'",
    "lbfgs": "it has one rate for all weights; take 'adamw'",
    "soap": "its basis lags behind the gradient, so that its steps are between Adam's and "
    "Shampoo's, which ask for rates that differ by a power of the width; take one of these",
    "sparseadam": "plan for 'adam', and give it that plan's groups, which is the same but for "
    "weight decay",
}


def update(name: object, decay: object = None) -> Update:
    """Return an optimizer's properties by its name, class or function, and its kind of decay.

    Records of the user's own say them, as in `lg.Run`; see :func:`_own`.
    """
    if isinstance(name, Optimizer) or (isinstance(name, type) and issubclass(name, Optimizer)):
        name = _own(name)
    own = getattr(name, "__name__", name) if callable(name) else name
    if isinstance(own, str) and own not in UPDATES:
        own = own.lower()
    if isinstance(own, str) and own in REFUSED:
        raise InvalidInput(f"optimizer: there is no rule for {own}: {REFUSED[own]}.")
    found = UPDATES[one_of("optimizer", own, UPDATES)]
    if decay is None:
        return found
    one_of("decay", decay, DECAYS)
    if decay == "coupled" and found.decay == "decoupled":
        raise InvalidInput(
            f"decay: {found.name} has no coupled weight decay; wanted 'decoupled' or 'independent'."
        )
    return replace(found, decay=str(decay))


def _own(given: Optimizer | type[Optimizer]) -> str:
    """Return the name of an optimizer of the user's own, known to plans from now on.

    Its name in plans is that of its class with its module. A proportional update has coupled weight
    decay, others decoupled one.

    Raises
    ------
    InvalidInput
        If it has other options than its class's defaults, which plans do not hold; if it is a flow,
        has noise, or does not follow gradients.
    NoRule
        If it does not say its kind.
    """
    kind_of_optimizer = given if isinstance(given, type) else type(given)
    record = kind_of_optimizer(lr=1.0)
    if isinstance(given, Optimizer) and replace(given, lr=1.0) != record:
        raise InvalidInput(
            f"optimizer: plans hold no options of {given}; pass the class, and options to the "
            "plan's optax(…)."
        )
    scales: Kind = record.says("kind")
    if record.continuous or record.temperature or record.backward != "gradients":
        raise InvalidInput(
            f"optimizer: there is no plan for {kind_of_optimizer.__name__}, whose steps do not "
            "follow the gradient alone."
        )
    name = f"{kind_of_optimizer.__module__}.{kind_of_optimizer.__qualname__}"
    eps = getattr(record, "eps", None) if scales == "normalised" else None
    decay = "coupled" if scales == "proportional" else "decoupled"
    UPDATES[name] = Update(name, scales, decay, eps, record.weight_decay, record)
    return name


def update_of(optimizer: Update, family: str) -> Update:
    """Return the update of one family of weights: Muon leaves all but matrices to AdamW."""
    if optimizer.name == "muon" and family not in MUONS:
        adamw = UPDATES["adamw"]
        return replace(adamw, decay=optimizer.decay, weight_decay=optimizer.weight_decay)
    return optimizer
