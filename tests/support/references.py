"""Arrays by references: the chunks of a stored array put elsewhere, several to an object, whole, or inline."""

import base64
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hyperslab as hs
from hyperslab.array import wrap
from hyperslab.layout import WHOLE, Place, References, numbers_of
from hyperslab.store import locate, memory

WAYS = ("inline", "whole", "packed", "elsewhere")


@dataclass
class Chunks:
    """Gives the references of a read's chunks, as formats do; remembers which were asked for."""

    places: dict[int, Place]
    etags: dict[str, str] = field(default_factory=dict)
    asked: list[list[int]] = field(default_factory=list)

    def lookup(self, reader, wanted):
        numbers = numbers_of(wanted.layout.grid, wanted.chunks()).tolist()
        self.asked.append(numbers)
        return References.of({n: self.places[n] for n in numbers if n in self.places}, self.etags)


def chunk_bytes(path: Path) -> dict[tuple[int, ...], bytes]:
    """Return the stored bytes of each chunk of an array that has no shards, by its place in the grid."""
    layout = hs.open(path).source.layout
    files = {at: path / layout.keys.key(at) for at in np.ndindex(*layout.grid)}
    return {at: file.read_bytes() for at, file in files.items() if file.is_file()}


def scatter(chunks: dict, grid: tuple[int, ...], ways: list[str], put) -> dict[int, Place]:
    """Put chunks where `ways` say, in turn: `put(name, data)` stores an object and returns its name."""
    places: dict[int, Place] = {}
    packs: dict[str, bytearray] = {"packed": bytearray(b"head"), "elsewhere": bytearray()}
    late: list[tuple[int, str, int, int]] = []
    for turn, (at, data) in enumerate(sorted(chunks.items(), key=lambda each: hash(each[0]))):
        number, way = int(numbers_of(grid, [at])[0]), ways[turn % len(ways)]
        if way == "inline":
            places[number] = data
        elif way == "whole":
            places[number] = (put(f"whole-{number}", data), 0, WHOLE)
        else:
            late.append((number, way, len(packs[way]), len(data)))
            packs[way] += data + b"gap" * (turn % 3)
    for way, data in packs.items():
        name = put(way, bytes(data) + b"end")
        places |= {number: (name, low, size) for number, each, low, size in late if each == way}
    return places


def by_references(path: Path, places: dict[int, Place], url: str, session: hs.Session | None = None, **options):
    """Open a stored array so that its chunks are read by references in the store at `url`."""
    session = session or hs.Session()
    store, _ = locate(url, options or None)
    source = replace(hs.open(path).source, url=url, chunks=Chunks(places))
    return wrap(source, store, session)


def in_memory(name: str, folder: str):
    """Return what stores objects in a folder of `memory://name`; they are called by their keys."""
    store = memory(name)

    def put(key: str, data: bytes) -> str:
        store.put(f"{folder}/{key}", data)
        return f"{folder}/{key}"

    return put


def as_json(path: Path, places: dict[int, Place], *, version: int = 1, templates: dict | None = None) -> str:
    """Return a reference file of kerchunk for one array of Zarr v2, called `a`, in a group."""
    layout = hs.open(path).source.layout
    refs: dict[str, object] = {".zgroup": '{"zarr_format": 2}', "a/.zarray": (path / ".zarray").read_text()}
    if (path / ".zattrs").is_file():
        refs["a/.zattrs"] = json.loads((path / ".zattrs").read_text())
    for at in np.ndindex(*layout.grid):
        place = places.get(int(numbers_of(layout.grid, [at])[0]))
        if place is not None:
            refs["a/" + layout.keys.key(at)] = as_entry(place)
    return json.dumps(refs if version == 0 else {"version": 1, "templates": templates or {}, "refs": refs})


def as_entry(place: Place) -> object:
    """Return a place as kerchunk writes it."""
    if not isinstance(place, bytes):
        return [place[0]] if place[2] == WHOLE else list(place)
    try:
        text = place.decode("ascii")
        return "base64:" + base64.b64encode(place).decode() if text.startswith("base64:") else text
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(place).decode()


def write_parquet(folder: Path, path: Path, places: dict[int, Place], record_size: int) -> None:
    """Write the same references as a folder of Parquet files."""
    layout = hs.open(path).source.layout
    folder.mkdir(parents=True)
    metadata = {".zgroup": {"zarr_format": 2}, "a/.zarray": json.loads((path / ".zarray").read_text())}
    (folder / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": record_size}))
    (folder / "a").mkdir()
    for first in range(0, int(np.prod(layout.grid)), record_size):
        rows = [places.get(number) for number in range(first, first + record_size)]
        if any(row is not None for row in rows):
            pq.write_table(reference_table(rows), folder / "a" / f"refs.{first // record_size}.parq")


def reference_table(rows: list[Place | None]) -> pa.Table:
    """Return the table of one file of references."""
    lying = [row if isinstance(row, tuple) else (None, 0, 0) for row in rows]
    whole = [(path, 0, 0) if length == WHOLE else (path, low, length) for path, low, length in lying]
    return pa.table(
        {
            "path": pa.array([path for path, _, _ in whole], pa.string()),
            "offset": pa.array([low for _, low, _ in whole], pa.int64()),
            "size": pa.array([length for _, _, length in whole], pa.int64()),
            "raw": pa.array([row if isinstance(row, bytes) else None for row in rows], pa.binary()),
        }
    )
