"""Sweeps over rates, widths, depths, seeds and schemes, and the analysis of their losses."""

from largen.sweeps.grid import Grid
from largen.sweeps.running import sweep
from largen.sweeps.surface import Sweep
from largen.sweeps.task import Task

__all__ = ["Grid", "Sweep", "Task", "sweep"]
