"""A function over neighbours from a real S3 server to it, in little memory and after an interruption."""

import uuid

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.stencil import flow

CELLS = np.random.default_rng(2).random((90, 70)).astype("f4")
SIZES = {"chunks": (10, 10), "shards": (20, 30)}


def below(s):
    return s(2, 0) - s(0, -1)


def test_from_s3_to_s3(s3, monkeypatch):
    place, options = s3.url(f"stencil/{uuid.uuid4().hex}"), {"storage_options": s3.storage_options}
    wide = np.pad(CELLS, ((0, 2), (1, 0)), mode="wrap")
    right = wide[2:, 1:] - wide[:-2, :-1]
    with hs.Session() as session:
        source = hs.save(f"{place}/in", CELLS, chunks=(30, 30), shards=(30, 60), session=session, **options)
        settings = {"boundary": "periodic", "output": SIZES, "chunks": (20, 30), "session": session, **options}
        work, stored = flow.Computing.work, []

        def fails(self, item):
            if len(stored) == 4:
                raise OSError("interrupted")
            stored.append(item)
            return work(self, item)

        monkeypatch.setattr(flow.Computing, "work", fails)
        with pytest.raises(OSError, match="interrupted"):
            hs.apply(below, source, f"{place}/out", **settings)
        monkeypatch.setattr(flow.Computing, "work", work)
        before = session.metrics.puts
        made = hs.apply(below, f"{place}/in", f"{place}/out", **settings)
        assert np.array_equal(made[...], right)
        assert made.source.layout.complete
        assert session.metrics.puts - before <= 15 - 4 + 2  # what was there stayed; and metadata
