"""Tensors on their way into a table: checked, given a layout, stored as files; then one commit names the files."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from hyperslab.errors import ConflictError, InvalidInputError
from hyperslab.tensors.choosing import choose
from hyperslab.tensors.commits import Change
from hyperslab.tensors.forms import tensor_of
from hyperslab.tensors.heads import checked_metadata, heads_table, metadata_types
from hyperslab.tensors.layouts import encode
from hyperslab.tensors.log import DataFile, Version
from hyperslab.tensors.parquet import Stored, write_heads
from hyperslab.tensors.place import Place
from hyperslab.tensors.removing import find_ids, without
from hyperslab.tensors.snapshot import Snapshot
from hyperslab.tensors.storing import Storing, Uploads
from hyperslab.tensors.tensor import SPARSE
from hyperslab.tensors.values import Coo, Header

__all__ = ["Item", "Putting", "items_of"]

Item = tuple[str | None, Any, Mapping[str, Any] | None]

_MOST_ID_CHARACTERS = 512


def items_of(items: Any) -> Iterator[Item]:
    """Yield id, tensor and metadata of what is to be put."""
    if not isinstance(items, Mapping) and not isinstance(items, Iterable):
        raise InvalidInputError(f"items are a mapping of ids to tensors, or tuples of them, not {type(items).__name__}")
    for item in items.items() if isinstance(items, Mapping) else items:
        if not isinstance(item, tuple) or len(item) not in (2, 3):
            raise InvalidInputError(
                "an item is a tuple (id, tensor) or (id, tensor, metadata), the id None for a new one"
            )
        yield item if len(item) == 3 else (*item, None)


def new_id() -> str:
    """Return an id that nobody else makes; later ones sort after earlier ones, so that files span few of them."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


class Putting:
    """One put, of however many tensors."""

    def __init__(
        self, place: Place, layout: str, workload: Any, parameters: Mapping[str, Any], *, overwrite: bool = False
    ) -> None:
        if parameters and layout == "auto":
            raise InvalidInputError(f"name the layout that {', '.join(parameters)} are parameters of; it is 'auto'")
        self._place, self._layout, self._workload, self._parameters = place, layout, workload, parameters
        self._overwrite = overwrite
        self.ids: list[str] = []
        self._chosen: set[str] = set()
        self._headers: list[Header] = []
        self._bytes: list[int] = []
        self._metadata: list[dict[str, Any]] = []
        self._data: list[Stored] = []
        self._heads: tuple[dict[str, pa.DataType], Stored] | None = None

    def run(self, items: Iterable[Item], tell: Callable[[int, int], None] | None) -> None:
        """Store the tensors' files, which nobody refers to yet."""
        told = _Told(tell)
        with Storing(self._place) as storing:
            for id_, tensor, metadata in items:
                self._add(storing, id_, tensor, metadata, told)
            self._data = storing.finish()

    def _add(
        self, storing: Storing, id_: str | None, tensor: Any, metadata: Mapping[str, Any] | None, told: "_Told"
    ) -> None:  # fmt: skip
        name = self._checked_id(id_)
        self._metadata.append(checked_metadata(metadata))
        taken = tensor_of(tensor)
        told.begin(taken.coords.nbytes + taken.values.nbytes if isinstance(taken, Coo) else taken.nbytes)
        layout, parameters = self._layout, self._parameters
        if layout == "auto":
            layout, parameters = choose(taken, self._workload)
        encoded = encode(taken, layout, **parameters)
        described = {**encoded.parameters, SPARSE: isinstance(taken, Coo)}
        header = Header(name, encoded.layout, encoded.shape, encoded.dtype, encoded.fill, described)
        self._bytes.append(storing.add(header, encoded, told.more))
        self._headers.append(header)
        self.ids.append(name)
        told.end()

    def _checked_id(self, id_: Any) -> str:
        if id_ is None:
            return new_id()
        if not isinstance(id_, str) or not 0 < len(id_) <= _MOST_ID_CHARACTERS or not id_.isprintable():
            raise InvalidInputError(
                f"an id is a text of 1 to {_MOST_ID_CHARACTERS} printable characters, not {id_!r:.80}"
            )
        if id_ in self._chosen:
            raise InvalidInputError(f"id {id_!r:.120} is given twice; every tensor has its own")
        self._chosen.add(id_)
        return id_

    def decide(self, version: Version | None) -> Change:
        """Return the change that makes the tensors part of a version."""
        types = metadata_types(self._metadata, {} if version is None else version.columns)
        if self._heads is None or self._heads[0] != types:
            heads = heads_table(self._headers, self._bytes, self._metadata, types)
            with Uploads(self._place) as uploads:
                uploads.put(write_heads(heads))
                self._heads = types, uploads.finish()[0]
        removes, others = self._replaced(version)
        return Change("put", [self._heads[1], *self._data, *others], removes, types)

    def _replaced(self, version: Version | None) -> tuple[list[DataFile], list[Stored]]:
        """Return what is to be removed and added so that tensors with the ids that were chosen are gone."""
        if version is None or not self._chosen:
            return [], []
        snapshot = Snapshot(version)
        known = find_ids(self._place, snapshot, self._chosen)
        if known and not self._overwrite:
            raise ConflictError(
                f"there is a tensor {min(known)!r:.120} in {self._place.url!r} already; choose another id, or put it "
                "with overwrite=True"
            )
        return without(self._place, snapshot, known) if known else ([], [])


class _Told:
    """Tells the user how many bytes of tensors are stored, of those that were given so far."""

    def __init__(self, tell: Callable[[int, int], None] | None) -> None:
        self._tell, self._total, self._done = tell, 0, 0

    def begin(self, nbytes: int) -> None:
        """Begin with a tensor of so many bytes."""
        self._done, self._total = self._total, self._total + nbytes

    def more(self, nbytes: int) -> None:
        """Tell of some rows; those of a sparse tensor may have fewer bytes than it, or more."""
        self._done = min(self._total, self._done + nbytes)
        if self._tell is not None:
            self._tell(self._done, self._total)

    def end(self) -> None:
        self.more(self._total)
