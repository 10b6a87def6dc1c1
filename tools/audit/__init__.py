"""The audit of models: whether a plan can be made from a builder alone, and whether it is right.

::

    python -m tools.audit package.module:make_model --base width=128 --base depth=2
    python -m tools.audit -o table.csv           # models of installed libraries, a row for each
    python -m tools.audit --every -o table.csv   # all that transformers has, with guessed sizes
"""

from tools.audit.auditing import audit, audit_stock
from tools.audit.table import Audit, Audited

__all__ = ["Audit", "Audited", "audit", "audit_stock"]
