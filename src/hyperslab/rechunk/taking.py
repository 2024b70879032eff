"""Taking the mark of an array: the right to change its layout, or to sweep its old objects away."""

import time
from collections.abc import Callable
from typing import Any

from hyperslab.errors import ConflictError, MetadataError
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.zarr import claims
from hyperslab.formats.zarr.change import Change, change_of, marked
from hyperslab.formats.zarr.documents import change_document
from hyperslab.formats.zarr.seal import Seal

__all__ = ["Decide", "take_mark"]

Document = dict[str, Any]
# Takes the document, its seal and the mark that a process left, which is gone; returns the new mark, or raises.
Decide = Callable[[Document, Seal | None, Change | None], Change]

_LOOK_S = 1.0


class _BusyError(Exception):
    """Another process has the mark."""

    def __init__(self, change: Change) -> None:
        super().__init__(change.token)
        self.change = change


def take_mark(writer: StoreWriter, key: str, decide: Decide, *, url: str) -> Change:
    """Put the mark that `decide` returns, once nobody else is at it, and return it.

    A process of this machine is seen to be gone. One of another machine is taken for gone if it shows no sign of life
    for so long that it would have.
    """
    overruled: Change | None = None
    mine: str | None = None
    busy: Change | None = None
    until_s = 0.0

    def edit(document: Document, seal: Seal | None) -> tuple[Document, Seal | None]:
        nonlocal mine
        change = _mark_of(document, key)
        if change is not None and change.token == mine:  # it was put, and others have gone on from there
            return document, seal
        if change is not None and change != overruled and not claims.is_gone(change.token):
            raise _BusyError(change)
        new = decide(document, seal, change)
        mine = new.token
        return marked(document, new), seal

    while True:
        try:
            change = change_of(change_document(writer, key, edit), key)
            assert change is not None
            return change
        except _BusyError as found:
            if busy is None:
                busy, until_s = found.change, time.monotonic() + claims.PATIENCE_S
            if claims.is_of_this_machine(busy.token) or found.change != busy:
                raise _is_busy(url, found.change) from None
            if time.monotonic() >= until_s:
                overruled = busy
                continue
        time.sleep(min(_LOOK_S, claims.PATIENCE_S))


def _mark_of(document: Document, key: str) -> Change | None:
    try:
        return change_of(document, key)
    except MetadataError:  # nobody can go on with it
        return None


def _is_busy(url: str, change: Change) -> ConflictError:
    what = "is sweeping the old objects" if change.target is None else "is changing the layout"
    return ConflictError(f"process {change.token!r} {what} of {url!r}; wait until it is done")
