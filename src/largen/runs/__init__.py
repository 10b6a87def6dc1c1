"""What is asked and what is answered: a run, its data and loss, and the trajectory of it."""

from largen.runs.dataset import Dataset
from largen.runs.estimates import KernelEstimate
from largen.runs.losses import Loss, loss
from largen.runs.run import Run
from largen.runs.theory import Theory
from largen.runs.trajectory import Trajectory

__all__ = ["Dataset", "KernelEstimate", "Loss", "Run", "Theory", "Trajectory", "loss"]
