"""Names of arrays: data like any other. They are stored in the index, and never part of an object's key."""

from typing import Any

from hyperslab.errors import InvalidInputError, NotFoundError

__all__ = ["MAX_NAME_BYTES", "encoded", "shown", "unknown"]

MAX_NAME_BYTES = 1 << 16


def encoded(name: Any) -> bytes:
    """Return a name as it is stored; in this form names sort as their texts do.

    >>> encoded("a/é").hex()
    '612fc3a9'
    """
    if not isinstance(name, str):
        raise InvalidInputError(f"the name of an array is a string, not {type(name).__name__}")
    try:
        text = name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"the name {shown(name)} has half a character, which UTF-8 has no form for") from None
    if len(text) > MAX_NAME_BYTES:
        raise InvalidInputError(f"the name {shown(name)} has {len(text)} bytes; at most {MAX_NAME_BYTES} are stored")
    return text


def shown(name: str) -> str:
    """Return a name for a message, cut where it is long."""
    return ascii(name if len(name) <= 80 else name[:80] + "…")


def unknown(name: str) -> NotFoundError:
    """Return the error for a name that no array has."""
    return NotFoundError(f"there is no array {shown(name)} in the collection")
