"""A dataset whose samples are boxes of stored arrays; a batch of them is read by one plan."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset, get_worker_info

from hyperslab.array import Array, read_many
from hyperslab.errors import InvalidInputError, SelectionError
from hyperslab.execute import Session
from hyperslab.torch.boxes import Boxes, boxes_of
from hyperslab.torch.shares import take_share
from hyperslab.torch.tensors import as_tensors

__all__ = ["SlabDataset"]

Ints = npt.NDArray[np.int64]
Arrays = Array | Sequence[Array] | Mapping[str, Array]


class SlabDataset(Dataset[Any]):
    """Boxes of arrays as the samples of a map-style dataset.

    arrays     one array; or several under names: a sample is then a dict of what each of them has in the sample's
               box; or a list of arrays: a box is then a pair, which array and which of its cells
    boxes      a sequence of keys, as one would index the array with; or the numbers of rows, as a range or an array;
               or an array of whole numbers of shape (samples, axes, 2) with the start and stop on each axis, which
               suits millions of boxes; for arrays under names also a dict of these, one for each
    transform  called with each sample as it was read, in NumPy arrays (default: makes tensors of them; None: nothing)
    targets    what else belongs to each sample: samples are then pairs (sample, target)

    All arrays must have been opened in one session. The dataset works with PyTorch's own DataLoader as well, which
    asks for a batch at a time (`__getitems__`); `SlabLoader` reads ahead, shares budgets and resumes.

    >>> import hyperslab as hs
    >>> rows = hs.save("memory://torch/rows", np.arange(12).reshape(4, 3))
    >>> dataset = SlabDataset(rows, range(4), targets=["a", "b", "a", "b"])
    >>> len(dataset), dataset[2]
    (4, (tensor([6, 7, 8]), 'a'))
    """

    def __init__(
        self,
        arrays: Arrays,
        boxes: Any,
        *,
        transform: Callable[[Any], Any] | None = as_tensors,
        targets: Sequence[Any] | None = None,
    ) -> None:
        self.transform, self.targets = transform, targets
        self.names: list[str] | None = list(arrays) if isinstance(arrays, Mapping) else None
        self.arrays = _checked(arrays)
        # Where arrays are in a list: the array of each sample, and its place among the samples of that array.
        self._places: tuple[Ints, Ints] | None = None
        self.parts = self._parts(arrays, boxes)
        self._length = self._counted()
        self._check_lengths()
        self._process = os.getpid()

    @property
    def session(self) -> Session:
        """The session that all arrays were opened in."""
        return self.arrays[0].session

    @property
    def nbytes(self) -> Ints:
        """The bytes of each sample as it is read."""
        if self._places is not None:
            return self._gathered([part.nbytes for part in self.parts])
        total: Ints = np.sum([part.nbytes for part in self.parts], axis=0, dtype=np.int64)
        return total

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, sample: int) -> Any:
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[Any]:
        """Return samples that are read by one plan: chunks that they share are fetched and decoded once."""
        self.take_share()
        return self.finish(samples, self.read(samples))

    def take_share(self) -> None:
        """In a worker of PyTorch's own DataLoader, leave the other workers their shares of the session's budget."""
        info = get_worker_info()
        if info is not None and self._process != os.getpid():
            take_share(self.session, info.num_workers)
            self._process = os.getpid()

    def read(self, samples: Sequence[int]) -> list[Any]:
        """Return samples as they are stored, in NumPy arrays, by one plan."""
        wanted = [self.selections(self._number(sample)) for sample in samples]
        pairs = [(self.arrays[array], selection) for each in wanted for array, selection in each]
        cells = iter(read_many(pairs))
        return [self.assemble([next(cells) for _ in each]) for each in wanted]

    def finish(self, samples: Sequence[int], read: list[Any]) -> list[Any]:
        """Apply the transform and add the targets; gives up the samples as they were read, one by one."""
        finished = []
        for number, sample in enumerate(samples):
            found, read[number] = read[number], None
            found = found if self.transform is None else self.transform(found)
            finished.append(found if self.targets is None else (found, self.targets[self._number(sample)]))
        return finished

    def selections(self, sample: int) -> list[tuple[int, Any]]:
        """Return what a sample consists of: the number of the array and the selection, for each part."""
        return [(array, self.parts[array].selection(place)) for array, place in self.places(sample)]

    def places(self, sample: int) -> list[tuple[int, int]]:
        """Return for each part of a sample its array, and the place among the boxes of that array."""
        if self._places is None:
            return [(array, sample) for array in range(len(self.parts))]
        return [(int(self._places[0][sample]), int(self._places[1][sample]))]

    def boxes_in(self, array: int, samples: Ints) -> tuple[Ints, Ints]:
        """Return which of the samples have a part in an array, and the places of these among its boxes."""
        if self._places is None:
            return np.arange(len(samples)), samples
        which, place = (each[samples] for each in self._places)
        found = np.flatnonzero(which == array)
        return found, place[found]

    def assemble(self, cells: list[Any]) -> Any:
        """Return the sample that has these cells in its parts."""
        return cells[0] if self.names is None else dict(zip(self.names, cells, strict=True))

    def blocks(self) -> Ints:
        """Return for each sample the number of the chunk that its first cell lies in, counted over all arrays.

        Of arrays under names the first one decides. Chunks that no sample begins in are not counted, others in the
        order in which they lie in their array.
        """
        several = self._places is not None
        chunks = [_chunks_of(array, part) for array, part in zip(self.arrays, self.parts, strict=True)]
        if several:
            width = max(each.shape[1] for each in chunks)
            wide = [np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in chunks]
            first = np.column_stack([self._places[0], self._gathered(wide)])  # type: ignore[index]
        else:
            first = chunks[0]
        if not first.shape[1] or not len(first):
            return np.zeros(len(self), np.int64)
        return np.unique(first, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def _parts(self, arrays: Arrays, boxes: Any) -> list[Boxes]:
        if isinstance(arrays, Array):
            return [boxes_of(arrays, boxes)]
        if self.names is None:
            return self._apart(boxes)
        if not isinstance(boxes, Mapping):
            return [boxes_of(array, boxes) for array in self.arrays]
        if set(boxes) != set(self.names):
            raise InvalidInputError(f"boxes are for {sorted(boxes)}, the arrays are {sorted(self.names)}")
        return [boxes_of(array, boxes[name]) for name, array in zip(self.names, self.arrays, strict=True)]

    def _apart(self, boxes: Any) -> list[Boxes]:
        """Give each array of a list its boxes."""
        keys: list[list[Any]] = [[] for _ in self.arrays]
        which, place = [], []
        for number, box in enumerate(boxes):
            if not isinstance(box, tuple) or len(box) != 2 or not _is_number(box[0], len(keys)):
                raise InvalidInputError(
                    f"with a list of {len(keys)} arrays a box is a pair (number of the array, key); "
                    f"box {number} is {box!r}"
                )
            which.append(int(box[0]))
            place.append(len(keys[which[-1]]))
            keys[which[-1]].append(box[1])
        self._places = np.array(which, np.int64), np.array(place, np.int64)
        return [boxes_of(array, each) for array, each in zip(self.arrays, keys, strict=True)]

    def _gathered(self, values: list[Ints]) -> Ints:
        """Return what each sample has of values that are given array by array."""
        which, place = self._places  # type: ignore[misc]
        found = np.zeros((len(which), *values[0].shape[1:]), np.int64)
        for array, each in enumerate(values):
            found[which == array] = each[place[which == array]]
        return found

    def _counted(self) -> int:
        return len(self.parts[0]) if self._places is None else len(self._places[0])

    def _check_lengths(self) -> None:
        lengths = {len(part) for part in self.parts} if self._places is None else {len(self)}
        if len(lengths) > 1:
            raise InvalidInputError(f"the arrays have different numbers of boxes: {sorted(lengths)}")
        if self.targets is not None and len(self.targets) != len(self):
            raise InvalidInputError(f"there are {len(self)} boxes, but {len(self.targets)} targets")

    def _number(self, sample: Any) -> int:
        number = int(sample)
        if not -len(self) <= number < len(self):
            raise SelectionError(f"sample {number} is not in the dataset, which has {len(self)}")
        return number % len(self)


def _checked(arrays: Any) -> list[Array]:
    found: list[Any] = (
        [arrays] if isinstance(arrays, Array) else list(arrays.values() if isinstance(arrays, Mapping) else arrays)
    )
    wrong = [each for each in found if not isinstance(each, Array)]
    if wrong or not found:
        raise InvalidInputError(
            f"a dataset is of arrays that hyperslab.open returned: one, a list or a dict of them, not {arrays!r}"
        )
    if len({id(each.session) for each in found}) > 1:
        raise InvalidInputError("the arrays were opened in different sessions; open them with one `session=`")
    return found


def _is_number(value: Any, below: int) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 <= int(value) < below


def _chunks_of(array: Array, part: Boxes) -> Ints:
    """Return the chunk of the first cell of each box."""
    return part.lows // np.array([max(1, size) for size in array.chunks], np.int64)
