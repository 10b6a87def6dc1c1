"""Hyperparameter transfer: tune a small model, train a large one with the same numbers.

:mod:`largen.transfer.torch` and :mod:`largen.transfer.jax` do so for models of the user's own.
Both read one rule table (:mod:`largen.transfer.rules`): that of the
:class:`largen.Parameterization`, relative to a base shape. This package itself does not need
PyTorch.
"""

from largen._submodules import submodules
from largen.transfer.coordinates import CoordinateCheck, LayerSlopes
from largen.transfer.diagnoses import Change, Diagnosis
from largen.transfer.plan import Plan, plan_from_json
from largen.transfer.plan_entries import ForwardMultiplier, ScaledWeight
from largen.transfer.roles import ROLES
from largen.transfer.rules import rule_table
from largen.transfer.schedules import constant, warmup_cosine

__all__ = [
    "ROLES",
    "Change",
    "CoordinateCheck",
    "Diagnosis",
    "ForwardMultiplier",
    "LayerSlopes",
    "Plan",
    "ScaledWeight",
    "constant",
    "plan_from_json",
    "rule_table",
    "warmup_cosine",
]

__getattr__, _names = submodules(__name__, __path__)


def __dir__() -> list[str]:
    return sorted({*__all__, *_names})
