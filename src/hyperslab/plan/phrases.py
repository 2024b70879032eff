"""Figures and selections in a person's words: units, dollars, keys as they are typed."""

from math import floor, isinf, isnan, log10

import numpy as np
import numpy.typing as npt

from hyperslab.selection import NEW, Picks, Points, Selection, Span

__all__ = ["say_bytes", "say_count", "say_key", "say_phi", "say_seconds", "say_usd"]

# Lists of indices up to this long are written out.
_SHORT_LIST = 6


def say_count(count: int, one: str, many: str | None = None) -> str:
    """Count things.

    >>> say_count(1, "chunk"), say_count(1200, "chunk"), say_count(2, "index", "indices")
    ('1 chunk', '1,200 chunks', '2 indices')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def say_bytes(nbytes: int) -> str:
    """Write bytes exactly while they are few, then with three digits and a decimal unit.

    >>> say_bytes(1764), say_bytes(655_656), say_bytes(16_777_216), say_bytes(5 * 10**12)
    ('1,764 B', '656 KB', '16.8 MB', '5.00 TB')
    """
    if nbytes < 10_000:
        return f"{nbytes:,} B"
    size = float(nbytes)
    for unit in ("KB", "MB", "GB", "TB", "PB", "EB"):
        size /= 1000
        if size < 999.5 or unit == "EB":
            break
    return f"{_three(size)} {unit}"


def say_seconds(seconds: float) -> str:
    """Write a time in the unit that suits it.

    >>> [say_seconds(s) for s in (0, 4.2e-6, 0.0309, 1.5, 200, 9000)]
    ['0 µs', '4.20 µs', '30.9 ms', '1.50 s', '3.33 min', '2.50 h']
    """
    if not seconds:
        return "0 µs"
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (120, 1, "s"), (7200, 1 / 60, "min")):
        if seconds < limit * 0.9995:
            return f"{_three(seconds * scale)} {unit}"
    return f"{_three(seconds / 3600)} h"


def say_usd(usd: float) -> str:
    """Write dollars with two digits that say something, never with an exponent.

    >>> [say_usd(d) for d in (0, 4e-7, 0.0000123, 0.5, 12.345, 1e-12)]
    ['$0', '$0.00000040', '$0.000012', '$0.50', '$12.35', '<$0.000000001']
    """
    if not usd:
        return "$0"
    if usd < 1e-9:
        return "<$0.000000001"
    return f"${usd:,.2f}" if usd >= 0.1 else f"${usd:.{1 - floor(log10(usd))}f}"


def say_phi(phi: float) -> str:
    """Say how dollars weigh against seconds.

    >>> say_phi(0.0), say_phi(100.0), say_phi(float("inf"))
    ('phi 0: only time counts', 'phi 100: a dollar is worth 100 s', 'phi infinity: only dollars count')
    """
    if isinf(phi) or isnan(phi):
        return "phi infinity: only dollars count"
    return f"phi {phi:g}: a dollar is worth {phi:g} s" if phi else "phi 0: only time counts"


def say_key(selection: Selection | Points) -> str:
    """Write a selection as a person would type its key; long lists are counted.

    >>> from hyperslab.selection import parse
    >>> say_key(parse((3, slice(10, 40), slice(None, None, -2), [5, 1, 1]), (8, 50, 9, 7)))
    '3, 10:40, ::-2, [5, 1, 1]'
    >>> say_key(parse((..., None, slice(None, 30, 7)), (8, 50)))
    ':, None, 0:29:7'
    """
    fields = _say_fields(selection)
    if isinstance(selection, Points):
        return ", ".join([*fields, say_count(selection.size, "point")])
    words: list[str] = []
    done = 0
    for axis in selection.kept:
        if axis == NEW:
            words.append("None")
            continue
        words += [_say_axis(selection, dropped) for dropped in range(done, axis)]
        words.append(_say_axis(selection, axis))
        done = axis + 1
    words += [_say_axis(selection, dropped) for dropped in range(done, len(selection.axes))]
    if not words and not fields:
        return "()" if selection.scalar else "..."
    return ", ".join([*fields, *words])


def _say_fields(selection: Selection | Points) -> list[str]:
    if selection.fields is None:
        return []
    return [repr(selection.fields if isinstance(selection.fields, str) else list(selection.fields))]


def _say_axis(selection: Selection, axis: int) -> str:
    cells, length = selection.axes[axis], selection.shape[axis]
    order = next((order for which, order in selection.orders if which == axis), None)
    if isinstance(cells, Picks) or order is not None:
        backwards = -1 if axis in selection.flipped else 1
        if order is not None and len(order) > _SHORT_LIST:
            return _say_list(order)
        listed = cells.indices()[::backwards]
        return _say_list(listed if order is None else listed[order])
    if axis not in selection.kept:
        return str(cells.start)
    return _say_backwards(cells, length) if axis in selection.flipped else _say_span(cells, length)


def _say_list(cells: npt.NDArray[np.int64]) -> str:
    if len(cells) > _SHORT_LIST:
        return f"[{len(cells):,} indices]"
    return "[" + ", ".join(map(str, cells.tolist())) + "]"


def _say_span(span: Span, length: int) -> str:
    if not span.count:
        return "0:0"
    last = span.start + (span.count - 1) * span.step
    if span.start == 0 and span.count > 1 and last + span.step >= length:
        return ":" if span.step == 1 else f"::{span.step}"
    if span.start == 0 and length == 1:
        return ":"
    return f"{span.start}:{last + 1}" + (f":{span.step}" if span.step > 1 and span.count > 1 else "")


def _say_backwards(span: Span, length: int) -> str:
    last = span.start + (span.count - 1) * span.step
    first = "" if last == length - 1 else str(last)
    stop = "" if span.start - span.step < 0 else str(span.start - 1)
    return f"{first}:{stop}:-{span.step}"


def _three(value: float) -> str:
    """Three digits, never an exponent."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
