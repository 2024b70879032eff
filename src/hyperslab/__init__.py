"""Hyperslab: an array store that plans every read."""

from hyperslab import errors
from hyperslab.array import Array, Group, LazyArray, open, read_many
from hyperslab.execute import ReadRecord, Session
from hyperslab.measure import measure
from hyperslab.new import copy, create, create_group, save, seal
from hyperslab.plan import Budget, Prices, Profile
from hyperslab.plan.explain import Explanation
from hyperslab.store.callee import Function

__version__ = "0.1.0"

__all__ = [
    "Array",
    "Budget",
    "Explanation",
    "Function",
    "Group",
    "LazyArray",
    "Prices",
    "Profile",
    "ReadRecord",
    "Session",
    "copy",
    "create",
    "create_group",
    "errors",
    "measure",
    "open",
    "read_many",
    "save",
    "seal",
]
