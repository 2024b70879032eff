"""The files of one version of a table, and which of them can hold what is wanted: by the statistics in the log."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hyperslab.errors import MetadataError
from hyperslab.execute.cache import MemoryCache
from hyperslab.tensors.layouts import Bounds
from hyperslab.tensors.log import DataFile, Version
from hyperslab.tensors.parquet import HEADER
from hyperslab.tensors.values import Header

__all__ = ["Snapshot", "Spanned"]

_HELD_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Spanned:
    """A file with the least and the greatest value of its columns, as far as the log has them."""

    file: DataFile
    low: Mapping[str, Any]
    high: Mapping[str, Any]
    # The header of the only tensor that it has rows of.
    header: Mapping[str, Any] | None = None

    @property
    def has_heads(self) -> bool:
        """Whether its rows say of tensors what they are, not what is in them."""
        return "layout" in self.low

    def may_have(self, id_: str) -> bool:
        return "id" not in self.low or self.low["id"] <= id_ <= self.high["id"]

    def may_meet(self, bounds: Bounds) -> bool:
        """Whether a row can be within bounds."""
        for name, (low, high) in bounds.items():
            if name in self.low and (self.low[name] > high or self.high[name] < low):
                return False
        return True


class Snapshot:
    """One version of a table, with its statistics parsed once they are asked for.

    `held` keeps what reads of this handle found out: footers, and columns of whole numbers.
    """

    def __init__(self, version: Version) -> None:
        self.version = version
        self.held = MemoryCache(_HELD_BYTES)

    def __reduce__(self) -> tuple[Any, ...]:
        return Snapshot, (self.version,)

    @cached_property
    def files(self) -> list[Spanned]:
        return [_spanned(file) for file in self.version.files.values()]

    @cached_property
    def heads(self) -> list[Spanned]:
        """The files with a row for each tensor."""
        return [each for each in self.files if each.has_heads]

    def heads_of(self, id_: str) -> list[DataFile]:
        return [each.file for each in self.heads if each.may_have(id_)]

    def data_of(self, id_: str, bounds: Iterable[Bounds] | None = None) -> list[DataFile]:
        """Return the files that can have rows of a tensor within one of the bounds."""
        alternatives = None if bounds is None else list(bounds)
        return [each.file for each in self._data(id_) if alternatives is None or any(map(each.may_meet, alternatives))]

    def header_of(self, id_: str) -> Header | None:
        """Return a tensor's header if the log has it."""
        for each in self._data(id_):
            if each.header is not None and each.header.get("id") == id_:
                return Header.from_json(json.dumps(each.header))
        return None

    def _data(self, id_: str) -> Iterator[Spanned]:
        return (each for each in self.files if not each.has_heads and each.may_have(id_))


def _spanned(file: DataFile) -> Spanned:
    if file.stats is None:
        return Spanned(file, {}, {})
    try:
        stats = json.loads(file.stats)
        low, high = stats.get("minValues") or {}, stats.get("maxValues") or {}
        return Spanned(file, low, {name: high[name] for name in low}, stats.get(HEADER))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(f"the log has statistics of {file.path!r} that cannot be read: {error!r}") from None
