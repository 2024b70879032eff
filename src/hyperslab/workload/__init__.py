"""Workloads: what was read of which arrays, recorded in files, merged, summed up."""

from hyperslab.execute import recording
from hyperslab.workload.recorder import Log, record
from hyperslab.workload.workload import Workload

__all__ = ["Workload", "record"]

recording.register(Log)
