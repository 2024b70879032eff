"""`hs.advise` from keys and from recordings, and the change that comes of it."""

import json

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.errors import InvalidInputError

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
