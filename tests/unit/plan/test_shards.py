"""Which shards to fetch whole, against every other choice."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import times

from hyperslab.layout import ChunkKeys, Layout, ShardIndex
from hyperslab.plan import CostModel, Prices, Profile
from hyperslab.plan.shards import choose_wholes


def sharded(per_shard: int, cells: int = 64) -> Layout:
    one = np.dtype("<f8")
    return Layout(
        (1000 * per_shard * cells,), one, (cells,), ChunkKeys("", "/", "c"), np.zeros((), one), one, (0,),
        object_shape=(per_shard * cells,), index=ShardIndex(per_shard, "end", True),
    )  # fmt: skip


@settings(max_examples=times(80), deadline=None)
@given(
    st.dictionaries(st.integers(0, 50), st.integers(1, 16), min_size=1, max_size=8),
    st.sampled_from(["s3", "s3-internet", "memory"]),
    st.sampled_from([1, 100, 10_000, 1_000_000]),
    st.sampled_from([0.0, 10.0, 1e5]),
)
def test_no_other_choice_is_cheaper(wanted, name, cells, phi):
    layout, model = sharded(16, cells), CostModel(Profile.named(name), Prices.named("aws"), phi)
    index, whole = layout.index.nbytes, 16 * layout.chunk_nbytes + layout.index.nbytes

    def cost(wholes) -> float:
        rest = [n for number, n in wanted.items() if number not in wholes]
        nbytes = len(wholes) * whole + sum(rest) * layout.chunk_nbytes
        return model.cost(len(rest), len(rest) * index) + model.cost(len(wanted), nbytes)

    chosen = choose_wholes(layout, wanted, model)
    assert chosen <= set(wanted)
    best = min(cost(set(some)) for n in range(len(wanted) + 1) for some in combinations(wanted, n))
    assert cost(chosen) <= best * (1 + 1e-9)


def test_small_shards_are_fetched_whole_and_large_ones_looked_up():
    s3 = CostModel(Profile.named("s3"), Prices.named("aws"))
    assert choose_wholes(sharded(16, 64), {3: 1, 4: 2}, s3) == {3, 4}
    assert choose_wholes(sharded(16, 10_000_000), {3: 1, 4: 2}, s3) == set()


def test_all_of_a_shard_is_wanted():
    s3 = CostModel(Profile.named("s3"), Prices.named("aws"))
    assert choose_wholes(sharded(16, 10_000), {0: 16, 1: 16}, s3) == {0, 1}


def test_nothing_to_choose():
    s3 = CostModel(Profile.named("s3"), Prices.named("aws"))
    assert choose_wholes(sharded(16), {}, s3) == set()
