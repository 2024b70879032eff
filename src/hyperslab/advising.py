"""Advice on how an array should lie, from what is read of it; and the way from advice to a changed array."""

from math import inf
from numbers import Real
from typing import Any

from hyperslab.array import Array
from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session
from hyperslab.formats.zarr.create import LayoutName
from hyperslab.new import rechunk
from hyperslab.opening import open
from hyperslab.plan.render import html_text, shown_text
from hyperslab.tune.advice import Findings, find_form
from hyperslab.tune.forms import Shrink, form_of
from hyperslab.tune.picture import draw
from hyperslab.tune.reads import Reads
from hyperslab.tune.recorded import given_workload, reads_in
from hyperslab.tune.sample import measure_shrink, sample_boxes
from hyperslab.tune.telling import report_of, values_of
from hyperslab.workload.place import clean_url

__all__ = ["Advice", "advise"]

# For indexes of shards, while a sample is read.
_INDEX_BYTES = 1 << 24
# Chunks that a sample takes at most: where each is an object of its own, each is a request.
_MOST_CHUNKS, _MOST_OBJECTS = 1 << 14, 1 << 10


class Advice:
    """Which layout would have served the recorded reads best; nothing is changed until it is applied.

    `print` it to see all of it; `findings` has the figures.
    """

    def __init__(self, array: Array, findings: Findings, reads: Reads, held_out: Reads | None) -> None:
        self.array, self.findings = array, findings
        self._reads = reads
        self._counts = reads.total, 0 if held_out is None else held_out.total
        # A signature in a URL is for nobody who is told of the advice.
        self._name = clean_url(array.url) if "://" in array.url else array.url

    @property
    def chunks(self) -> tuple[int, ...]:
        """Cells of a chunk, as advised."""
        return self.findings.best.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Cells of a shard, as advised; None if each chunk is an object of its own."""
        return self.findings.best.shards

    @property
    def layout(self) -> LayoutName:
        """Whether chunks are compressed ("default") or plain."""
        return "plain" if self.findings.best.plain else "default"

    @property
    def keep(self) -> bool:
        """Whether the array had better stay as it is."""
        return self.findings.keep

    def apply(self, url: Any = None, **options: Any) -> Array:
        """Change the array's layout to the one advised: in place, or in a copy at `url`; options as for `rechunk`.

        Where the array had better stay as it is, and no `url` is given, nothing is done.
        """
        if self.keep and url is None:
            return self.array
        settings = {"chunks": self.chunks, "shards": self.shards or False, "layout": self.layout}
        # To apply it is to say that the array may be changed, whatever it was opened for.
        array = Array(self.array.source, self.array.store, self.array.session, writable=True)
        return rechunk(array, url, **{**settings, **options})  # type: ignore[return-value]

    def plot(self, axes: Any = None) -> Any:
        """Draw the reads over the chunks as they lie now and as they would lie; needs matplotlib."""
        return draw(self.findings, self._reads, axes)

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as plain values, ready for JSON."""
        return values_of(self.findings, self._name, *self._counts)

    def __str__(self) -> str:
        return shown_text(report_of(self.findings, self._name, *self._counts))

    def __repr__(self) -> str:
        told = "keep" if self.keep else f"chunks {self.chunks} shards {self.shards} {self.layout}"
        return f"<hyperslab.Advice {self._name!r}: {told}>"

    def _repr_html_(self) -> str:
        return html_text(report_of(self.findings, self._name, *self._counts))


def advise(
    array: Any,
    workload: Any,
    *,
    layout: LayoutName | None = None,
    phi: float | None = None,
    held_out: float = 0.2,
    copies: int = 1,
    storage_bytes: float = inf,
    storage_options: Any = None,
    session: Session | None = None,
) -> Advice:
    """Say which layout would serve reads like the recorded ones best, and by how much; nothing is changed.

    array          an opened array, or its URL
    workload       what is read of it: a recording (`hs.record`), a `Workload`, or a list of keys such as `np.s_[0, :]`
    layout         "default" or "plain" chunks (default: as the array's are now)
    phi            seconds that a dollar is worth (default: the session's)
    held_out       the share of the reads that the search does not know, and the advice is tested on
    copies         how many layouts side by side may be advised, each read going to the cheapest
    storage_bytes  what they may take together

    >>> import tempfile
    >>> import numpy as np
    >>> import hyperslab as hs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     a = hs.save(folder + "/a.zarr", np.zeros((512, 64, 64), "f4"), chunks=(1, 64, 64), shards=(64, 64, 64))
    ...     advice = hs.advise(a, [np.s_[:, i, 2 * i] for i in range(32)])
    ...     advice.chunks[0] > 100
    True
    """
    opened = array if isinstance(array, Array) else open(array, storage_options=storage_options, session=session)
    if not isinstance(opened, Array):
        raise InvalidInputError(f"{opened.url!r} is a group; advice is given on one array at a time")
    _check(layout in (None, "default", "plain"), "layout is 'default' or 'plain'", layout)
    _check(_is_number(held_out) and 0 <= held_out < 1, "held_out is a share from 0 to below 1", held_out)
    _check(phi is None or (_is_number(phi) and phi >= 0), "phi is 0 or more, in seconds for a dollar", phi)
    _check(_is_number(copies) and copies >= 1 and not copies % 1, "copies is how many layouts, 1 or more", copies)
    _check(_is_number(storage_bytes) and storage_bytes > 0, "storage_bytes is a number of bytes", storage_bytes)
    if not opened.shape or not opened.size:
        raise InvalidInputError(f"{opened.url!r} has the shape {opened.shape}: there is nothing to cut into chunks")
    known, unknown = reads_in(given_workload(opened, workload), opened.shape, held_out)
    now = form_of(opened.source.layout)
    plain = now.plain if layout is None else layout == "plain"
    findings = find_form(
        known, unknown, now, opened.source.layout.stored.itemsize, opened.session.model(opened.store, phi),
        _shrink(opened), plain=plain, copies=copies, storage_bytes=storage_bytes,
        told=opened.source.layout.told is not None,
    )  # fmt: skip
    return Advice(opened, findings, known, unknown)


def _check(good: bool, what: str, given: Any) -> None:
    if not good:
        raise InvalidInputError(f"{what}, not {given!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _shrink(array: Array) -> Shrink:
    """Return how well the array's cells compress, by a sample of them."""
    layout = array.source.layout
    most = _MOST_OBJECTS if layout.index is None and layout.table is None else _MOST_CHUNKS
    boxes = sample_boxes(array.shape, layout.chunks, layout.stored.itemsize, most)
    with array.session.apart(index_bytes=_INDEX_BYTES) as session:
        blocks = Array(array.source, array.store, session).read_boxes(boxes)
    return measure_shrink([block for block in blocks if not block.dtype.hasobject], array.source.compression)
