"""Sweeps over rates, widths, depths, seeds and schemes, and what is read off their losses."""

from largen.experiments.sweeps.running import sweep
from largen.experiments.sweeps.surface import Sweep
from largen.experiments.sweeps.task import Task

__all__ = ["Sweep", "Task", "sweep"]
