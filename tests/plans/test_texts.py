"""The text of plans, word for word. `HYPERSLAB_SNAPSHOTS=write pytest tests/plans` writes them anew: read the diff."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.plan.explain import describe

SNAPSHOTS = Path(__file__).parent / "snapshots"
WRITE = os.environ.get("HYPERSLAB_SNAPSHOTS") == "write"


def check(name: str, text: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if WRITE:
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    assert all(line == line.rstrip() for line in text.splitlines())


CLOUD = {
    "small_box": ("plain.zarr", np.s_[30:51, 130:151], {}),
    "one_column": ("plain.zarr", np.s_[:, 3], {}),
    "one_column_for_money": ("plain.zarr", np.s_[:, 3], {"phi": float("inf")}),
    "weighed": ("plain.zarr", np.s_[::-50, ::3], {"phi": 1000.0}),
    "forced_fetch": ("plain.zarr", np.s_[30:51, 130:151], {"method": "fetch"}),
    "encoded": ("zstd.zarr", np.s_[50:150, ::-2], {}),
    "shard_looked_up": ("shards.zarr", np.s_[100:105], {"method": "fetch"}),
    "shard_whole": ("shards.zarr", np.s_[100:105], {}),
    "lists": ("plain.zarr", np.s_[[5, 1, 1], [3, 30, 31, 40, 50, 60, 70]], {}),
    "field": ("fields.npy", np.s_["b", 3, None, 4:8], {}),
    "nothing_selected": ("plain.zarr", np.s_[5:5], {}),
}


@pytest.mark.parametrize("name", CLOUD)
def test_plan_in_the_cloud(cloud, name):
    array, key, options = CLOUD[name]
    check(name, str(cloud(array).explain(key, **options)))


def test_points(cloud):
    check("points", str(cloud("plain.zarr").explain.points[[3, 50, 390], [7, 8, 590]]))


def test_what_is_at_hand(cloud):
    array = cloud("sparse.zarr")
    array[:60, :60]
    check("at_hand", str(array.explain[:60, :60]))


def test_mapped_file(disk):
    check("mapped", str(disk("plain.zarr").explain[30:51, 130:151]))


def test_forced_on_disk(disk):
    check("forced_on_disk", str(disk("plain.zarr").explain(np.s_[0:30, 0:40], method="merge")))


def test_too_much_to_try(disk):
    check("too_many_chunks", str(disk("huge.zarr").explain[5:900_000, 10:800_000]))
    check("too_many_ranges", str(disk("huge.zarr").explain[:4000, ::2]))


@dataclass
class Took:
    """A read as it might have been."""

    requests: int = 1
    lookups: int = 0
    calls: int = 0
    bytes: int = 16_084
    retries: int = 2
    cache_hits: int = 0
    seconds: float = 0.041
    usd: float = 0.0000018


def test_measured_beside_predicted(cloud):
    explanation = cloud("plain.zarr").explain[30:51, 130:151]
    from hyperslab.plan.explain import Analysis

    check("analysis", str(Analysis(explanation, Took())))
    check("analysis_of_nothing", str(Analysis(explanation, Took(0, 0, 0, 0, 0, 0.0, 0.0))))


def test_plan_of_a_refused_read(cloud):
    array = cloud("plain.zarr")
    with pytest.raises(hs.errors.BudgetError) as refused:
        array.read(np.s_[:, 3], budget=hs.Budget(requests=2))
    check("refused", describe(refused.value.plan))
