"""Reference sets in one JSON file: kerchunk's versions 0 and 1."""

import json
from hashlib import blake2b
from typing import Any

from hyperslab.errors import ConflictError, MetadataError, UnsupportedError
from hyperslab.formats.references.entries import as_place, check_templates, inline_bytes
from hyperslab.formats.references.sets import LEAVES, Nodes, gather_nodes
from hyperslab.formats.source import MetadataReader, parse_document
from hyperslab.formats.zarr.metadata import shown
from hyperslab.layout import Place, References, numbers_of
from hyperslab.plan import Pieces

__all__ = ["JsonSet", "open_json"]


class JsonSet:
    """The references of one JSON file. It holds all of them; a copy in another process reads the file again."""

    def __init__(self, key: str, digest: bytes) -> None:
        self.key, self._digest = key, digest
        self._refs: dict[str, Any] | None = None
        self._templates: dict[str, str] = {}
        self._nodes: Nodes | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonSet, (self.key, self._digest)

    def nodes(self, reader: MetadataReader) -> Nodes:
        """Return the documents of all arrays and groups."""
        refs = self._loaded(reader)
        if self._nodes is None:
            leaves = [name for name in refs if name.rpartition("/")[2] in LEAVES]
            self._nodes = gather_nodes([(name, self._document(name, refs[name])) for name in leaves], self.key)
        return self._nodes

    def references(self, reader: MetadataReader, path: str, wanted: Pieces) -> References:
        """Return where the chunks of a read of the array at `path` lie; what the grid has no place for is not seen."""
        refs, keys, base = self._loaded(reader), wanted.layout.keys, self.key.rpartition("/")[0]
        chunks = list(wanted.chunks())
        places: dict[int, Place] = {}
        for number, chunk in zip(numbers_of(wanted.layout.grid, chunks).tolist(), chunks, strict=True):
            entry = refs.get(key := keys.key(chunk))
            if entry is not None:
                places[number] = as_place(entry, key, base, self._templates)
        return References.of(places)

    def take(self, document: dict[str, Any]) -> None:
        """Take in the file's contents."""
        version = document.get("version")
        if version is None:
            self._refs = document
            return
        if version not in (0, 1) or isinstance(version, bool) or not isinstance(document.get("refs"), dict):
            raise UnsupportedError(f"{self.key!r} has references of version {shown(version)}; supported are 0 and 1")
        if document.get("gen"):
            raise UnsupportedError(f"{self.key!r} has references that are to be generated ('gen'); write them out")
        self._refs, self._templates = document["refs"], check_templates(document.get("templates") or {})

    def _loaded(self, reader: MetadataReader) -> dict[str, Any]:
        if self._refs is None:
            data = reader.get(self.key)
            if data is None or _digest(data) != self._digest:
                raise ConflictError(f"the references in {self.key!r} changed meanwhile; open them again")
            self.take(parse_document(data, self.key))
        return self._refs or {}

    def _document(self, name: str, entry: Any) -> Any:
        """Return a document of Zarr, which is the text of JSON, or JSON itself."""
        if not isinstance(entry, str):
            return entry
        if entry.startswith("base64:"):
            entry = inline_bytes(entry.encode("utf-8", "surrogatepass"), name)
        try:
            return json.loads(entry)
        except (ValueError, RecursionError) as error:
            raise MetadataError(f"{name!r} of {self.key!r} is not JSON: {error}") from None


def open_json(reader: MetadataReader, key: str) -> JsonSet | None:
    """Return the references in the file `key`; None if there is no such file, or nothing like references is in it."""
    data = reader.get(key)
    if data is None or data.lstrip()[:1] != b"{":
        return None
    document = parse_document(data, key)
    found = JsonSet(key, _digest(data))
    if "version" not in document and not any(name.rpartition("/")[2] in LEAVES for name in document):
        return None
    found.take(document)
    return found


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
