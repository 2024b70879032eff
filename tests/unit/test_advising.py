"""`hs.advise` from keys and from recordings, and the change that comes of it."""

import json
import re
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hyperslab as hs
from hyperslab.errors import InvalidInputError
from hyperslab.selection import parse
from hyperslab.tune.reads import reads_of
from hyperslab.tune.sample import SAMPLE_BYTES, sample_boxes

SHAPE = (384, 48, 48)


@pytest.fixture(scope="module")
def cells():
    return np.random.default_rng(0).integers(0, 50, SHAPE, dtype="i2").astype("f4")


@pytest.fixture
def array(tmp_path, cells):
    with hs.Session(profile="s3-internet", prices="aws") as session:
        yield hs.save(tmp_path / "a.zarr", cells, chunks=(1, 48, 48), shards=False, session=session)


SERIES = [np.s_[:, i % 48, (7 * i) % 48] for i in range(40)]


def test_series_of_maps_are_advised_to_be_cut_along_time(array):
    advice = hs.advise(array, SERIES)
    assert not advice.keep
    assert advice.chunks[0] > 8 * advice.chunks[1]
    assert advice.findings.held_out is not None
    assert advice.findings.held_out.times > 1.5
    assert advice.findings.trained.now.chunks == 384
    assert advice.layout == "default"


def test_advice_is_told_in_words_figures_and_json(array):
    advice = hs.advise(array, SERIES)
    text = str(advice)
    assert "chunks (1, 48, 48)" in text
    assert "advised, reads held out" in text
    assert "has paid" in text
    values = json.loads(json.dumps(advice.to_dict(), allow_nan=False))
    assert values["best"]["chunks"] == list(advice.chunks)
    assert values["reads"] + values["held_out_reads"] == 40
    assert "<table>" in advice._repr_html_()
    assert "keep" in repr(advice) or str(advice.chunks) in repr(advice)


def test_neither_advice_nor_a_change_of_layout_is_recorded_as_a_read(array, tmp_path):
    log = tmp_path / "w.hslog"
    with hs.record(log):
        advice = hs.advise(array, SERIES)
        advice.apply(tmp_path / "b.zarr")
        advice.apply()
        hs.open(tmp_path / "b.zarr")[3, 4, 5]
    assert len(hs.Workload.load(log)) == 1


def test_advice_is_applied_in_place_and_elsewhere(array, cells, tmp_path):
    advice = hs.advise(array, SERIES)
    elsewhere = advice.apply(tmp_path / "b.zarr")
    assert elsewhere.chunks == advice.chunks
    assert elsewhere.shards == advice.shards
    assert np.array_equal(elsewhere[...], cells)
    assert array.refresh().chunks == (1, 48, 48)
    changed = advice.apply()
    assert changed.chunks == advice.chunks
    assert np.array_equal(changed[...], cells)
    assert np.array_equal(array[5], cells[5])  # the old handle, on the old chunks
    again = hs.advise(array.refresh(), SERIES)
    assert again.keep
    assert again.apply().chunks == advice.chunks


def test_what_was_recorded_is_advised_on(array, tmp_path):
    log = tmp_path / "w.hslog"
    with hs.record(log):
        for key in SERIES:
            array[key]
    by_log, by_keys = hs.advise(array, log), hs.advise(array, SERIES)
    assert by_log.findings.trained.now.chunks == by_keys.findings.trained.now.chunks == 384
    assert not by_log.keep
    assert hs.advise(array, hs.Workload.load(log)).chunks == by_log.chunks


def test_a_new_array_can_be_cut_for_a_workload_from_the_start(array, cells, tmp_path):
    log = tmp_path / "w.hslog"
    with hs.record(log):
        for key in SERIES:
            array[key]
    for workload in (log, SERIES):
        new = hs.create(tmp_path / "new.zarr", SHAPE, "f4", workload=workload, session=array.session, overwrite=True)
        assert new.chunks[0] > 8 * new.chunks[1]
        new[...] = cells
        assert np.array_equal(new[:, 3, 4], cells[:, 3, 4])


def test_chunks_and_a_workload_together_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="workload"):
        hs.create(tmp_path / "x.zarr", SHAPE, "f4", workload=SERIES, chunks=(1, 48, 48))


def test_a_picture_is_drawn(array, tmp_path):
    pytest.importorskip("matplotlib")
    axes = hs.advise(array, SERIES).plot()
    assert len(axes) == 2
    axes[0].figure.savefig(tmp_path / "advice.png")
    assert (tmp_path / "advice.png").stat().st_size > 10_000


def test_plain_stays_plain_unless_it_is_asked_for(tmp_path, cells):
    with hs.Session(profile="s3-internet", prices="aws") as session:
        plain = hs.save(tmp_path / "p.zarr", cells, layout="plain", chunks=(1, 48, 48), session=session)
        assert hs.advise(plain, SERIES).layout == "plain"
        assert hs.advise(plain, SERIES, layout="default").layout == "default"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workload": []}, "no reads"),
        ({"workload": [np.s_[0:0]]}, "no cells"),
        ({"layout": "flat"}, "layout is"),
        ({"held_out": 1.0}, "held_out"),
        ({"held_out": "x"}, "held_out"),
        ({"copies": 0}, "copies"),
        ({"copies": 1.5}, "copies"),
        ({"copies": float("inf")}, "copies"),
        ({"copies": "2"}, "copies"),
        ({"storage_bytes": float("nan")}, "storage_bytes"),
        ({"storage_bytes": "1GB"}, "storage_bytes"),
        ({"phi": float("nan")}, "phi"),
        ({"phi": -1}, "phi"),
        ({"phi": "x"}, "phi"),
        ({"workload": np.s_[:, 3, 4]}, "is one key"),
        ({"workload": b"w.hslog"}, "a list of keys"),
    ],
)
def test_what_makes_no_sense_is_refused(array, change, message):
    with pytest.raises(InvalidInputError, match=message):
        hs.advise(array, **{"workload": SERIES, **change})


def test_a_group_and_an_array_without_cells_are_refused(tmp_path):
    group = hs.create_group(tmp_path / "g")
    with pytest.raises(InvalidInputError, match="is a group"):
        hs.advise(group.url, SERIES)
    empty = hs.create(tmp_path / "e.zarr", (0, 4), "f4")
    with pytest.raises(InvalidInputError, match="nothing to cut"):
        hs.advise(empty, [np.s_[:]])


def test_one_cell_is_not_cut_for_a_workload(tmp_path):
    with pytest.raises(InvalidInputError, match="nothing to cut"):
        hs.create(tmp_path / "x.zarr", (), "f4", workload=[()])


def test_advice_is_on_the_shape_that_the_array_has_now(tmp_path):
    array = hs.save(tmp_path / "a.zarr", np.zeros((400, 400), "i4"), chunks=(10, 10))
    with hs.record(tmp_path / "w.hslog"):
        for row in range(0, 400, 20):
            array[row : row + 20]
    array.resize((100, 50))
    advice = hs.advise(array, tmp_path / "w.hslog", held_out=0)
    # Five of the reads are still within it, of 20 by 50 cells each.
    assert advice.to_dict()["reads"] == 5
    assert advice.findings.trained.now.chunks == 2 * 5
    assert advice.findings.trained.now.needed_bytes == 20 * 50 * 4


def test_what_is_read_to_see_how_cells_compress_is_bounded(tmp_path):
    with hs.Session() as session:
        for chunks, shards, most in (((1, 10, 10), False, 1024), ((1, 1, 1), (1, 100, 100), 1 << 14)):
            array = hs.create(tmp_path / str(most), (1000, 1000, 1000), "f4", chunks=chunks, shards=shards)
            before = session.metrics.requests, session.metrics.needed_bytes
            hs.advise(hs.open(array.url, session=session), [np.s_[3, 4, 5]])
            assert session.metrics.requests - before[0] <= most
            assert session.metrics.needed_bytes - before[1] <= most * np.prod(chunks) * 4


def test_no_signature_is_told(array):
    source = hs.advise(array, SERIES)
    signed = type("Signed", (), {"url": "https://host/a.zarr?sig=hush", "source": array.source})()
    advice = hs.Advice(signed, source.findings, source._reads, None)
    for told in (str(advice), repr(advice), advice._repr_html_(), json.dumps(advice.to_dict())):
        assert "hush" not in told
        assert "https://host/a.zarr" in told


def test_without_prices_time_decides_and_that_is_said(tmp_path, cells):
    array = hs.save(tmp_path / "free.zarr", cells, chunks=(1, 48, 48), shards=False)
    assert "time decides" in str(hs.advise(array, SERIES, phi=float("inf")))
    assert "time decides" not in str(hs.advise(array, SERIES))


@pytest.mark.parametrize("shape", [(5,), (1, 1), (100_000,), (8, 3, 50, 72, 14)])
def test_pictures_of_all_kinds_of_arrays_fit(tmp_path, shape):
    pytest.importorskip("matplotlib")
    array = hs.create(tmp_path / "a.zarr", shape, "f4", chunks=(1,) * len(shape))
    axes = hs.advise(array, [np.s_[...], np.s_[0]]).plot()
    figure = axes[0].figure
    figure.savefig(tmp_path / "advice.png")
    for ax in axes:
        # Neither cut off nor so long that the panels give way.
        assert ax.get_tightbbox().x1 <= figure.bbox.x1
        assert ax.get_window_extent().width > 0.35 * figure.bbox.width
        assert re.search(r" [1-9][\d.,]* (µs|ms|s) a read", ax.get_title(loc="left"))


def test_a_picture_is_drawn_on_two_axes_that_are_given(array):
    figures = pytest.importorskip("matplotlib.figure")
    advice = hs.advise(array, SERIES)
    given = figures.Figure().subplots(1, 2)
    assert advice.plot(given)[1] is given[1]
    for wrong in (5, [1, 2], given[0], [*given, given[0]]):
        with pytest.raises(InvalidInputError, match="two axes"):
            advice.plot(wrong)


def test_copies_are_a_list(tmp_path):
    hs.create(tmp_path / "a.zarr", (4,), "f4")
    for wrong in (str(tmp_path / "a.zarr"), 5):
        with pytest.raises(InvalidInputError, match="as a list"):
            hs.Copies(wrong)


def test_reads_by_steps_and_lists_take_bounded_memory():
    shape = (100_000, 1000)
    keys = [np.s_[start : start + 16_000 : 4, start % 1000] for start in range(0, 40_000, 10)]
    reads = reads_of(shape, [parse(key, shape) for key in keys])
    assert reads.total == 4000
    assert 500 < len(reads) < 2000
    assert sum(axis.cells.nbytes for axis in reads.axes) <= 33 << 20
    assert np.isclose(reads.weights.sum(), 1)
    # Some stand for all, from the first to the last.
    assert reads.starts[0, 0] == 0
    assert reads.starts[-1, 0] == 39_990
    assert np.isclose(reads.mean(reads.cells), 4000)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_sample_is_within_the_array_and_bounded(data):
    axes = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 1 << (40 // axes))) for _ in range(axes))
    chunks = tuple(data.draw(st.one_of(st.just(1), st.just(size), st.integers(1, 2 * size))) for size in shape)
    itemsize, most = data.draw(st.sampled_from([1, 4, 16])), data.draw(st.sampled_from([64, 1024, 1 << 14]))
    boxes = sample_boxes(shape, chunks, itemsize, most)
    assert all(0 <= part.start < part.stop <= size for box in boxes for part, size in zip(box, shape, strict=True))
    assert sum(prod([part.stop - part.start for part in box]) for box in boxes) * itemsize <= 2 * SAMPLE_BYTES
    touched = [
        [(part.stop - 1) // c - part.start // c + 1 for part, c in zip(box, chunks, strict=True)] for box in boxes
    ]
    assert sum(map(prod, touched)) <= most
