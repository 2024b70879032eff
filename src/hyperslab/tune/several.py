"""Several forms of one array at a time: each read goes to the one in which it costs least."""

from dataclasses import dataclass
from math import prod

import numpy as np

from hyperslab.plan import CostModel
from hyperslab.tune.figures import figures_of
from hyperslab.tune.forms import Form, Shrink
from hyperslab.tune.reads import Floats, Reads
from hyperslab.tune.search import Found, search

__all__ = ["Several", "choose_several"]

# One form more has to spare so much of the cost that is left.
_WORTH = 0.1
# Groups of reads, alike in shape, that a form is sought for by itself.
_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Several:
    """Forms that an array is stored in side by side: what a read costs on average, and how many bytes they take.

    `times` is how many times less a read costs than with the best single form, `spared_seconds` and `spared_usd` what
    it costs less; `shares` are the shares of reads that go to each form. `held_out_times` is of reads that the search
    did not know. `more_bytes` of `stored_bytes` are for the further forms.
    """

    forms: tuple[Form, ...]
    shares: tuple[float, ...]
    cost: float
    times: float
    held_out_times: float | None
    spared_seconds: float
    spared_usd: float
    stored_bytes: float
    more_bytes: float


def choose_several(
    found: list[Found],
    reads: Reads,
    held_out: Reads | None,
    itemsize: int,
    model: CostModel,
    shrink: Shrink,
    *,
    copies: int,
    plain: bool,
    storage_bytes: float,
) -> Several | None:
    """Return up to `copies` forms, each added because it spares most; None if one form alone does as well.

    Candidates are the best forms for all reads, and the best for each group of reads that are alike.
    """
    candidates = {each.form: each for each in found}
    for group in _groups(reads):
        for each in search(group, itemsize, model, shrink, plain=plain)[:3]:
            candidates.setdefault(each.form, each)
    figures = {form: figures_of(form, reads, itemsize, model, shrink) for form in candidates}
    costs = {form: told.cost for form, told in figures.items()}
    sizes = {form: _stored(form, reads, itemsize, shrink) for form in candidates}
    single = found[0].form
    chosen, least, left = [single], costs[single], storage_bytes - sizes[single]
    while len(chosen) < copies:
        fitting = [form for form in candidates if form not in chosen and sizes[form] <= left]
        best = min(fitting, key=lambda form: reads.mean(np.minimum(least, costs[form])), default=None)
        if best is None or reads.mean(np.minimum(least, costs[best])) > (1 - _WORTH) * reads.mean(least):
            break
        chosen.append(best)
        least, left = np.minimum(least, costs[best]), left - sizes[best]
    if len(chosen) == 1:
        return None
    which = np.argmin(np.stack([costs[form] for form in chosen]), axis=0)
    seconds, usd = (np.stack([getattr(figures[form], name) for form in chosen]) for name in ("seconds", "usd"))
    rows = np.arange(len(reads))
    return Several(
        tuple(chosen),
        tuple([reads.mean(which == number) for number in range(len(chosen))]),
        reads.mean(least),
        reads.mean(costs[single]) / reads.mean(least),
        None if held_out is None else _times(chosen, held_out, itemsize, model, shrink),
        reads.mean(seconds[0] - seconds[which, rows]),
        reads.mean(usd[0] - usd[which, rows]),
        sum(sizes[form] for form in chosen),
        sum(sizes[form] for form in chosen[1:]),
    )


def _times(chosen: list[Form], reads: Reads, itemsize: int, model: CostModel, shrink: Shrink) -> float:
    costs: list[Floats] = [figures_of(form, reads, itemsize, model, shrink).cost for form in chosen]
    return reads.mean(costs[0]) / reads.mean(np.min(costs, axis=0))


def _stored(form: Form, reads: Reads, itemsize: int, shrink: Shrink) -> float:
    share = 1.0 if form.plain else shrink.of(prod(form.chunks) * itemsize)
    return prod(reads.shape) * itemsize * share


def _groups(reads: Reads) -> list[Reads]:
    """Return the reads by the axes along which they reach far, the commonest groups first."""
    far = reads.counts * len(reads.shape) > np.array(reads.shape)
    kinds, which = np.unique(far, axis=0, return_inverse=True)
    which = which.reshape(-1)
    weights = np.bincount(which, reads.weights)
    order: list[int] = np.argsort(-weights)[:_GROUPS].tolist() if len(kinds) > 1 else []
    return [reads.only(which == kind) for kind in order]
