"""Clusters into packs: the heaviest first, each into the pack that it fills best.

A pack's limit is only that: packs need not be equally full, and as long as there may be more packs, none is filled up
with what its readers do not want.
"""

import numpy as np

from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.problem import Ints

__all__ = ["best_fit", "fill_up", "in_order"]

# Packs are kept by how much room they have, in so many steps.
_STEPS = 2048


def best_fit(weight: Ints, most: int, packs: int) -> Ints:
    """Return a pack for each unit, -1 for those that fit nowhere when there may be only so many packs.

    >>> best_fit(np.array([3, 4, 2, 1]), 5, 2).tolist()
    [1, 0, 1, 0]
    """
    order = np.argsort(-weight, kind="stable")
    return _best_fit(order, weight, most, packs, min(most, _STEPS))


@compiled
def _best_fit(order: Ints, weight: Ints, most: int, packs: int, steps: int) -> Ints:
    pack_of, room = np.full(len(weight), -1, np.int64), np.full(packs, most, np.int64)
    # Packs with the same room (in steps, rounded down) are a list: its head, and each pack's next.
    head, following = np.full(steps + 1, -1, np.int64), np.full(packs, -1, np.int64)
    used = 0
    for unit in order:
        pack = -1
        need = min(weight[unit], most)
        for step in range((need * steps + most - 1) // most, steps + 1):
            if head[step] >= 0:
                pack = head[step]
                head[step] = following[pack]
                break
        if pack < 0 and used < packs:
            pack = used
            used += 1
        if pack < 0:
            continue
        pack_of[unit] = pack
        room[pack] -= need
        step = room[pack] * steps // most
        if step > 0:
            following[pack], head[step] = head[step], pack
    return pack_of


@compiled
def in_order(weight: Ints, most: int) -> Ints:
    """Return packs that are filled one after another, each until the next array would not fit."""
    pack_of, pack, load = np.empty(len(weight), np.int64), 0, 0
    for at in range(len(weight)):
        if load > 0 and load + weight[at] > most:
            pack, load = pack + 1, 0
        pack_of[at] = pack
        load += weight[at]
    return pack_of


@compiled
def fill_up(weight: Ints, load: Ints, most: int, first: int) -> Ints:
    """Return packs for arrays in their order: new ones from number `first`, one after another, then any with room.

    `load` is what each pack holds, and is brought up to date. An array that fits nowhere gets -1.
    """
    pack_of, pack, with_room = np.full(len(weight), -1, np.int64), first, 0
    for at in range(len(weight)):
        need = weight[at]
        if pack < len(load) and load[pack] > 0 and load[pack] + need > most:
            pack += 1
        to = pack
        if to >= len(load):
            while with_room < len(load) and load[with_room] >= most:
                with_room += 1
            to = with_room
            while to < len(load) and load[to] + need > most and load[to] > 0:
                to += 1
        if to < len(load):
            pack_of[at] = to
            load[to] += need
    return pack_of
