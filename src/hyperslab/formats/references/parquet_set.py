"""Reference sets in a folder of Parquet files: kerchunk's `.zmetadata` and `NAME/refs.N.parq`. Needs pyarrow."""

from collections import OrderedDict
from hashlib import blake2b
from threading import Lock
from typing import Any

from hyperslab.errors import ConflictError, IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.references.entries import inline_bytes, target_name
from hyperslab.formats.references.sets import LEAVES, Nodes, gather_nodes
from hyperslab.formats.source import MetadataReader, join, parse_document
from hyperslab.formats.zarr.metadata import shown
from hyperslab.layout import WHOLE, Place, References, numbers_of
from hyperslab.plan import Pieces

__all__ = ["ParquetSet", "open_parquet"]

_DOCUMENT = ".zmetadata"
_MISSING = "references in Parquet files need pyarrow; install it with: pip install 'hyperslab[references]'"
# The most rows of a file, and what its columns may take in memory, as the file itself says.
_MOST_ROWS = 10_000_000
_MOST_BYTES = 256 << 20
# What files of references may take in memory together; beyond, the oldest are read again.
_HELD_BYTES = 64 << 20
_COLUMNS = ("path", "offset", "size", "raw")
# More of a file's footer than this is no description of four columns.
_FOOTER_BYTES = 16 << 20


class ParquetSet:
    """The references of a folder. Only the files that hold a read's chunks are read, and some are held."""

    def __init__(self, key: str, digest: bytes) -> None:
        self.key, self._digest = key, digest
        self._metadata: dict[str, Any] | None = None
        self._nodes: Nodes | None = None
        self._files: OrderedDict[str, Any] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetSet, (self.key, self._digest)

    def nodes(self, reader: MetadataReader) -> Nodes:
        """Return the documents of all arrays and groups."""
        documents = self._loaded(reader)["metadata"]
        if self._nodes is None:
            leaves = [(name, each) for name, each in documents.items() if name.rpartition("/")[2] in LEAVES]
            self._nodes = gather_nodes(leaves, self.key)
        return self._nodes

    def references(self, reader: MetadataReader, path: str, wanted: Pieces) -> References:
        """Return where the chunks of a read of the array at `path` lie."""
        size = self._loaded(reader)["record_size"]
        by_file: dict[str, list[int]] = {}
        for number in numbers_of(wanted.layout.grid, wanted.chunks()).tolist():
            by_file.setdefault(join(self.key, path, f"refs.{number // size}.parq"), []).append(number)
        places: dict[int, Place] = {}
        tables = self._tables(reader, list(by_file))
        for (key, numbers), table in zip(by_file.items(), tables, strict=True):
            if table is not None:
                places |= self._places(table, key, numbers, size)
        return References.of(places)

    def take(self, document: dict[str, Any]) -> None:
        """Take in the folder's document."""
        size = document.get("record_size")
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _MOST_ROWS:
            raise MetadataError(f"{self.key!r} has record_size {shown(size)}; expected 1 to {_MOST_ROWS:,}")
        if not isinstance(document.get("metadata"), dict):
            raise MetadataError(f"{self.key!r} lacks the metadata of its arrays")
        self._metadata = document

    def _loaded(self, reader: MetadataReader) -> dict[str, Any]:
        if self._metadata is None:
            key = join(self.key, _DOCUMENT)
            data = reader.get(key)
            if data is None or _digest(data) != self._digest:
                raise ConflictError(f"the references in {self.key!r} changed meanwhile; open them again")
            self.take(parse_document(data, key))
        return self._metadata or {}

    def _tables(self, reader: MetadataReader, keys: list[str]) -> list[Any]:
        """Return the tables in these files, None for one that is not there."""
        with self._lock:
            held = {key: self._files[key] for key in keys if key in self._files}
        missing = [key for key in keys if key not in held]
        for key, data in zip(missing, reader.get_many(missing), strict=True):
            held[key] = None if data is None else _read_table(data, key)
        with self._lock:
            for key in keys:
                self._files[key] = held[key]
                self._files.move_to_end(key)
            spent = sum([_nbytes(table) for table in self._files.values()])
            while spent > _HELD_BYTES and len(self._files) > 1:
                spent -= _nbytes(self._files.popitem(last=False)[1])
        return [held[key] for key in keys]

    def _places(self, table: Any, key: str, numbers: list[int], size: int) -> dict[int, Place]:
        rows = [number % size for number in numbers]
        if max(rows) >= table.num_rows:
            raise IntegrityError(f"{key!r} has {table.num_rows:,} references; chunk {max(rows):,} of it is missing")
        some = table.take(rows)
        names = set(some.column_names)
        columns = {name: some[name].to_pylist() if name in names else [None] * len(rows) for name in _COLUMNS}
        base = self.key.rpartition("/")[0]
        places: dict[int, Place] = {}
        for number, path, offset, length, raw in zip(numbers, *(columns[name] for name in _COLUMNS), strict=True):
            place = _place(key, base, path, offset, length, raw)
            if place is not None:
                places[number] = place
        return places


def open_parquet(reader: MetadataReader, key: str) -> ParquetSet | None:
    """Return the references in the folder `key`; None if there are none."""
    data = reader.get(join(key, _DOCUMENT))
    if data is None:
        return None
    document = parse_document(data, join(key, _DOCUMENT))
    if "record_size" not in document:
        return None
    found = ParquetSet(key, _digest(data))
    found.take(document)
    return found


def _place(key: str, base: str, path: Any, offset: Any, length: Any, raw: Any) -> Place | None:
    """Return where a chunk lies, by one row of a file; None if it is not stored."""
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if raw is not None:
        return inline_bytes(raw, key)
    if path is None:
        return None
    numbers = (offset or 0, length or 0)
    if numbers == (0, 0):
        return target_name(path, base), 0, WHOLE
    if numbers[0] < 0 or numbers[1] <= 0:
        raise MetadataError(f"{key!r} refers to {numbers[1]} bytes at {numbers[0]}; expected a byte or more, from 0 on")
    return target_name(path, base), *numbers


def _read_table(data: bytes, key: str) -> Any:
    """Return the table in a Parquet file, if it is one of references and of a size that makes sense."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise UnsupportedError(_MISSING) from None
    limits = {"thrift_string_size_limit": _FOOTER_BYTES, "thrift_container_size_limit": 1 << 20, "pre_buffer": False}
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data), **limits)
        _check_file(file, key)
        names = [name for name in file.schema_arrow.names if name in _COLUMNS]
        # As dictionaries, a text that stands in many rows takes memory once.
        texts = [name for name in names if name in ("path", "raw")]
        file = parquet.ParquetFile(pyarrow.BufferReader(data), read_dictionary=texts, **limits)
        table = file.read(columns=names, use_threads=False)
        _check_types(pyarrow, table, key)
        # Arrow believes what a file says; a place beyond a dictionary's end would be read all the same.
        table.validate(full=True)
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{key!r} is no Parquet file of references: {str(error)[:200]}") from None
    return table


def _check_file(file: Any, key: str) -> None:
    """Refuse a file that would take more memory than any of references does, before it is read."""
    metadata = file.metadata
    if metadata.num_rows > _MOST_ROWS or metadata.num_columns > 64 or metadata.num_row_groups > 10_000:
        raise MetadataError(f"{key!r} claims {metadata.num_rows:,} rows; at most {_MOST_ROWS:,} are read")
    nbytes = sum([metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)])
    if nbytes > _MOST_BYTES:
        raise MetadataError(f"{key!r} claims {nbytes:,} bytes of references; at most {_MOST_BYTES:,} are read")


def _check_types(pyarrow: Any, table: Any, key: str) -> None:
    types = pyarrow.types
    for field in table.schema:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        texts = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_null(kind)
        good = types.is_integer(kind) if field.name in ("offset", "size") else texts or types.is_large_binary(kind)
        if not good or (field.name == "path" and (types.is_binary(kind) or types.is_large_binary(kind))):
            raise MetadataError(f"{key!r} has a column {field.name} of {field.type}, which no reference is")
    if not {"path", "raw"}.intersection(table.column_names):
        raise MetadataError(f"{key!r} has neither a column path nor raw")


def _nbytes(table: Any) -> int:
    return 0 if table is None else int(table.nbytes)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
