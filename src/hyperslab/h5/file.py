"""Files: what is at a URL, opened as h5py opens a file."""

import os
import posixpath
from collections.abc import Mapping
from typing import Any

from hyperslab.array import Array, Group
from hyperslab.collections import Collection, collection
from hyperslab.errors import HyperslabError, InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.execute import Session
from hyperslab.h5.collection_tree import CollectionTree
from hyperslab.h5.failures import FileThereError, NoFileError, WrongKindError
from hyperslab.h5.group import Group as H5Group
from hyperslab.h5.hdf5_tree import Hdf5Tree
from hyperslab.h5.nodes import GroupNode, Tree
from hyperslab.h5.notes import NOTES
from hyperslab.h5.zarr_tree import ZarrTree
from hyperslab.new import create_group
from hyperslab.opening import open

__all__ = ["File", "is_hdf5"]

_MODES = ("r", "r+", "w", "w-", "x", "a")


class File(H5Group):
    """A file of h5py's kind: an HDF5 file, a Zarr group or a collection, on disk, on S3 or elsewhere.

    name   a path or URL as for `hs.open`; or an opened `hs.Collection` or `hs.Group`
    mode   "r": to be read; "r+": also to be changed; "a": the same, made where there is none; "w": made anew, what
           was there is deleted; "w-" or "x": made, it is an error if there is one

    HDF5 files and collections are only read. What is made is a Zarr group, whatever its name ends with. Settings of
    HDF5's own (driver, libver, caches, locking) are taken and change nothing.

    >>> import hyperslab.h5 as h5py
    >>> with h5py.File("memory://files/doc.h5", "w") as f:
    ...     f["x"] = [1, 2, 3]
    ...     f["x"].attrs["units"] = "m"
    >>> with h5py.File("memory://files/doc.h5") as f:
    ...     f["x"][1:], f["x"].attrs["units"], f.mode
    (array([2, 3]), 'm', 'r')
    """

    def __init__(
        self,
        name: Any,
        mode: str = "r",
        *args: Any,
        storage_options: Mapping[str, Any] | None = None,
        session: Session | None = None,
        track_order: bool | None = None,
        **settings: Any,
    ) -> None:
        if mode not in _MODES:
            raise InvalidInputError(f"mode is one of {', '.join(map(repr, _MODES))}, not {mode!r:.40}")
        self._reach: dict[str, Any] = {"storage_options": storage_options, "session": session}
        tree = _tree_of(name, mode, self._reach, ordered=bool(track_order))
        tree.file = self
        root = tree.open("")
        assert isinstance(root, GroupNode)
        super().__init__(tree, root)
        self._swmr = bool(settings.get("swmr"))
        self._given = name
        self._beside: dict[str, Tree] = {}

    @property
    def filename(self) -> str:
        """Where the file is."""
        return self._tree.url

    @property
    def mode(self) -> str:
        """Whether it can be changed ("r+") or only read ("r")."""
        self._check_open()
        return "r+" if self._tree.writable else "r"

    @property
    def driver(self) -> str:
        """What reaches the bytes."""
        return "hyperslab"

    @property
    def swmr_mode(self) -> bool:
        """Whether it was opened to be read while another writes: that is always possible, and changes nothing."""
        return self._swmr

    libver = ("earliest", "latest")
    userblock_size = 0
    meta_block_size = 0

    def close(self) -> None:
        """Close the file and all objects of it. Everything was stored when it was assigned."""
        self._tree.closed = True

    def flush(self) -> None:
        """Do nothing: what was assigned is stored."""
        self._check_open()

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 file>"
        return f'<HDF5 file "{posixpath.basename(self.filename.rstrip("/"))}" (mode {self.mode})>'

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return _opened_again, (self._given, self.mode, self._reach)

    def open_beside(self, name: str) -> Tree:
        """Return the tree of the file that an external link names, from where this one is."""
        url = _beside(self.filename, name)
        if url not in self._beside or self._beside[url].closed:
            self._beside[url] = File(url, self.mode, **self._reach)._tree
        return self._beside[url]


def _opened_again(name: Any, mode: str, reach: Mapping[str, Any]) -> File:
    return File(name, mode, **reach)


def is_hdf5(name: Any, **reach: Any) -> bool:
    """Whether there is something that `File` opens."""
    try:
        File(name, **reach).close()
        return True
    except (HyperslabError, OSError):
        return False


def _tree_of(name: Any, mode: str, reach: Mapping[str, Any], *, ordered: bool) -> Tree:
    if isinstance(name, Collection):
        return _only_read(CollectionTree(name), mode)
    if isinstance(name, Group):
        return _group_tree(name, mode) if name.source.part is None else _only_read(Hdf5Tree(name), mode)
    url = _url_of(name)
    found = _found(url, "r+" if mode in ("r+", "a") else "r", reach)
    if found is not None and mode in ("w-", "x"):
        raise FileThereError(f"there is something at {url!r} already; mode 'a' opens it, 'w' replaces it")
    if mode == "w" and isinstance(found, Hdf5Tree | CollectionTree):
        raise FileThereError(f"{url!r} is no Zarr group, and is not replaced by one; delete it, or choose another name")
    if found is None or mode == "w":
        if mode in ("r", "r+"):
            raise NoFileError(f"there is nothing at {url!r} that can be opened; mode 'a' or 'w' makes a Zarr group")
        return ZarrTree(_made(url, reach, ordered=ordered, overwrite=mode == "w"))
    return found if isinstance(found, ZarrTree) else _only_read(found, mode)


def _group_tree(group: Group, mode: str) -> Tree:
    if mode not in ("r", "r+", "a") or (mode != "r" and not group.writable):
        raise InvalidInputError(
            f"{group.url!r} is opened already, and cannot be opened with mode {mode!r}; use its URL"
        )
    tree = ZarrTree(group)
    tree.writable = mode != "r"
    return tree


def _made(url: str, reach: Mapping[str, Any], *, ordered: bool, overwrite: bool) -> Group:
    attrs = {NOTES: {"ordered": True}} if ordered else None
    return create_group(url, attrs=attrs, overwrite=overwrite, **reach)


def _found(url: str, mode: Any, reach: Mapping[str, Any]) -> Tree | None:
    """Return what is at a URL, None if nothing is."""
    try:
        opened = open(url, "r", **reach)
        if isinstance(opened, Group) and opened.source.part is None and mode == "r+":
            opened = open(url, "r+", **reach)
    except NotFoundError:
        return _collection(url, reach)
    if isinstance(opened, Array):
        raise UnsupportedError(f"{url!r} is an array, no file of several; open its group, or use hs.open")
    return ZarrTree(opened) if opened.source.part is None else Hdf5Tree(opened)


def _collection(url: str, reach: Mapping[str, Any]) -> Tree | None:
    try:
        return CollectionTree(collection(url, **reach))
    except NotFoundError:
        return None


def _only_read(tree: Tree, mode: str) -> Tree:
    # Mode "a" is h5py's way of saying "whatever is possible" in many scripts that only read.
    if mode not in ("r", "a"):
        raise UnsupportedError(
            f"{tree.url!r} is an HDF5 file or a collection, which is only read here; open it with mode 'r', "
            "or copy it to a Zarr group by hs.copy"
        )
    return tree


def _beside(url: str, name: str) -> str:
    """Return the place that a file at `url` calls `name`, which may be written by anyone: it must be in its store.

    >>> _beside("s3://bucket/runs/a.h5", "../b.h5"), _beside("/data/a.h5", "b.h5")
    ('s3://bucket/b.h5', '/data/b.h5')
    """
    scheme, slashes, rest = url.rpartition("://")
    store, _, path = rest.partition("/")
    if not slashes:
        if "://" not in name:
            return name if os.path.isabs(name) else os.path.join(os.path.dirname(url), name)
    elif name.startswith(f"{scheme}://{store}/"):
        return name
    elif "://" not in name and not name.startswith("/"):
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(path.rstrip("/")), name))
        if not inside.startswith(".."):
            return f"{scheme}://{store}/{inside}"
    raise UnsupportedError(f"a link of {url!r} leads out of its store, to {name!r}, and is not followed; open it there")


def _url_of(name: Any) -> str:
    if isinstance(name, bytes):
        return os.fsdecode(name)
    if isinstance(name, str | os.PathLike):
        return os.fspath(name)
    raise WrongKindError(f"a file is opened by its path or URL, not from {type(name).__name__}; use h5py for that")
