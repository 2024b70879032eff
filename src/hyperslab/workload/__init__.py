"""Workloads: what was read of which arrays, recorded in files, merged, summed up."""

from hyperslab.execute import recording
from hyperslab.workload.recorder import Log, record
from hyperslab.workload.workload import ShapedArray, Workload

__all__ = ["ShapedArray", "Workload", "record"]

recording.register(Log)
