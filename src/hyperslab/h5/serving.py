"""h5py itself, for a while, with some of its files served by Hyperslab: those at URLs, and those below mapped paths.

The names in the module `h5py` that make files, and that objects are compared with, are replaced by ones that know both
kinds. So a script that knows nothing of it opens `s3://…` by `h5py.File`, and `isinstance(found, h5py.Dataset)` holds.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import h5py

from hyperslab.execute import Session
from hyperslab.h5.attributes import AttributeManager
from hyperslab.h5.dataset import Dataset
from hyperslab.h5.file import File, is_hdf5
from hyperslab.h5.group import Group
from hyperslab.h5.handles import Datatype

__all__ = ["mapped_url", "served"]

_URL = re.compile(r"(?:s3|az|azure|abfss?|gs|gcs|https?|memory|file)://", re.IGNORECASE)


@contextmanager
def served(
    maps: Mapping[str, str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Iterator[None]:
    """Have `h5py.File` open URLs, and paths that `maps` gives URLs for, through Hyperslab until the `with` block ends.

    maps   paths, of directories or files, and the URLs that stand for them; the longest that fits counts

    >>> import h5py
    >>> with served({"/data": "memory://served"}):
    ...     with h5py.File("/data/a.h5", "w") as f:
    ...         f["x"] = [1, 2]
    ...     isinstance(f, h5py.File), h5py.File("memory://served/a.h5")["x"][:]
    (True, array([1, 2]))
    """
    places = {os.path.abspath(path): url for path, url in (maps or {}).items()}
    reach: dict[str, Any] = {"storage_options": storage_options, "session": session}

    def opened(name: Any, *args: Any, **settings: Any) -> Any:
        url = mapped_url(name, places)
        return None if url is None else File(url, *args, **{**settings, **reach})

    def is_file(name: Any) -> bool:
        url = mapped_url(name, places)
        return bool(real["is_hdf5"](name)) if url is None else is_hdf5(url, **reach)

    ours = {"Group": Group, "Dataset": Dataset, "Datatype": Datatype, "AttributeManager": AttributeManager}
    real = {name: getattr(h5py, name) for name in ("File", "is_hdf5", *ours)}
    try:
        for name, kind in ours.items():
            setattr(h5py, name, _stand_in(real[name], kind))
        h5py.File = _stand_in(real["File"], File, opened)
        h5py.is_hdf5 = is_file
        yield
    finally:
        for name, value in real.items():
            setattr(h5py, name, value)


def mapped_url(name: Any, places: Mapping[str, str]) -> str | None:
    """Return the URL of a file that is to be served, None for one that is h5py's.

    >>> mapped_url("/data/run/a.h5", {"/data": "s3://bucket/all"}), mapped_url("/database/a.h5", {"/data": "s3://b"})
    ('s3://bucket/all/run/a.h5', None)
    """
    if not isinstance(name, str | bytes | os.PathLike):
        return None
    text = os.fsdecode(name)
    if _URL.match(text):
        return text
    full = os.path.abspath(text)
    for path in sorted(places, key=len, reverse=True):
        if full == path or full.startswith(path.rstrip("/") + "/"):
            rest = full[len(path) :].lstrip("/")
            return places[path].rstrip("/") + "/" + rest if rest else places[path]
    return None


def _stand_in(real: Any, ours: type, opened: Any = None) -> Any:
    """Return a class in place of one of h5py's: it makes what that makes, and counts objects of ours to itself."""

    class Either(type(real)):  # type: ignore[misc]
        def __instancecheck__(cls, found: object) -> bool:
            return cls.__subclasscheck__(type(found))

        def __subclasscheck__(cls, kind: type) -> bool:
            # By the bases alone: the abstract classes above this one ask all classes below them.
            return not {cls, real, ours}.isdisjoint(kind.__mro__) if cls is made else cls in kind.__mro__

    def new(cls: type, *args: Any, **settings: Any) -> Any:
        found = None if opened is None or not (args or settings) else opened(*args, **settings)
        return object.__new__(cls) if found is None else found

    names = {"__module__": "h5py", "__doc__": real.__doc__}
    made: Any = Either(real.__name__, (real,), names if opened is None else {**names, "__new__": new})
    return made
