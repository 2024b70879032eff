"""One array stored in several layouts: each read goes to the copy in which it is predicted to cost least."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.array import Array
from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session
from hyperslab.opening import open
from hyperslab.plan.explain import Explanation

__all__ = ["Copies"]


class Copies:
    """Copies of one array, in different layouts or different places, read as if they were one.

    `copies` are opened arrays or URLs. That they hold the same cells is for the user to see to: only their shapes and
    types are compared. A read is planned for each copy, and made from the one whose plan costs least; it is worth it
    where plans differ by more than the planning takes (well under a millisecond for small reads).

    >>> import tempfile
    >>> import hyperslab as hs
    >>> cells = np.arange(4096, dtype="i4").reshape(64, 64)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = hs.save(folder + "/rows", cells, chunks=(1, 64), layout="plain")
    ...     columns = hs.save(folder + "/columns", cells, chunks=(64, 1), layout="plain")
    ...     both = hs.Copies([rows, columns])
    ...     both.cheapest(np.s_[:, 3]) is columns, both[5, :3]
    (True, array([320, 321, 322], dtype=int32))
    """

    def __init__(
        self,
        copies: Iterable[Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
        session: Session | None = None,
    ) -> None:
        if isinstance(copies, str) or not isinstance(copies, Iterable):
            raise InvalidInputError(f"copies are given as a list of arrays or URLs, got {copies!r}")
        self.copies = tuple(_opened(each, storage_options, session) for each in copies)
        if not self.copies:
            raise InvalidInputError("there must be a copy to read from; give one or more")
        first = self.copies[0]
        for other in self.copies[1:]:
            if (other.shape, other.dtype) != (first.shape, first.dtype):
                raise InvalidInputError(
                    f"{other.url!r} is {other.dtype} {other.shape} and {first.url!r} is {first.dtype} {first.shape}: "
                    "copies of one array have the same type and shape"
                )
        self.shape, self.dtype = first.shape, first.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of the first copy."""
        return dict(self.copies[0].attrs)

    def cheapest(self, key: Any, *, phi: float | None = None) -> Array:
        """Return the copy from which a selection is read at the least cost; the first of equals."""
        if len(self.copies) == 1:
            return self.copies[0]
        plans = [copy.explain(key, phi=phi).plan for copy in self.copies]
        costs = [plan.model.weigh(plan.estimate) for plan in plans]
        return self.copies[costs.index(min(costs))]

    def read(self, key: Any = ..., *, phi: float | None = None, **options: Any) -> Any:
        """Read a selection from the copy in which it costs least; options as for `Array.read`."""
        return self.cheapest(key, phi=phi).read(key, phi=phi, **options)

    def explain(self, key: Any = ..., *, phi: float | None = None) -> Explanation:
        """What a read would send and cost, from the copy that it would be made from."""
        return self.cheapest(key, phi=phi).explain(key, phi=phi)

    def __getitem__(self, key: Any) -> Any:
        return self.read(key)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the array is not in memory: making a NumPy array of it always copies")
        return np.asarray(self.read(...), dtype=dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-dimensional array")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<hyperslab.Copies {self.dtype} {self.shape} of {', '.join(repr(copy.url) for copy in self.copies)}>"


def _opened(copy: Any, options: Mapping[str, Any] | None, session: Session | None) -> Array:
    found = copy if isinstance(copy, Array) else open(copy, storage_options=options, session=session)
    if not isinstance(found, Array):
        raise InvalidInputError(f"{found.url!r} is a group; copies are of one array")
    return found
