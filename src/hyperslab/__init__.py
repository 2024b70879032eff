"""Hyperslab: an array store that plans every read."""

from hyperslab import errors
from hyperslab.array import Array, Group, LazyArray, open, read_many
from hyperslab.execute import Session
from hyperslab.plan import Budget, Prices, Profile

__version__ = "0.1.0"

__all__ = [
    "Array",
    "Budget",
    "Group",
    "LazyArray",
    "Prices",
    "Profile",
    "Session",
    "errors",
    "open",
    "read_many",
]
