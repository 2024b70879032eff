"""The systems, one module each with a class `System`. A module is imported in the process that runs it, no earlier."""

from importlib import import_module
from typing import Any, ClassVar, Protocol

import numpy as np

from bench.lab import Lab
from bench.peers.datasets import Dataset
from bench.peers.workloads import Query

__all__ = ["PEERS", "SYSTEMS", "System", "load"]


class System(Protocol):
    """How one system stores and reads.

    `title` is its name for people, `packages` are those whose versions matter. `layouts` says for "same" and "best"
    what they are, and for "best" where the system's own documentation recommends it. One with a cache that cannot be
    switched off has a method `rest`, which returns when that has forgotten the last read.
    """

    title: str
    packages: tuple[str, ...]
    layouts: ClassVar[dict[str, str]]

    def stored(self, data: Dataset, layout: str) -> str:
        """Return the name of the copy that a layout reads; systems that share a copy name it alike."""

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        """Store that copy under `data.prefix(self.stored(data, layout))`. Runs beside the store; called once."""

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        """Open all arrays. Runs as the client, on the far side of the line, as `read` does."""

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        """Return the cells of each part, as NumPy has them."""

    def told(self) -> dict[str, Any]:
        """Return what the system says about its last read; nothing, mostly."""

    def close(self) -> None:
        """End what `open` started."""


# In the order of tables and legends; the first is ours.
SYSTEMS = (
    "hyperslab", "zarr_python", "tensorstore", "zarrs", "icechunk", "tiledb", "h5py_s3", "hsds", "whole_call",
    "parquet",
)  # fmt: skip
PEERS = SYSTEMS[1:]


def load(name: str) -> System:
    """Return a system by the name of its module."""
    return import_module(f"bench.peers.systems.{name}").System()  # type: ignore[no-any-return]
