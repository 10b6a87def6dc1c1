"""Sweeps over rates, widths, depths, seeds and schemes; forecasts; the search for constants."""

from largen.sweeps.bases import BaseTraining
from largen.sweeps.forecasting import Pilots, forecast
from largen.sweeps.forecasts import Forecast
from largen.sweeps.grid import Grid
from largen.sweeps.ranges import Ranges
from largen.sweeps.running import sweep
from largen.sweeps.surface import Sweep
from largen.sweeps.task import Task
from largen.sweeps.tuned import Tuned
from largen.sweeps.tuning import tune
from largen.sweeps.watching import Monitored, Watch

__all__ = [
    "BaseTraining",
    "Forecast",
    "Grid",
    "Monitored",
    "Pilots",
    "Ranges",
    "Sweep",
    "Task",
    "Tuned",
    "Watch",
    "forecast",
    "sweep",
    "tune",
]
