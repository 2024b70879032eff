"""Parquet files of tensors as we write them: row groups, encodings and statistics are ours.

A data file holds rows of one or more tensors of one layout, each in row groups of its own. Beside what Parquet says of
it, its footer has

    hyperslab.tensors   the headers of its tensors, as a list in JSON
    hyperslab.zones     for each row group which of the tensors its rows are of, how many rows there are, and the least
                        and the greatest value of every index column: little-endian int64, zlib, base64. In plain
                        files (nothing is encoded) also of `nbytes` and `crc`, so that of a group with one row all but
                        the payload is known
    hyperslab.form      how the columns are encoded and compressed, to write rows of the file anew the same way

    hyperslab.part      of a tensor in several files, which of them this is

so that one footer tells a reader all that it needs to choose row groups and to decode them. Files never change. Their
names are random and end in the length and the CRC-32C of the footer: the log, which has the names, tells a reader what
to ask for and whether the answer is right. Rows have checksums of their own; where a layout has none, pages have them.
"""

import base64
import json
import re
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.layout.checksums import crc32c
from hyperslab.tensors.layouts import COLUMNS, Encoded
from hyperslab.tensors.values import Header

__all__ = [
    "DATA",
    "HEADER",
    "HEADS",
    "FileWriter",
    "Form",
    "Made",
    "Stored",
    "Zones",
    "check_footer",
    "footer_length",
    "read_zones",
    "write_heads",
]

# Folders of data files and of files with headers.
DATA, HEADS = "data", "tensors"

# Where the statistics of a file of one tensor have the tensor's header.
HEADER = "hyperslab"

Ints = npt.NDArray[np.int64]

_ONE_PAGE = 1 << 30
_NAME = re.compile(r".*-(\d{1,12})-([0-9a-f]{8})\.parquet")
_MOST_ZONES_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of a layout are written; files hold rows of one form only."""

    columns: tuple[str, ...]
    index: tuple[str, ...]
    encodings: tuple[tuple[str, str], ...]
    compression: tuple[tuple[str, str], ...]
    # Whether payloads lie in the file as they are, each at the end of its row group where that is one row.
    plain: bool = field(init=False)
    # Whether the payloads of a row group are its last bytes, one after the other: their lengths stand before them all.
    lengths_first: bool = field(init=False)
    # The columns that zones have the least and greatest value of.
    zoned: tuple[str, ...] = field(init=False)

    @classmethod
    def of(cls, encoded: Encoded) -> "Form":
        return cls(
            tuple(encoded.schema.names), tuple(encoded.index),
            tuple(sorted(encoded.encodings.items())), tuple(sorted(encoded.compression.items())),
        )  # fmt: skip

    def __post_init__(self) -> None:
        uncompressed = {codec for _, codec in self.compression} <= {"NONE"} and not self.encodings
        plain = uncompressed and self.columns == (*self.index, "nbytes", "crc", "payload")
        lengths_first = self.columns[-1:] == ("payload",) and "nbytes" in self.columns
        lengths_first &= dict(self.encodings).get("payload") == "DELTA_LENGTH_BYTE_ARRAY"
        lengths_first &= dict(self.compression).get("payload") == "NONE"
        object.__setattr__(self, "plain", plain)
        object.__setattr__(self, "lengths_first", lengths_first)
        object.__setattr__(self, "zoned", (*self.index, "nbytes", "crc") if plain else self.index)

    def to_json(self) -> str:
        return json.dumps([self.columns, self.index, self.encodings, self.compression], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Form":
        columns, index, encodings, compression = json.loads(text)
        return cls(tuple(columns), tuple(index), tuple(map(tuple, encodings)), tuple(map(tuple, compression)))


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that is stored and that no version refers to yet: its name and size, and what the log will say of it."""

    name: str
    nbytes: int
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A file that was made and is to be stored."""

    name: str
    data: Any
    stats: Mapping[str, Any]

    @property
    def stored(self) -> Stored:
        return Stored(self.name, len(self.data), self.stats)


@dataclass(slots=True)
class _Groups:
    """Row groups written so far: tensor, rows, and for each index column its least and greatest value."""

    rows: list[Ints] = field(default_factory=list)

    def add(self, tensor: int, table: pa.Table, index: Sequence[str], row_group_rows: int) -> None:
        starts = np.arange(0, table.num_rows, row_group_rows)
        zones = np.empty((len(starts), 2 + 2 * len(index)), np.int64)
        zones[:, 0] = tensor
        zones[:, 1] = np.diff(np.append(starts, table.num_rows))
        for at, name in enumerate(index):
            values = table.column(name).to_numpy()
            zones[:, 2 + 2 * at] = np.minimum.reduceat(values, starts)
            zones[:, 3 + 2 * at] = np.maximum.reduceat(values, starts)
        self.rows.append(zones)

    def all(self, columns: int) -> Ints:
        return np.concatenate(self.rows) if self.rows else np.empty((0, 2 + 2 * columns), np.int64)


class FileWriter:
    """A data file that is being written, in memory. Its first tensor may have begun in another file: `part`."""

    def __init__(self, form: Form, part: int = 0) -> None:
        self.form, self.part = form, part
        self.headers: list[Header] = []
        self._groups = _Groups()
        self._sink = pa.BufferOutputStream()
        dictionary = pa.field("id", pa.dictionary(pa.int32(), pa.string()), nullable=False)
        self._schema = pa.schema([dictionary, *(COLUMNS.field(name).with_nullable(False) for name in form.columns)])
        compression = {"id": "NONE", **dict(form.compression)}
        compression = {name: compression.get(name, "NONE") for name in self._schema.names}
        levels = {name: 1 for name, codec in compression.items() if codec.upper() == "ZSTD"}
        self._writer = pq.ParquetWriter(
            self._sink, self._schema, version="2.6", use_dictionary=["id"],
            column_encoding=dict(form.encodings) or None, compression=compression, compression_level=levels or None,
            write_statistics=["id", *form.index], data_page_size=_ONE_PAGE, store_schema=False,
            write_page_checksum="crc" not in form.columns, **_whole_pages(),
        )  # fmt: skip

    def begin(self, header: Header) -> None:
        """Take in the header of the tensor whose rows come next."""
        self.headers.append(header)

    def add(self, table: pa.Table, row_group_rows: int) -> None:
        """Write rows of the tensor that was begun last."""
        if not table.num_rows:
            return
        self._groups.add(len(self.headers) - 1, table, self.form.zoned, row_group_rows)
        ids = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(table.num_rows, np.int32)), pa.array([self.headers[-1].id], pa.string())
        )
        self._writer.write_table(
            pa.Table.from_arrays([ids, *table.columns], schema=self._schema), row_group_size=row_group_rows
        )

    @property
    def nbytes(self) -> int:
        return int(self._sink.tell())

    @property
    def groups(self) -> int:
        return sum(len(zones) for zones in self._groups.rows)

    def close(self) -> Made:
        """Return the file."""
        zones = self._groups.all(len(self.form.zoned))
        packed = base64.b64encode(zlib.compress(zones.astype("<i8").tobytes(), 1))
        headers = [json.loads(header.to_json()) for header in self.headers]
        self._writer.add_key_value_metadata(
            {
                "hyperslab.tensors": json.dumps(headers, separators=(",", ":")),
                "hyperslab.zones": packed,
                "hyperslab.part": str(self.part),
                "hyperslab.form": self.form.to_json(),
            }
        )
        self._writer.close()
        data = self._sink.getvalue()
        return Made(_name(DATA, data), data, self._stats(zones))

    def _stats(self, zones: Ints) -> dict[str, Any]:
        ids = [header.id for header in self.headers]
        low: dict[str, Any] = {"id": min(ids)}
        high: dict[str, Any] = {"id": max(ids)}
        for at, name in enumerate(self.form.index):
            low[name], high[name] = int(zones[:, 2 + 2 * at].min()), int(zones[:, 3 + 2 * at].max())
        stats = {"numRecords": int(zones[:, 1].sum()), "minValues": low, "maxValues": high}
        stats["nullCount"] = dict.fromkeys(low, 0)
        if len(self.headers) == 1 and not self.part:
            # So the log alone tells which of a tensor's files a read needs.
            stats[HEADER] = json.loads(self.headers[0].to_json())
        return stats


def _whole_pages() -> dict[str, Any]:
    # Newer versions of pyarrow begin a new page after so many rows, too.
    import inspect

    known = inspect.signature(pq.ParquetWriter).parameters
    return {"max_rows_per_page": _ONE_PAGE} if "max_rows_per_page" in known else {}


def write_heads(heads: pa.Table) -> Made:
    """Make the file that says of tensors what they are: a row for each."""
    heads = heads.sort_by("id")
    sink = pa.BufferOutputStream()
    pq.write_table(heads, sink, compression="ZSTD", compression_level=1, store_schema=False, write_page_checksum=True)
    ids = heads.column("id")
    low, high = {"id": ids[0].as_py()}, {"id": ids[len(ids) - 1].as_py()}
    for name in ("layout", "dtype"):
        values = sorted(set(heads.column(name).to_pylist()))
        low[name], high[name] = values[0], values[-1]
    stats = {"numRecords": heads.num_rows, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
    data = sink.getvalue()
    return Made(_name(HEADS, data), data, stats)


def _name(folder: str, data: Any) -> str:
    footer = memoryview(data)[-_footer_length(data) :]
    return f"{folder}/{secrets.token_hex(12)}-{len(footer)}-{crc32c(np.frombuffer(footer, np.uint8)):08x}.parquet"


def _footer_length(data: Any) -> int:
    """Return how many bytes the footer of a file takes, with the length and the mark after it; `data` ends with it."""
    tail = bytes(memoryview(data)[-8:])
    if len(tail) < 8 or tail[4:] != b"PAR1":
        raise IntegrityError("a Parquet file does not end as one does; was it cut off?")
    return int.from_bytes(tail[:4], "little") + 8


def footer_length(path: str, nbytes: int) -> int:
    """Return how many bytes from the end of a file hold its footer, as its name says.

    >>> footer_length("data/0f3a-1234-89abcdef.parquet", 99_999)
    1234
    """
    found = _NAME.fullmatch(path)
    if found is None or not 8 < int(found[1]) <= nbytes:
        raise MetadataError(f"{path!r} is no file of a tensor table that was written here: its name is of another kind")
    return int(found[1])


def check_footer(path: str, footer: memoryview) -> None:
    """Refuse a footer that is not the one that was written under this name."""
    found, checksum = _NAME.fullmatch(path), crc32c(np.frombuffer(footer, np.uint8))
    if found is None or checksum != int(found[2], 16) or _footer_length(footer) != len(footer):
        raise IntegrityError(f"the footer of {path!r} is damaged: its checksum is not the one in its name")


@dataclass(frozen=True, slots=True, eq=False)
class Zones:
    """What a footer tells: the headers of the file's tensors, and for each row group whose it is and what it spans."""

    headers: Mapping[str, Header]
    order: tuple[str, ...]
    form: Form
    groups: Ints
    part: int = 0

    def part_of(self, id_: str) -> int:
        """Return which of a tensor's files this is: only the first tensor of a file can have begun in another."""
        return self.part if self.order and self.order[0] == id_ else 0

    def of(self, id_: str, bounds: Iterable[Mapping[str, tuple[int, int]]] | None) -> Ints:
        """Return the row groups of a tensor that may have rows within one of the bounds; all if there are none."""
        if id_ not in self.headers:
            return np.empty(0, np.int64)
        mine = self.groups[:, 0] == self.order.index(id_)
        if bounds is None:
            return np.flatnonzero(mine)
        wanted = np.zeros(len(self.groups), bool)
        for each in bounds:
            wanted |= self._within(each)
        return np.flatnonzero(mine & wanted)

    def least(self, name: str, groups: Ints) -> Ints:
        """Return the least value that row groups have in a column."""
        found: Ints = self.groups[groups, 2 + 2 * self.form.zoned.index(name)]
        return found

    def _within(self, bounds: Mapping[str, tuple[int, int]]) -> npt.NDArray[np.bool_]:
        met = np.ones(len(self.groups), bool)
        for name, (low, high) in bounds.items():
            if name in self.form.index:
                at = 2 + 2 * self.form.index.index(name)
                met &= (self.groups[:, at] <= high) & (self.groups[:, at + 1] >= low)
        return met


def read_zones(metadata: Any, path: str) -> Zones:
    """Return what the footer of a data file tells; that of another writer's file tells nothing."""
    told: Mapping[bytes, bytes] = metadata.metadata or {}
    try:
        headers = [Header.from_json(json.dumps(each)) for each in json.loads(told[b"hyperslab.tensors"])]
        form = Form.from_json(told[b"hyperslab.form"].decode())
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(told[b"hyperslab.zones"]), _MOST_ZONES_BYTES)
        part = int(told[b"hyperslab.part"])
        groups = np.frombuffer(data, "<i8").astype(np.int64).reshape(-1, 2 + 2 * len(form.zoned))
    except (KeyError, ValueError, TypeError, zlib.error) as error:
        raise MetadataError(f"{path!r} is no file of a tensor table that was written here: {error!r}") from None
    tensors = groups[:, 0]
    if len(groups) != metadata.num_row_groups or ((tensors < 0) | (tensors >= len(headers))).any():
        raise IntegrityError(f"the footer of {path!r} contradicts itself: it is damaged")
    return Zones({header.id: header for header in headers}, tuple([h.id for h in headers]), form, groups, part)
