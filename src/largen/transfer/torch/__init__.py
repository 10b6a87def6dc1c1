"""Tune small, train large, in PyTorch: for the user's own model, whose code stays unchanged.

::

    plan = scale(make_model, base=dict(width=64, depth=4), target=dict(width=1024, depth=32),
                 scheme="depth_mup", optimizer="adamw")
    print(plan)                       # every weight's role, and what it gets
    model = plan.build(seed=0)        # the target, initialised
    groups = plan.param_groups(model, lr=3e-3, weight_decay=0.1)   # tuned at the base
    optimizer = check_optimizer(torch.optim.AdamW(groups))

The plan is plain data (``plan.to_json()``). Factors of the forward pass are folded into weights
wherever that is exact, so that a checkpoint can be used without the plan. The few that cannot be
folded (a tied read-out, fused attention) are hooks, which :meth:`TorchPlan.attach` puts on a model
that was made by other means. Norms of gradients depend on where the factors are: clip gradients
with :meth:`TorchPlan.clip_grad_norm_`.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:  # pragma: no cover - needs an environment without torch
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "largen.transfer.torch needs PyTorch, which is not installed: "
        "`pip install 'largen[torch]'`.",
        name="torch",
    ) from None

from largen.transfer.schedules import constant, warmup_cosine
from largen.transfer.torch.check import coordinate_check
from largen.transfer.torch.diagnosis import diagnose
from largen.transfer.torch.optimizers import check_optimizer
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.residual import Residual
from largen.transfer.torch.scaling import scale
from largen.transfer.torch.schedules import check_rates, check_scheduler
from largen.transfer.torch.tangents import ntk_of_module

__all__ = [
    "Residual",
    "TorchPlan",
    "check_optimizer",
    "check_rates",
    "check_scheduler",
    "constant",
    "coordinate_check",
    "diagnose",
    "ntk_of_module",
    "scale",
    "warmup_cosine",
]
