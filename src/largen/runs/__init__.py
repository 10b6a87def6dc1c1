"""Runs, their data and losses, and the trajectories that solve or train them."""

from largen.runs.dataset import Dataset
from largen.runs.estimates import KernelEstimate
from largen.runs.losses import Loss, as_loss
from largen.runs.run import Run
from largen.runs.saving import SavedResult, load, save
from largen.runs.status import Status
from largen.runs.theory import Posed, Theory
from largen.runs.trajectory import Trajectory

__all__ = [
    "Dataset",
    "KernelEstimate",
    "Loss",
    "Posed",
    "Run",
    "SavedResult",
    "Status",
    "Theory",
    "Trajectory",
    "as_loss",
    "load",
    "save",
]
