"""Fields of JSON that anybody may have sent, read with a check for each."""

import json
import re
import reprlib
from typing import Any, NoReturn

from hyperslab.errors import InvalidInputError
from hyperslab.layout.wire import MOST_AXES

__all__ = [
    "MOST_CELLS",
    "CallTooLargeError",
    "bad",
    "entries",
    "fields",
    "numbers",
    "over",
    "parsed",
    "tag",
    "text",
    "whole",
]

MOST_CELLS = 2**62
# What goes into a header as it is.
_TAG = re.compile(r"[!-~]{1,512}")


class CallTooLargeError(InvalidInputError):
    """A call asks for more than a function allows. Ask for less at once."""


def parsed(data: bytes) -> Any:
    """Return what some JSON says."""
    try:
        # `json` refuses deep nesting by itself, before it fills the stack.
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidInputError("that is not JSON that can be read") from None


def fields(name: str, spec: Any, *names: str) -> None:
    """Refuse what is not a mapping with exactly these names."""
    if not isinstance(spec, dict) or spec.keys() != set(names):
        found = sorted(spec)[:10] if isinstance(spec, dict) else type(spec).__name__
        bad(name, found, f"a mapping of {', '.join(names)}")


def entries(name: str, value: Any, most: int) -> list[Any]:
    """Return a list of one entry or more."""
    if not isinstance(value, list) or not value:
        bad(name, type(value).__name__, "a list with an entry or more")
    if len(value) > most:
        raise over(name, len(value), most)
    return value


def numbers(name: str, value: Any, low: int) -> tuple[int, ...]:
    """Return whole numbers from `low` on, one for each axis of something."""
    if not isinstance(value, list) or len(value) > MOST_AXES:
        bad(name, value, f"a list of {MOST_AXES} numbers at most")
    return tuple([whole(name, n, low, MOST_CELLS) for n in value])


def text(name: str, value: Any, most: int) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        bad(name, value, f"a text of 1 to {most} characters")
    return value


def tag(value: Any) -> str | None:
    """Return the tag of a version, or None."""
    if value is not None and (not isinstance(value, str) or not _TAG.fullmatch(value)):
        bad("etag", value, "a version's tag, or null")
    return value


def whole(name: str, value: Any, low: int, high: int) -> int:
    """Return a whole number between two, both allowed."""
    if type(value) is not int or not low <= value <= high:
        bad(name, value, f"a whole number from {low} to {high}")
    return value


def bad(name: str, found: Any, expected: str) -> NoReturn:
    """Raise the error for a field that is not as it must be; what was found is shown in short."""
    raise InvalidInputError(f"{name}: found {reprlib.repr(found)}, expected {expected}")


def over(name: str, found: int, most: int) -> CallTooLargeError:
    """Return the error for a figure above its limit."""
    return CallTooLargeError(f"{name}: {_count(found)}, at most {most:,} are allowed; ask for less in one call")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _count(found: int) -> str:
    return f"{found:,}" if found < 2**63 else "more than 2^63"
