"""The mark of an array whose layout is being changed in place, or whose old objects are being swept away.

It is an attribute of `zarr.json`, which other readers leave alone and which is hidden from the user:

    "_hyperslab_change": {"token": "vm/f0:17:4a-0af3", "shape": [4, 4], "target": {...}, "number": 1, "written": [...]}

Whoever writes cells while the mark is there says so in `written`, by a conditional put: the put that ends the change is
conditional, too, so it fails, and those cells are moved again. Each entry has a number of its own, so that also a
second write of the same cells changes the document.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hyperslab.errors import MetadataError
from hyperslab.formats.zarr.seal import ATTRIBUTE
from hyperslab.selection import Box

__all__ = [
    "MARK",
    "RESERVED",
    "Change",
    "Seen",
    "Written",
    "change_of",
    "layout_of",
    "marked",
    "same_layout",
    "user_attributes",
]

MARK = "_hyperslab_change"
# Attributes that are ours, and what they are.
RESERVED = {ATTRIBUTE: "the seal", MARK: "the mark of a change of layout"}
# The fields of a document that say where cells lie and how they are encoded.
LAYOUT = ("chunk_grid", "codecs", "chunk_key_encoding")
# More boxes than this are taken together: the document is to stay small.
_MOST_WRITTEN = 512

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """Cells that were written during the change, and the number of that write."""

    number: int
    box: Box

    def to_list(self) -> list[Any]:
        return [self.number, list(self.box.start), list(self.box.stop)]


@dataclass(frozen=True, slots=True)
class Seen:
    """The old objects as they were before any was copied: when the newest was written, and which there were."""

    newest_ns: int
    keys: str

    def to_dict(self) -> dict[str, Any]:
        return {"newest_ns": self.newest_ns, "keys": self.keys}


@dataclass(frozen=True, slots=True)
class Change:
    """What the mark says.

    `token` is the claim of the process that is at it, `target` the layout that the array gets, None where old objects
    are only swept away. `number` counts the writes so far, `beat` how often the process said that it is alive. While
    it is `closing`, writers wait for its end.
    """

    token: str
    shape: tuple[int, ...]
    target: Mapping[str, Any] | None = None
    number: int = 0
    written: tuple[Written, ...] = ()
    seen: Seen | None = None
    closing: bool = False
    beat: int = 0

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"token": self.token, "shape": list(self.shape), "beat": self.beat}
        if self.target is None:
            return found
        found |= {"target": dict(self.target), "number": self.number, "closing": self.closing}
        found["written"] = [each.to_list() for each in self.written]
        found["seen"] = None if self.seen is None else self.seen.to_dict()
        return found

    def with_written(self, boxes: Iterable[Box]) -> "Change":
        """Return the mark with one more write; what it covers of earlier ones need not be said twice.

        >>> change = Change("t", (9,), {}).with_written([Box((2,), (4,))]).with_written([Box((0,), (5,))])
        >>> change.number, change.written
        (2, (Written(number=2, box=Box(start=(0,), stop=(5,))),))
        """
        number, new = self.number + 1, list(boxes)
        kept = [each for each in self.written if not any(_inside(each.box, box) for box in new)]
        written = [*kept, *[Written(number, box) for box in new]]
        if len(written) > _MOST_WRITTEN:
            written = [Written(number, _around([each.box for each in written]))]
        return replace(self, number=number, written=tuple(written))

    def since(self, number: int) -> list[Box]:
        """Return what was written after the write with that number."""
        return [each.box for each in self.written if each.number > number]


def layout_of(document: Document) -> dict[str, Any]:
    """Return the part of a document that says where cells lie and how they are encoded."""
    return {name: document.get(name) for name in LAYOUT}


def same_layout(document: Document, other: Document) -> bool:
    """Whether two documents say the same of where cells lie and how they are encoded."""
    return layout_of(document) == layout_of(other)


def user_attributes(document: Document) -> dict[str, Any]:
    """Return the user's attributes: without the seal and the mark.

    >>> user_attributes({"attributes": {"units": "m", "_hyperslab_change": {}, "_hyperslab": {}}})
    {'units': 'm'}
    """
    attributes = document.get("attributes")
    if not isinstance(attributes, dict):
        return {}
    return {name: value for name, value in attributes.items() if name not in RESERVED}


def marked(document: Document, change: Change | None) -> dict[str, Any]:
    """Return the document with this mark in place of any that it had; None takes it off. It has to be sealed again."""
    attributes = document.get("attributes")
    held = {} if not isinstance(attributes, dict) else {n: v for n, v in attributes.items() if n != MARK}
    if change is not None:
        held[MARK] = change.to_dict()
    if not held and "attributes" not in document:
        return dict(document)
    return {**document, "attributes": held}


def change_of(document: Document, key: str) -> Change | None:
    """Return what the mark says, None where there is none; one that makes no sense is a MetadataError."""
    attributes = document.get("attributes")
    if not isinstance(attributes, dict) or MARK not in attributes:
        return None
    try:
        return _parsed(attributes[MARK])
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise MetadataError(
            f"the attribute {MARK!r} in {key!r} is damaged ({str(error)[:100]}); hs.sweep(url) removes it"
        ) from None


def _parsed(found: dict[str, Any]) -> Change:
    token, target, seen = found["token"], found.get("target"), found.get("seen")
    shape = _lengths(found["shape"])
    if not isinstance(token, str) or not (target is None or isinstance(target, dict)):
        raise ValueError("token and target")
    written = [
        Written(_count(number), _box(start, stop, shape)) for number, start, stop in list(found.get("written", ()))
    ]
    return Change(
        token,
        shape,
        target,
        _count(found.get("number", 0)),
        tuple(written),
        None if seen is None else Seen(_count(seen["newest_ns"]), str(seen["keys"])),
        found.get("closing") is True,
        _count(found.get("beat", 0)),
    )


def _box(start: Any, stop: Any, shape: Sequence[int]) -> Box:
    low, high = _lengths(start), _lengths(stop)
    if len(low) != len(shape) or len(high) != len(shape):
        raise ValueError("a box has another number of axes")
    # The array may have grown since: what lies outside is none of this change's.
    return Box(low, high).intersect(Box((0,) * len(shape), tuple(shape)))


def _lengths(found: Any) -> tuple[int, ...]:
    if not isinstance(found, list):
        raise TypeError("lengths are a list")
    return tuple([_count(n) for n in found])


def _count(found: Any) -> int:
    if type(found) is not int or not 0 <= found < 1 << 63:
        raise ValueError(f"{str(found)[:40]!r} is no count")
    return found


def _inside(box: Box, other: Box) -> bool:
    return all([a >= b for a, b in zip(box.start, other.start, strict=True)]) and all(
        [a <= b for a, b in zip(box.stop, other.stop, strict=True)]
    )


def _around(boxes: Sequence[Box]) -> Box:
    starts, stops = zip(*[each.start for each in boxes], strict=True), zip(*[each.stop for each in boxes], strict=True)
    return Box(tuple([min(axis) for axis in starts]), tuple([max(axis) for axis in stops]))
