"""Importing: what lies in a directory, an HDF5 file or a Zarr group, as items that a collection can put.

Items come one by one, so that memory holds one array at a time, and none of more than `most_bytes`: what is larger is
refused by what its header says, before it is read.
"""

import io
import os
import stat
from collections.abc import Collection as Several
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.collections.columns import MAX_TEXT_BYTES
from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError, UnsupportedError
from hyperslab.execute import Options, Result, Session, Snapshot, StoreReader, check_kind, default_session, read
from hyperslab.formats import locate_chunks, member_names, open_member, open_source
from hyperslab.formats.source import ArraySource, GroupSource
from hyperslab.selection import Selection, Span
from hyperslab.store import LocalStore, Store, locate

__all__ = ["IMAGE_SUFFIXES", "Item", "items_from"]

Item = tuple[str, npt.NDArray[Any], dict[str, Any]]

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Only what Pillow decodes by itself: for some other formats it starts programs.
_IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MISSING = (
    "images need Pillow; install it with: pip install 'hyperslab[collections]', or leave them out by images=False"
)
_MOST_BYTES = 256 << 20
_MOST_DEPTH = 64
_ZARR = ("zarr.json", ".zgroup", ".zarray")


def items_from(
    url: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
    columns: Several[str] | None = None,
    images: bool = True,
    most_bytes: int = _MOST_BYTES,
) -> Iterator[Item]:
    """Yield name, array and attributes of all that is stored at `url`.

    A directory gives its `.npy` files, and images by Pillow, under their paths; links that lead out of it are left
    out. An HDF5 file or a Zarr group gives all its arrays under their paths, with those of their attributes that are
    single values.

    columns     the attributes to take; all of them by default
    images      whether images are taken
    most_bytes  how large an array may be

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/b.npy", np.arange(3))
    ...     list(items_from(folder))
    [('b.npy', array([0, 1, 2]), {})]
    """
    check_kind("session", session, Session)
    if type(most_bytes) is not int or most_bytes < 1:
        raise InvalidInputError(f"most_bytes is how large an array may be, not {most_bytes!r:.80}")
    store, path = locate(url, storage_options)
    opener = _Importer(store, default_session() if session is None else session, most_bytes, columns)
    if isinstance(store, LocalStore) and not path and not any([os.path.exists(f"{store.root}/{n}") for n in _ZARR]):
        return opener.directory(store.root, images)
    return opener.stored(str(url), path)


class _Importer:
    """Reads whole arrays of one store."""

    def __init__(self, store: Store, session: Session, most_bytes: int, columns: Several[str] | None) -> None:
        self.store, self.session, self.most_bytes, self.columns = store, session, most_bytes, columns
        self.reader = StoreReader(session, store)

    def directory(self, root: str, images: bool) -> Iterator[Item]:
        """Yield the arrays of files below a directory, folder by folder."""
        suffixes = (".npy", *IMAGE_SUFFIXES) if images else (".npy",)
        for key in _files(root, suffixes):
            name = os.fsencode(key).decode("utf-8", "backslashreplace")
            if key.lower().endswith(".npy"):
                yield name, self._npy(root, key), {}
            else:
                yield name, self._image(key), {}

    def stored(self, url: str, path: str) -> Iterator[Item]:
        """Yield the array at a path, or those of the group there and of all groups below it."""
        found = open_source(self.reader, url, path)
        if isinstance(found, ArraySource):
            yield url.rstrip("/").rpartition("/")[2], self._cells(found), self._attrs(found)
        else:
            yield from self._members(found, "", 0, set())

    def _members(self, group: GroupSource, lead: str, depth: int, seen: set[int]) -> Iterator[Item]:
        if depth > _MOST_DEPTH:
            raise UnsupportedError(
                f"{group.url!r} is more than {_MOST_DEPTH} groups deep; import its members one by one"
            )
        if group.part is not None and group.part.address is not None:
            # In a file several paths can lead to one group, also back up.
            if group.part.address in seen:
                return
            seen.add(group.part.address)
        for name in member_names(self.reader, group):
            member = open_member(self.reader, group, name)
            if isinstance(member, ArraySource):
                yield lead + name, self._cells(member), self._attrs(member)
            else:
                yield from self._members(member, f"{lead}{name}/", depth + 1, seen)

    def _npy(self, root: str, key: str) -> npt.NDArray[Any]:
        found = open_source(self.reader, os.path.join(root, key), key)
        if not isinstance(found, ArraySource):
            raise MetadataError(f"{key!r} in {root!r} is no array")
        return self._cells(found)

    def _cells(self, source: ArraySource) -> npt.NDArray[Any]:
        """Read a whole array."""
        self._check_size(source.url, source.layout.nbytes)
        shape = source.layout.shape
        selection = Selection(shape, tuple([Span(0, n) for n in shape]), tuple(range(len(shape))))
        source, layout = locate_chunks(self.reader, source, selection)
        result = Result(source.url, self.store, layout, Snapshot(), selection, None)
        read(self.session, (result.task,), Options())
        cells = np.asarray(source.resolve(self.reader, result.get()))
        return self._fixed(source.url, cells) if cells.dtype.hasobject else cells

    def _fixed(self, url: str, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return strings of any lengths as strings of one length."""
        kinds = {type(cell) for cell in cells.flat}
        if not kinds <= {str} and not kinds <= {bytes}:
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise UnsupportedError(f"{url!r} has cells of variable length ({found}); only strings can be imported")
        longest = max([len(cell) for cell in cells.flat], default=1)
        self._check_size(url, cells.size * max(1, longest) * (1 if kinds == {bytes} else 4))
        fixed = cells.astype(f"S{max(1, longest)}" if kinds == {bytes} else f"U{max(1, longest)}")
        if any([kept != cell for kept, cell in zip(fixed.flat, cells.flat, strict=True)]):
            raise UnsupportedError(f"{url!r} has strings that end with NUL, which would be lost")
        return fixed

    def _image(self, key: str) -> npt.NDArray[Any]:
        """Decode an image, if its header says that it is small enough; of several in a file, the first."""
        try:
            from PIL import Image
        except ImportError:
            raise InvalidInputError(_MISSING) from None
        data = self.reader.get(key)
        if data is None:
            raise IntegrityError(f"{key!r} was removed while its directory was imported")
        try:
            with Image.open(io.BytesIO(data), formats=_IMAGE_FORMATS) as image:
                self._check_size(key, prod(image.size) * _pixel_bytes(image.mode))
                shown = image.convert("RGBA" if image.has_transparency_data else "RGB") if "P" in image.mode else image
                return np.asarray(shown).copy()
        except (UnsupportedError, MemoryError):
            raise
        except Image.DecompressionBombError as error:
            raise UnsupportedError(f"{key!r} is refused: {error}") from None
        except Exception as error:  # Pillow raises what it happens to stumble on
            raise IntegrityError(f"{key!r} is no image that can be read: {error}") from error

    def _check_size(self, name: str, nbytes: int) -> None:
        if nbytes > self.most_bytes:
            raise UnsupportedError(
                f"{name!r} has {nbytes:,} bytes; arrays of {self.most_bytes:,} at most are imported, by most_bytes"
            )

    def _attrs(self, source: ArraySource) -> dict[str, Any]:
        """Return the attributes that are single values, as a collection can have them."""
        found = {}
        for name, value in source.attrs.items():
            if self.columns is not None and name not in self.columns:
                continue
            single = _single(value)
            if single is not None and name.isprintable() and 0 < len(name) <= 256:
                found[name] = single
        return found


def _files(root: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths of files below a directory, folder by folder; links to folders, and out of it, are left out."""
    inside = os.path.join(os.path.realpath(root), "")
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            found = sorted(entries, key=lambda entry: entry.name, reverse=True)
        folders = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        for entry in reversed(found):
            if entry.name.lower().endswith(suffixes) and _is_file_inside(entry.path, inside):
                yield os.path.join(folder, entry.name)
        waiting += [os.path.join(folder, entry.name) for entry in folders]


def _is_file_inside(path: str, inside: str) -> bool:
    """Whether a path, or what it is a link to, is a plain file below a directory."""
    try:
        return os.path.realpath(path).startswith(inside) and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _pixel_bytes(mode: str) -> int:
    """Return at most how many bytes a decoded pixel takes: four samples, of four bytes where they are wide.

    >>> _pixel_bytes("RGB"), _pixel_bytes("F")
    (4, 4)
    """
    return 4 if len(mode) > 1 or mode in "FIP" else 1


def _single(value: Any) -> Any:
    """Return an attribute if it is one value that a column can hold, else None."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        text = value.encode("utf-8", "replace")
        return value if len(text) <= MAX_TEXT_BYTES and value == text.decode() else None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value if isinstance(value, bool | int | float) else None
