"""Plans: which arrays share a pack, in which order, and which are kept in the key/value tier as well.

A plan knows arrays by their ids, so that it stays right whatever is put, deleted or merged after it was made: arrays
that are gone are left out, and those that are newer stay where they are. It can be stored in a file, to be applied
later, or again after an interruption.
"""

import io
import os
import re
from dataclasses import dataclass
from math import prod
from typing import Any
from zipfile import ZipFile

import numpy as np
import numpy.lib.format as numpy_format
import numpy.typing as npt

from hyperslab.errors import FormatError, InvalidInputError, NotFoundError

__all__ = ["Plan", "given_plan", "load_plan"]

Ints = npt.NDArray[np.int64]

_FORMAT = 1
# Some fifty million arrays.
_MOST_BYTES = 1 << 30
_UUID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Ids of arrays, pack after pack, in the order in which they lie there.

    `packs` has the number of each array's pack, from 0 on and never falling; `keyed` says which are in the tier, too.
    `uuid` is that of the collection.
    """

    uuid: str
    ids: Ints
    packs: Ints
    keyed: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        count = len(self.ids)
        if self.packs.shape != (count,) or self.keyed.shape != (count,) or len(np.unique(self.ids)) != count:
            raise InvalidInputError("a plan has a pack for each array, and each array once")
        if count and (self.packs[0] != 0 or not np.isin(np.diff(self.packs), (0, 1)).all() or self.ids.min() < 0):
            raise InvalidInputError("the packs of a plan are numbered from 0 on, one after another")

    def __len__(self) -> int:
        return len(self.ids)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Store the plan in a file, whole or not at all."""
        data = io.BytesIO()
        np.savez_compressed(
            data, allow_pickle=False, format=np.int64(_FORMAT), uuid=np.frombuffer(bytes.fromhex(self.uuid), np.uint8),
            ids=self.ids, packs=self.packs, keyed=self.keyed,
        )  # fmt: skip
        full = os.path.expanduser(os.fspath(path))
        draft = f"{full}.{os.getpid()}.part"
        try:
            with open(draft, "xb") as file:
                file.write(data.getbuffer())
            os.replace(draft, full)
        except OSError as error:
            raise InvalidInputError(f"a plan cannot be written to {full!r}: {error.strerror}") from None


def load_plan(path: Any) -> Plan:
    """Return the plan in a file that `save` has made."""
    full = os.path.expanduser(os.fspath(path))
    try:
        with open(full, "rb") as file, ZipFile(file) as packed:
            _check_size(packed, full)
            return _read(packed, full)
    except FileNotFoundError:
        raise NotFoundError(f"there is no plan {full!r}") from None
    except OSError as error:
        raise InvalidInputError(f"{full!r} cannot be read: {error.strerror or error}") from None
    except FormatError:
        raise
    except Exception as error:  # zipfile and NumPy raise what they happen to stumble on
        raise FormatError(f"{full!r} is no plan of a collection: {error}; give a file that was saved by one") from error


def _check_size(packed: ZipFile, full: str) -> None:
    """Refuse a file that would take much memory once it is unpacked."""
    nbytes = sum(info.file_size for info in packed.infolist())
    if nbytes > _MOST_BYTES:
        raise FormatError(f"{full!r} is no plan of a collection: it would take {nbytes:,} bytes")


def _read(packed: ZipFile, full: str) -> Plan:
    stored = int(_column(packed, "format", np.int64, 0))
    if stored != _FORMAT:
        raise FormatError(f"{full!r} is a plan of format {stored}; {_FORMAT} is supported")
    uuid = bytes(_column(packed, "uuid", np.uint8, 1)).hex()
    ids, packs = _column(packed, "ids", np.int64, 1), _column(packed, "packs", np.int64, 1)
    keyed = _column(packed, "keyed", np.bool_, 1)
    if not _UUID.fullmatch(uuid):
        raise ValueError("it does not say of which collection")
    return Plan(uuid, ids, packs, keyed)


def _column(packed: ZipFile, name: str, dtype: type[Any], axes: int) -> npt.NDArray[Any]:
    """Return an array of the file.

    NumPy would take memory for all that the header claims, before it sees that the cells are not there.
    """
    data = packed.read(f"{name}.npy")
    file = io.BytesIO(data)
    if numpy_format.read_magic(file) != (1, 0):
        raise ValueError(f"its column {name!r} is of another version")
    shape, _, found = numpy_format.read_array_header_1_0(file)
    if found != dtype or len(shape) != axes or len(data) - file.tell() != prod(shape) * found.itemsize:
        raise ValueError(f"its column {name!r} is of another type or size")
    return np.frombuffer(data, found, offset=file.tell()).reshape(shape)


def given_plan(given: Any) -> Plan:
    """Return the plan that a user gives: one, advice that has one, or a file's path."""
    found = load_plan(given) if isinstance(given, str | os.PathLike) else getattr(given, "plan", given)
    if not isinstance(found, Plan):
        raise InvalidInputError(f"a plan is what `advise` gives, or the path of one that was saved, not {given!r:.80}")
    return found
