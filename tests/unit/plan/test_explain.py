"""Explanations: nothing is sent for one, its figures add up, and what it says is what a read then sends."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import zarr
from support.arrays import copy_to_memory

import hyperslab as hs
from hyperslab.errors import InvalidInputError, SelectionError
from hyperslab.plan.explain import Analysis, Explanation

SHAPE = (60, 90)
KEYS = [
    np.s_[...],
    np.s_[3:9, 20:61],
    np.s_[::-7, [80, 2, 40]],
    np.s_[5, 6],
    np.s_[:, 4],
    np.s_[0:0],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    cells = np.arange(60 * 90, dtype="i4").reshape(SHAPE)
    zarr.create_array(folder / "plain.zarr", data=cells, chunks=(20, 30), compressors=None, filters=None)
    zarr.create_array(folder / "zstd.zarr", data=cells, chunks=(20, 30))
    zarr.create_array(folder / "shards.zarr", data=cells, chunks=(10, 10), shards=(20, 30))
    for path in folder.iterdir():
        copy_to_memory(path, "explain")
    return folder


@pytest.fixture
def served(folder, fake_s3):
    """Open an array of the folder from S3, with a log of what is asked."""
    for path in folder.rglob("*"):
        if path.is_file():
            fake_s3.fake.objects[f"bucket/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    options = {"endpoint": fake_s3.endpoint, "anonymous": True}
    with hs.Session() as session:
        yield fake_s3, lambda name: hs.open(f"s3://bucket/{name}", storage_options=options, session=session)


@pytest.fixture
def remembered(folder):
    with hs.Session(profile="s3", prices="aws") as session:
        yield lambda name: hs.open(f"memory://explain/{name}", session=session)


@pytest.mark.parametrize("name", ["plain.zarr", "zstd.zarr", "shards.zarr"])
def test_nothing_is_sent(served, name):
    server, open_array = served
    array = open_array(name)
    server.clear()
    explanation = array.explain[3:9, 20:61]
    str(explanation), repr(explanation), explanation.to_dict(), explanation._repr_html_()
    assert not server.log
    assert not array.session.metrics.requests


@pytest.mark.parametrize("method", [None, "get", "merge", "fetch", "paper"])
def test_plain_chunks_are_read_as_explained(served, method):
    server, open_array = served
    array = open_array("plain.zarr")
    predicted = array.explain(np.s_[3:9, 20:61], method=method).plan.estimate
    server.clear()
    analysis = array.explain(np.s_[3:9, 20:61], method=method).analyze()
    gets = server.gets()
    assert (len(gets), sum(get.body_bytes for get in gets)) == (predicted.requests, predicted.fetched_bytes)
    found = analysis.to_dict()
    assert found["measured"]["requests"] == len(gets)
    assert found["error_percent"]["requests"] == found["error_percent"]["bytes"] == 0
    assert found["measured"]["usd"] == pytest.approx(predicted.usd)


def test_bounds_hold_for_shards(served):
    server, open_array = served
    array = open_array("shards.zarr")
    explanation = array.explain(np.s_[3:9, 20:61], method="fetch")
    assert explanation.plan.lookups
    server.clear()
    measured = explanation.analyze().measured
    predicted = explanation.plan.estimate
    assert not predicted.exact
    assert measured.lookups == predicted.lookups
    assert measured.requests <= explanation.plan.chunk_count
    assert measured.bytes <= predicted.all_bytes
    assert len(server.gets()) == measured.requests + measured.lookups


@pytest.mark.parametrize("name", ["plain.zarr", "zstd.zarr", "shards.zarr"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_figures_add_up(remembered, folder, name, key):
    for array in (remembered(name), hs.open(folder / name)):
        explanation = array.explain[key]
        found = explanation.to_dict()
        ways, predicted = found["ways"], found["predicted"]
        assert sum(way["requests"] for way in ways) == predicted["requests"] + predicted["lookups"]
        assert sum(way["fetched_bytes"] for way in ways) == predicted["fetched_bytes"] + predicted["lookup_bytes"]
        assert sum(way["needed_bytes"] for way in ways) == predicted["needed_bytes"]
        assert sum(way["chunks"] for way in ways) == found["chunks"]["touched"]
        assert found["selection"]["shape"] == list(np.empty(SHAPE)[key].shape)


@pytest.mark.parametrize("name", ["plain.zarr", "zstd.zarr", "shards.zarr"])
@pytest.mark.parametrize("phi", [0.0, 100.0, float("inf")])
def test_dict_is_json(remembered, name, phi):
    array = remembered(name)
    explanation = array.explain(np.s_[3:9, ::2], phi=phi)
    for told in (explanation, explanation.analyze()):
        text = json.dumps(told.to_dict(), allow_nan=False)
        assert json.loads(text) == told.to_dict()


def test_dict_has_these_keys(remembered):
    found = remembered("plain.zarr").explain[3].to_dict()
    assert list(found) == [
        "url", "array", "selection", "chunks", "method", "forced", "ways", "predicted", "fees", "alternatives", "model",
    ]  # fmt: skip
    assert [other["method"] for other in found["alternatives"]] == ["get", "merge", "fetch", "paper"]
    assert set(found["alternatives"][0]) == {"method", "cost_ratio", *found["predicted"]}
    assert found["model"]["profile"]["typical"] is True
    for name in found:
        assert name in Explanation.to_dict.__doc__


def test_forced_method_is_compared_with_the_optimiser(remembered, folder):
    others = [a.method for a in remembered("plain.zarr").explain(3, method="merge").alternatives]
    assert others == ["optimiser", "get", "fetch", "paper"]
    local = hs.open(folder / "plain.zarr").explain(3, method="merge")
    assert local.alternatives[0].method == "map"
    assert local.to_dict()["forced"] is True


def test_chosen_plan_costs_least(remembered):
    for key in KEYS:
        for other in remembered("plain.zarr").explain[key].alternatives:
            assert other.cost_ratio is None or other.cost_ratio > 0.999


def test_what_is_cached_costs_nothing(remembered):
    array = remembered("zstd.zarr")
    array[:5]
    explanation = array.explain[:30]
    ways = {way["way"]: way for way in explanation.to_dict()["ways"]}
    assert (ways["CACHE"]["chunks"], ways["CACHE"]["requests"], ways["GET"]["chunks"]) == (3, 0, 3)
    assert explanation.analyze().measured.cache_hits == 3


def test_points_and_lazy_views(remembered):
    array = remembered("plain.zarr")
    assert array.explain.points[[1, 50], [2, 3]].to_dict()["selection"]["key"] == "2 points"
    assert array.lazy[5:][::2].explain().to_dict()["selection"]["key"] == "5:60:2, :"


def test_wrong_keys_and_options(remembered):
    array = remembered("plain.zarr")
    with pytest.raises(SelectionError):
        array.explain[99]
    with pytest.raises(InvalidInputError, match="method"):
        array.explain(3, method="best")
    with pytest.raises(InvalidInputError, match="phi"):
        array.explain(3, phi=-1)


def test_a_given_profile_is_not_called_typical(folder):
    mine = replace(hs.Profile.named("s3"), latency_s=0.1)
    with hs.Session(profile=mine) as session, hs.Session(profile="s3", concurrency=3) as fewer:
        assert "s3 (as given)" in str(hs.open("memory://explain/plain.zarr", session=session).explain[0])
        assert "s3 (typical, not measured)" in str(hs.open("memory://explain/plain.zarr", session=fewer).explain[0])


def test_alternatives_that_take_long_are_left_out(remembered, monkeypatch):
    array = remembered("plain.zarr")
    monkeypatch.setattr("hyperslab.plan.explain._MOST_PAPER_CHUNKS", 8)
    explanation = array.explain[:, ::2]
    assert [other.not_tried for other in explanation.alternatives] == ["", "", "", "too many chunks (9)"]
    assert explanation.to_dict()["alternatives"][-1] == {"method": "paper", "not_tried": "too many chunks (9)"}
    monkeypatch.setattr("hyperslab.plan.explain._MOST_RANGES", 100)
    explanation = array.explain[:, ::2]
    assert re.search(r"get, merge, fetch +not tried: too many ranges \(2,700\)", repr(explanation))


def test_rich_prints_it(remembered):
    from rich.console import Console

    explanation = remembered("plain.zarr").explain[3]
    console = Console(width=100)
    with console.capture() as captured:
        console.print(explanation)
    assert [line.rstrip() for line in captured.get().splitlines()] == repr(explanation).splitlines()


def test_a_terminal_gets_colours(remembered, monkeypatch):
    explanation = remembered("plain.zarr").explain[3]
    analysis = explanation.analyze()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for told in (explanation, analysis):
        assert "\x1b[" in str(told)
        assert "\x1b[" not in repr(told)


def test_without_stdout_it_is_plain(remembered, monkeypatch):
    explanation = remembered("plain.zarr").explain[3]
    monkeypatch.setattr("sys.stdout", None)
    assert str(explanation) == repr(explanation)


def test_notebooks_get_tables(remembered):
    explanation = remembered("plain.zarr").explain[3]
    html = Analysis(explanation, explanation.run())._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 6
    assert "<script" not in html


def test_hostile_names_do_nothing(folder):
    honest = hs.open(folder / "plain.zarr").explain[3]
    told = Explanation("evil\x1b[31m<script>", honest.selection, honest.plan, honest.alternatives, honest.run)
    assert "\x1b" not in repr(told)
    assert "<script>" not in told._repr_html_()
