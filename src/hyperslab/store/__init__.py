"""Object stores: their names and errors translated, nothing else. One call is one request."""

from typing import Any

from hyperslab.store.base import Heard, Listed, Reply, Span, Store
from hyperslab.store.local import LocalStore, Mapped, OpenFiles
from hyperslab.store.url import locate

__all__ = ["Heard", "Listed", "LocalStore", "Mapped", "OpenFiles", "Reply", "Span", "Store", "locate", "memory"]


def memory(name: str) -> Any:
    """Return the obstore MemoryStore behind `memory://name`, to put objects there."""
    from hyperslab.store.remote import memory as behind

    return behind(name)
