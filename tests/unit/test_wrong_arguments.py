"""Arguments that cannot be right are refused where they are given, with the name of the argument."""

import math

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.errors import InvalidInputError


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0}, {"concurrency": 2.5}, {"memory_bytes": 1}, {"cache_bytes": -1}, {"disk_cache_bytes": -1},
        {"retries": -1}, {"phi": -1.0}, {"phi": math.nan}, {"phi": "much"}, {"timeout_s": 0}, {"budget": 5},
        {"profile": 5}, {"profile": "unheard-of"}, {"prices": 5}, {"prices": "unheard-of"},
    ],
    ids=str,
)  # fmt: skip
def test_settings_of_a_session(settings):
    with pytest.raises(InvalidInputError):
        hs.Session(**settings)


@pytest.mark.parametrize("limit", ["3", -1, math.nan])
@pytest.mark.parametrize("name", ["requests", "bytes", "usd", "seconds"])
def test_limits_of_a_budget(name, limit):
    with pytest.raises(InvalidInputError, match=name):
        hs.Budget(**{name: limit})


@pytest.mark.parametrize(
    "options", [{"budget": 3}, {"method": "guess"}, {"phi": -1}, {"deadline": 0}, {"out": [1]}], ids=str
)
def test_options_of_a_read(tmp_path, options):
    np.save(tmp_path / "a.npy", np.arange(5))
    with pytest.raises(InvalidInputError):
        hs.open(tmp_path / "a.npy").read(**options)


def test_what_is_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))
    with pytest.raises(InvalidInputError, match="string"):
        hs.open(5)
    with pytest.raises(InvalidInputError, match="session"):
        hs.open(tmp_path / "a.npy", session="x")


def test_arrays_of_different_sessions_are_not_read_together(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))
    with hs.Session() as one, hs.Session() as other:
        arrays = [hs.open(tmp_path / "a.npy", session=session) for session in (one, other)]
        with pytest.raises(InvalidInputError, match="different sessions"):
            hs.read_many([(array, 0) for array in arrays])
