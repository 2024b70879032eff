"""Hyperslab: an array store that plans every read."""

from hyperslab import errors
from hyperslab.advising import Advice, advise
from hyperslab.applying import StencilPlan, apply
from hyperslab.array import Array, Group, LazyArray, read_many
from hyperslab.collections import Collection, collection
from hyperslab.copies import Copies
from hyperslab.dask import from_dask
from hyperslab.execute import ReadRecord, Session
from hyperslab.measure import measure
from hyperslab.new import copy, create, create_group, rechunk, save, seal, sweep
from hyperslab.opening import open
from hyperslab.plan import Budget, Prices, Profile
from hyperslab.plan.explain import Explanation
from hyperslab.store.callee import Function
from hyperslab.tensors import tensor_table
from hyperslab.workload import Workload, record

__version__ = "0.1.0"

__all__ = [
    "Advice",
    "Array",
    "Budget",
    "Collection",
    "Copies",
    "Explanation",
    "Function",
    "Group",
    "LazyArray",
    "Prices",
    "Profile",
    "ReadRecord",
    "Session",
    "StencilPlan",
    "Workload",
    "advise",
    "apply",
    "collection",
    "copy",
    "create",
    "create_group",
    "errors",
    "from_dask",
    "measure",
    "open",
    "read_many",
    "rechunk",
    "record",
    "save",
    "seal",
    "sweep",
    "tensor_table",
]
