"""Tensor tables: dense and sparse tensors as rows of a Delta table, sliced before they are decoded.

_delta_log/…            the log: every change is one commit, and decides what is visible
tensors/<random>…       Parquet files with a row for each tensor: what it is, and metadata as columns
data/<random>…          Parquet files with the tensors' rows, in the layout that each was given
"""

from hyperslab.tensors.opening import tensor_table
from hyperslab.tensors.values import Coo

__all__ = ["Coo", "tensor_table"]
