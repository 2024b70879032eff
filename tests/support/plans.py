"""Plans for collections, made by hand or by chance."""

import numpy as np

from hyperslab.collections.plans import Plan

__all__ = ["plan_of", "random_plan"]


def plan_of(c, groups, keyed=()):
    """Return the plan that packs the arrays of each group of names together, and keeps some in the tier."""
    names = [name for group in groups for name in group]
    packs = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    ids = np.array([entry.id for entry in c.entries(names)], np.int64).reshape(len(names))
    return Plan(c.manifest.uuid, ids, packs, np.array([name in set(keyed) for name in names], bool))


def random_plan(c, numbers, most=4, share=0.3):
    """Return a plan of some of the arrays, in any order, in packs of at most so many."""
    names = [name for name in c if numbers.random() < 0.9]
    numbers.shuffle(names)
    groups = []
    while names:
        size = int(numbers.integers(1, most + 1))
        groups.append(names[:size])
        names = names[size:]
    return plan_of(c, groups, [name for group in groups for name in group if numbers.random() < share])
