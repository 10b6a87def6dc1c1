"""Sweeps over rates, widths, depths, seeds and schemes; the search for a base's constants."""

from largen.sweeps.bases import BaseTraining
from largen.sweeps.grid import Grid
from largen.sweeps.ranges import Ranges
from largen.sweeps.running import sweep
from largen.sweeps.surface import Sweep
from largen.sweeps.task import Task
from largen.sweeps.tuned import Tuned
from largen.sweeps.tuning import tune

__all__ = ["BaseTraining", "Grid", "Ranges", "Sweep", "Task", "Tuned", "sweep", "tune"]
