"""Advice: which form would have served some reads best, by how much, and what it takes to change to it."""

from dataclasses import dataclass, replace
from math import inf, isinf, prod

from hyperslab.plan import CostModel
from hyperslab.tune.figures import Means, figures_of
from hyperslab.tune.forms import Form, Shape, Shrink
from hyperslab.tune.reads import Reads
from hyperslab.tune.search import Bounds, search
from hyperslab.tune.several import Several, choose_several

__all__ = ["Change", "Compared", "Findings", "find_form"]

# A change has to spare so much of the cost of reads to be advised: figures are predictions.
_WORTH = 0.05


@dataclass(frozen=True, slots=True)
class Compared:
    """What reads cost in the form that the array has and in another one, on average."""

    now: Means
    best: Means

    @property
    def times(self) -> float:
        """How many times less a read costs."""
        return self.now.cost / self.best.cost if self.best.cost else 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """What it takes to store the array anew: all of it is read once, and written in another form."""

    read_bytes: float
    written_bytes: float
    objects: int
    seconds: float
    usd: float


@dataclass(frozen=True, slots=True)
class Findings:
    """The form that reads cost least in, against the one that the array has now.

    `trained` is on the reads that the search knew, `held_out` on others, if there are any. `several` is of more forms
    at a time, each read going to the cheapest.
    """

    shape: Shape
    itemsize: int
    model: CostModel
    now: Form
    best: Form
    trained: Compared
    held_out: Compared | None
    change: Change
    several: Several | None = None

    @property
    def keep(self) -> bool:
        """Whether the array had better stay as it is."""
        return self.best == self.now

    @property
    def pays_after_reads(self) -> float:
        """After how many reads the change has paid for itself; infinity if never."""
        told = self.held_out or self.trained
        spared = told.now.cost - told.best.cost
        weight = self.change.usd if isinf(self.model.phi) else self.change.seconds + self.model.phi * self.change.usd
        return weight / spared if spared > 0 else inf


def find_form(
    trained: Reads,
    held_out: Reads | None,
    now: Form,
    itemsize: int,
    model: CostModel,
    shrink: Shrink,
    *,
    plain: bool = False,
    bounds: Bounds | None = None,
    copies: int = 1,
    storage_bytes: float = inf,
    told: bool | None = None,
) -> Findings:
    """Search for the best form; where none is better by a margin, also on reads that were held out, advise to stay.

    With `copies` above 1 also look for so many forms at a time, that take at most `storage_bytes` together. `told` says
    whether the metadata tell where chunks of shards lie as the array is now (default: as if it were just written).
    """
    # What a function beside the data could do is left out: it makes most forms alike.
    model = replace(model, function=None)
    found = search(trained, itemsize, model, shrink, plain=plain, bounds=bounds, also=[now])
    best = found[0].form if found else now
    compared = [
        _compare(now, best, reads, itemsize, model, shrink, told) for reads in (trained, held_out) if reads is not None
    ]
    if any(each.best.cost > (1 - _WORTH) * each.now.cost for each in compared):
        best = now
        compared = [Compared(each.now, each.now) for each in compared]
    several = None
    if copies > 1 and found:
        several = choose_several(
            found, trained, held_out, itemsize, model, shrink, copies=copies, plain=plain, storage_bytes=storage_bytes
        )
    change = _change(now, best, trained.shape, itemsize, model, shrink)
    later = compared[1] if len(compared) > 1 else None
    return Findings(trained.shape, itemsize, model, now, best, compared[0], later, change, several)


def _compare(
    now: Form, best: Form, reads: Reads, itemsize: int, model: CostModel, shrink: Shrink, told: bool | None
) -> Compared:
    both = (
        figures_of(now, reads, itemsize, model, shrink, told=told),
        figures_of(best, reads, itemsize, model, shrink),
    )
    return Compared(*[figures.means(reads, itemsize) for figures in both])


def _change(now: Form, best: Form, shape: Shape, itemsize: int, model: CostModel, shrink: Shrink) -> Change:
    if now == best:
        return Change(0.0, 0.0, 0, 0.0, 0.0)
    nbytes = prod(shape) * itemsize
    read, written = nbytes * _stored_share(now, itemsize, shrink), nbytes * _stored_share(best, itemsize, shrink)
    objects = best.object_count(shape)
    gets = now.object_count(shape)
    seconds = float(model.seconds(gets, read)) + float(model.seconds(objects, written)) + model.encode_seconds(nbytes)
    return Change(read, written, objects, seconds, float(model.usd(gets, read)) + model.write_usd(objects))


def _stored_share(form: Form, itemsize: int, shrink: Shrink) -> float:
    return 1.0 if form.plain else shrink.of(prod(form.chunks) * itemsize)
