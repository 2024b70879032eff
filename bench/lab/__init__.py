"""A cloud on one machine: an object store and functions behind a line with real delay, rate and a meter."""

from bench.lab.bill import Bill, bill
from bench.lab.function import Billed
from bench.lab.lab import Lab, within
from bench.lab.meter import Counts, Reading
from bench.lab.presets import PRESETS, Line, Preset, Provider

__all__ = ["PRESETS", "Bill", "Billed", "Counts", "Lab", "Line", "Preset", "Provider", "Reading", "bill", "within"]
