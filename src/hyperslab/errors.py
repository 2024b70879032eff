"""Every error that Hyperslab raises on purpose, grouped by what the caller does about it.

    HyperslabError
    ├── InvalidInputError (ValueError)      change the call
    │   └── SelectionError (IndexError)     change the key
    ├── NotFoundError (KeyError)            nothing is stored there
    │   └── StoreNotFoundError              the bucket or directory itself is not there
    ├── ConflictError                       the data changed meanwhile: refresh and retry
    ├── StoreError (OSError)                the store failed: retry later
    │   ├── AccessError                     credentials are missing, wrong or not enough
    │   ├── DeadlineError (TimeoutError)    the read's own deadline passed
    │   ├── FunctionError                   the function beside the data failed; chunks can still be read
    │   └── ForkError                       this process cannot use the store after fork
    ├── FormatError                         the data is not what we can read
    │   ├── UnsupportedError                a codec, dtype or version that is not supported
    │   ├── MetadataError                   metadata that contradicts itself or the format
    │   └── ChunkSizeError                  a chunk decoded to the wrong number of bytes
    ├── IntegrityError                      stored bytes are damaged
    ├── BudgetError                         loosen the budget; carries the plan
    ├── StencilError                        the user's function failed or reached too far; carries the cell
    └── InternalError                       our bug: please report it

All of them pickle, so they cross process borders whole.
"""

from typing import Any

__all__ = [
    "AccessError",
    "BudgetError",
    "ChunkSizeError",
    "ConflictError",
    "DeadlineError",
    "ForkError",
    "FormatError",
    "FunctionError",
    "HyperslabError",
    "IntegrityError",
    "InternalError",
    "InvalidInputError",
    "MetadataError",
    "NotFoundError",
    "SelectionError",
    "StencilError",
    "StoreError",
    "StoreNotFoundError",
    "UnsupportedError",
]


class HyperslabError(Exception):
    """The root: `except HyperslabError` catches all that Hyperslab raises on purpose."""

    def __reduce__(self) -> Any:
        # Dask has errors pickled with what they came of. What is not shown stays here: it may be of a class that other
        # processes do not know.
        if self.__suppress_context__:
            self.__context__ = None
        return super().__reduce__()


class InvalidInputError(HyperslabError, ValueError):
    """An argument that cannot be right. Change the call."""


class SelectionError(InvalidInputError, IndexError):
    """A key that does not fit the array. Raised before any request is sent."""


class NotFoundError(HyperslabError, KeyError):
    """Nothing is stored under that name."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0]) if self.args else ""


class StoreNotFoundError(NotFoundError):
    """The bucket or directory itself is not there: that is not a chunk that was never written."""


class ConflictError(HyperslabError):
    """The stored data changed while it was read. Call `refresh()` and read again."""


class StoreError(HyperslabError, OSError):
    """The store did not answer as it should, also after retries. Try again later.

    `transient` says whether the same request may well succeed a moment later.
    """

    transient: bool = False


class AccessError(StoreError):
    """The store refused: credentials are missing, wrong, or do not allow this."""


class DeadlineError(StoreError, TimeoutError):
    """The deadline given to the read passed before all of it had arrived."""


class FunctionError(StoreError):
    """A function beside the data refused, failed, did not answer, or answered with what cannot be used.

    `status` is what it answered with, None if nothing came; `retry_after_s` is when it wants to be asked
    again, where it said so; `nbytes` is how much of an answer arrived and is paid for all the same.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        nbytes: int = 0,
        transient: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after_s, self.nbytes, self.transient = status, retry_after_s, nbytes, transient


class ForkError(StoreError):
    """A forked process could not get a network runtime of its own; use spawn instead."""


class FormatError(HyperslabError):
    """What is stored is not a format that can be read. Retrying will not help."""


class UnsupportedError(FormatError):
    """A codec, dtype, format version or feature that Hyperslab does not read; it is named."""


class MetadataError(FormatError):
    """Metadata that contradicts itself or its format."""


class ChunkSizeError(FormatError):
    """A stored chunk decoded to the wrong number of bytes. Retrying will not help."""

    def __init__(self, key: str, got: int | str, expected: int) -> None:
        super().__init__(key, got, expected)
        self.key, self.got, self.expected = key, got, expected

    def __str__(self) -> str:
        return (
            f"chunk {self.key!r} holds {self.got} bytes, expected {self.expected}; "
            "was the array's metadata rewritten, or the chunk cut off?"
        )


class IntegrityError(HyperslabError):
    """Stored bytes are damaged: a checksum, an index or a length does not hold."""


class BudgetError(HyperslabError):
    """A read would cost more than its budget allows. Loosen the budget or read less.

    `plan` is the plan that was refused; print it to see what it would have cost.
    """

    def __init__(self, message: str, plan: Any = None) -> None:
        super().__init__(message, plan)
        self.plan = plan

    def __str__(self) -> str:
        return str(self.args[0])


class StencilError(HyperslabError):
    """A function over neighbours failed at a cell, or reads further than the halo it was given.

    `cell` is the index in the output at which it was seen, None if it was not at one cell.
    """

    def __init__(self, message: str, cell: tuple[int, ...] | None = None) -> None:
        super().__init__(message, cell)
        self.cell = cell

    def __str__(self) -> str:
        return str(self.args[0])


class InternalError(HyperslabError):
    """A state that our own code rules out. Please report it with the trace."""
