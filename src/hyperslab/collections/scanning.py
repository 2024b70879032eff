"""Going through a collection's names in order, and counting them."""

from collections.abc import Iterator

from hyperslab.collections.blocks import Block
from hyperslab.collections.index import Index
from hyperslab.errors import FormatError

__all__ = ["count", "decoded", "names_from"]

# Names that are looked up together while they are counted.
_BATCH = 4096


def names_from(index: Index, prefix: bytes) -> Iterator[str]:
    """Yield the names that begin with a text, sorted."""
    for name, _, deleted in index.merged(prefix, prefix, Block.deleted):
        if not deleted:
            yield decoded(name)


def decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise FormatError(f"the index holds a name that is not UTF-8: {name[:80]!r}") from None


def count(index: Index) -> int:
    """Return how many arrays there are."""
    return sum([_count(part) for part in index.parts()])


def _count(index: Index) -> int:
    """Count without going through the oldest segment, nearly always by far the largest: others are looked up in it."""
    oldest = index.segments[-1].ref
    total, newer = oldest.rows - oldest.deleted, range(len(index.segments) - 1)
    if not newer:
        return total
    below, above = index.part([len(newer)]), index.part(newer)
    batch: dict[str, bool] = {}
    for name, _, deleted in above.merged(b"", b"", Block.deleted):
        batch[decoded(name)] = not deleted
        if len(batch) >= _BATCH:
            total += _change(batch, below)
            batch = {}
    return total + _change(batch, below)


def _change(batch: dict[str, bool], below: Index) -> int:
    """Return by how many names that are there, or are not, change the number of those below."""
    return sum(batch.values()) - len(below.locate(batch))
