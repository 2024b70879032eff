"""Opening a tensor table. What it needs beside NumPy is loaded once one is opened."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.execute import Session, check_kind, default_session

if TYPE_CHECKING:
    from hyperslab.tensors.table import TensorTable

__all__ = ["tensor_table"]


def tensor_table(
    url: str | os.PathLike[str],
    mode: Literal["r", "a"] = "a",
    *,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
    patience_s: float = 60.0,
) -> "TensorTable":
    """Open the tensor table at `url`; URL and options as for `hs.open`.

    mode        "a": to be read and changed, the first put makes the table; "r": to be read, it has to be there
    patience_s  how long a commit may be tried, when others commit at the same time

    >>> import tempfile, numpy as np, hyperslab as hs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     t = hs.tensor_table(folder + "/t")
    ...     id = t.put(np.arange(12).reshape(3, 4), metadata={"city": "Rome"})
    ...     t[id][1, ::2], t.list({"city": "Rome"}).column("shape").to_pylist()
    (array([4, 6]), [[3, 4]])
    """
    if mode not in ("r", "a"):
        raise InvalidInputError(f"mode is 'r' or 'a', not {mode!r:.40}")
    check_kind("session", session, Session)
    try:
        from hyperslab.tensors.place import locate_table
        from hyperslab.tensors.table import open_table
    except ImportError as error:
        raise UnsupportedError(f"tensor tables need more: pip install 'hyperslab[tensors]' ({error})") from None
    place = locate_table(url, storage_options, default_session() if session is None else session)
    return open_table(place, mode, patience_s)
