"""Which small arrays share a pack, and which go to the key/value tier: planned by what is read together.

`problem` says what a placement costs and what fits, `planner` finds a cheap one, `baselines` has those of the paper,
`orders` and `folds` see to it that a plan also serves queries that are not in the log, `sizes` chooses the packs' size.
The searches are compiled by numba, which is imported with their modules and not with this package.
"""

__all__: list[str] = []
