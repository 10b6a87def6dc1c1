"""Tune small, train large, in PyTorch: on the user's own model, which stays as it is."""

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
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.residual import Residual
from largen.transfer.torch.scaling import scale
from largen.transfer.torch.schedules import check_rates, check_scheduler

__all__ = [
    "Residual",
    "TorchPlan",
    "check_rates",
    "check_scheduler",
    "constant",
    "coordinate_check",
    "scale",
    "warmup_cosine",
]
