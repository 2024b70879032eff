"""CSC: the matrix of `csr`, held by columns."""

from hyperslab.tensors.layouts.csr import decode, prune
from hyperslab.tensors.layouts.csr import encode_columns as encode

__all__ = ["decode", "encode", "prune"]
