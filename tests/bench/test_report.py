"""The report of a result file that is invented from a seed: whole, without its sweeps, and with reads that failed."""

import copy
import json
import random
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.peers.report import markdown, write_report
from bench.peers.report.__main__ import main
from bench.peers.report.summary import losses, of_result, standings

TITLES = {
    "hyperslab": "Hyperslab", "zarr_python": "zarr-python", "tensorstore": "TensorStore", "zarrs": "zarrs",
    "icechunk": "Icechunk", "tiledb": "TileDB", "h5py_s3": "h5py, S3 driver", "hsds": "HSDS",
    "whole_call": "whole call", "parquet": "Parquet, DuckDB",
}  # fmt: skip
# needed bytes of a query, requests of a good plan
WORKLOADS = {
    "horizontal": ("grid", 10_747_904, 8), "vertical": ("grid", 10_747_904, 8), "small box": ("grid", 1764, 1),
    "scattered": ("grid", 44_100, 25), "bert runs": ("bert", 1_669_032, 6), "bert rows": ("bert", 1_669_032, 60),
    "camera": ("camera", 2_650_000, 2),
}  # fmt: skip
PRESETS = {"same-region": (0.019, 125e6), "internet": (0.07, 60e6)}
METHODS = ("get", "merge", "fetch", "call", "paper")
HEADINGS = (
    "At a glance", "Bars", "Where we lose", "Figures 7 and 14", "Bytes moved", "Figure 8", "Figure 9", "Predicted",
    "Figure 10", "Figure 11", "Figure 12a", "Figures 12b and 12c", "What failed", "Every figure",
)  # fmt: skip
VOID = {"meta", "path", "rect", "br"}
SWEEPS = ("phi", "chunk_sizes", "lines", "planning")


def invented(seed: int = 7) -> dict:
    """A result file whose figures hang together, as of a full run."""
    rng = random.Random(seed)
    result = {
        "made": {
            "at": "2026-11-16T05:00:00Z", "commit": "abc123", "dirty": True, "scale": "full", "seconds": 1800.0,
            "machine": {"cpu": "A processor", "cores": 2, "memory_gb": 8, "kernel": "6.1", "python": "3.11.2"},
            "versions": {"zarr": "3.1.6", "tensorstore": "0.1.86"},
        },
        "presets": {
            name: {"why": f"why {name} & so", "latency_s": latency, "bytes_per_s": rate, "location": name}
            for name, (latency, rate) in PRESETS.items()
        },
        "workloads": {
            name: {"about": f"about {name}", "dataset": data, "needed_bytes": [needed] * 3}
            for name, (data, needed, _) in WORKLOADS.items()
        },
        "systems": {
            name: {
                "title": title, "ours": name == "hyperslab",
                "layouts": {layout: f"{layout} of {name}" for layout in _layouts(name)},
            }
            for name, title in TITLES.items()
        },
        "bars": [
            {"what": "quicker than TileDB, horizontal", "bar": "≥ 1.5×", "figure": "2.1×", "passed": True, "note": ""},
            {"what": "predictions", "bar": "< 20%", "figure": "31%", "passed": False, "note": "scattered is <off>"},
            {"what": "φ", "bar": "lower", "figure": 12.3, "passed": None, "note": None},
        ],
    }  # fmt: skip
    result["reads"] = list(_reads(rng))
    result["opens"] = [
        {"preset": preset, "dataset": data, "system": system, "layout": layout, "seconds": rng.uniform(0.05, 0.6),
         "requests": rng.randint(1, 20), "bytes": rng.randint(500, 90_000)}
        for preset in PRESETS for data in ("grid", "bert", "camera") for system in TITLES for layout in ("same", "best")
    ]  # fmt: skip
    result["phi"] = [
        {"preset": preset, "phi": phi, "seconds": 1 + n * 0.2, "predicted_s": 1.1 + n * 0.19, "usd": 2e-4 / (1 + n),
         "requests": 8 + n, "calls": 8 - n, "bytes": 11_000_000 + n * 900_000}
        for preset in PRESETS for n, phi in enumerate([0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, "inf"])
    ]  # fmt: skip
    result["chunk_sizes"] = [
        {"preset": "internet", "chunk_bytes": 1 << size, "chunks": [1 << size // 2 - 1, 1 << size // 2 - 1],
         "workload": workload, "system": system, "method": method, "requests": 9, "bytes": 999,
         "usd": rng.uniform(1, 3) * 1e-5 * (1 + 1e6 / (1 << size)),
         "seconds": [rng.uniform(0.8, 1.3) * (0.1 + 200 / (1 << size // 2)) for _ in range(3)]}
        for workload in ("horizontal", "vertical", "small box")
        for system, method in (("hyperslab", None), ("hyperslab", "get"), ("zarrs", None), ("tiledb", None))
        for size in range(12, 29, 2)
    ]  # fmt: skip
    result["lines"] = [
        {"axis": axis, "value": value, "workload": "horizontal", "method": method, "bytes": 11_000_000,
         "needed_bytes": 10_747_904, "seconds": [(0.3 + 0.2 * n) * rng.uniform(0.95, 1.05) * scale for _ in range(3)]}
        for axis, values in (("bandwidth", (10e6, 30e6, 60e6, 125e6)), ("latency", (0.02, 0.05, 0.1, 0.2)))
        for value in values
        for scale in [60e6 / value if axis == "bandwidth" else 1 + 10 * value]
        for n, method in enumerate((None, "merge", "call", "get", "fetch"))
    ]  # fmt: skip
    result["planning"] = [
        {"array_bytes": size << 30, "chunks": size * 64, "workload": workload, "requests": 40,
         "seconds": 1e-3 * rng.uniform(1, 1.2) * size**0.1, "function_seconds": 2e-3, "needed_bytes": 10_747_904}
        for workload in ("horizontal", "vertical") for size in (1, 16, 64, 512, 2048)
    ]  # fmt: skip
    return result


def _layouts(system: str) -> tuple[str, ...]:
    return ("same", "default", "best") if system == "hyperslab" else ("same", "best")


def _variants(system: str, layout: str, workload: str) -> list[tuple[str | None, str | None]]:
    if (system, layout) != ("hyperslab", "same"):
        return [(None, None)]
    return [(None, None), *((method, None) for method in METHODS), *[(None, "inf")] * (workload == "vertical")]


def _reads(rng: random.Random):
    for preset, workload, system in product(PRESETS, WORKLOADS, TITLES):
        slower = rng.uniform(0.7, 6)
        for layout in _layouts(system):
            for method, phi in _variants(system, layout, workload):
                for read in _rounds(rng, preset, workload, system == "hyperslab", method, slower):
                    named = {"preset": preset, "workload": workload, "system": system, "layout": layout}
                    yield {**named, "method": method, "phi": phi, **read}


def _rounds(rng: random.Random, preset: str, workload: str, ours: bool, method: str | None, slower: float):
    (latency, rate), (_, needed, good) = PRESETS[preset], WORKLOADS[workload]
    planned = ours and method is None
    waste = rng.uniform(1, 1.3) if planned else rng.uniform(1.2, 1.5) * max(1, 30 * slower / needed**0.3)
    moved = int(needed * waste)
    requests = 0 if method == "call" else max(1, round(good * waste))
    calls = good if method == "call" else good // 4 * ours
    base = latency * (1 + requests / 16) + moved / rate
    usd = 4e-7 * requests + 2e-6 * calls + moved * (9e-11 if preset == "internet" else 0)
    for query, round_ in product(range(3), range(2)):
        yield {
            "query": query, "round": round_, "seconds": base * rng.uniform(0.95, 1.3) * (1 if ours else slower**0.3),
            "requests": requests, "calls": calls, "bytes": moved, "sent_bytes": 300 * requests,
            "inside_requests": calls, "inside_bytes": calls << 24, "usd": usd,
            "predicted_s": base * rng.uniform(0.8, 1.25) if ours else None, "predicted_usd": usd if ours else None,
            "gets": requests // 3 if ours else None, "error": None,
        }  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> dict:
    return invented()


@pytest.fixture(scope="module")
def page(whole, tmp_path_factory) -> str:
    return written(whole, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def failing(whole) -> dict:
    """HSDS fails on one workload, a read of zarrs took no time, one of Icechunk NaN, and we fail on one layout."""
    result = copy.deepcopy(whole)
    for read in result["reads"]:
        where = (read["system"], read["workload"], read["layout"])
        if where == ("hsds", "camera", "same"):
            read.update(seconds=0.0, usd=0.0, error='ValueError: <script>alert("x")</script> & \x1b[31m')
        elif where == ("zarrs", "camera", "same") and read["query"] == 1:
            read["seconds"] = 0.0
        elif where == ("icechunk", "camera", "same"):
            read["seconds"] = float("nan")
        elif where == ("hyperslab", "small box", "best"):
            read.update(seconds=0.0, error="HyperslabError: no")
    result["chunk_sizes"][0].update(seconds=[], requests=None, bytes=None, usd=None, error="Failed: <took> too long")
    result["opens"][0].update(seconds=float("nan"), error="OSError: cannot be opened")
    result["chunk_sizes"][1]["seconds"] = [0.0]
    result["lines"][0]["seconds"] = [float("nan")]
    result["phi"][0]["seconds"] = float("nan")
    result["planning"][0]["seconds"] = 0
    return result


def written(result: dict, tmp_path: Path) -> str:
    path = tmp_path / "report.html"
    write_report(result, path)
    return path.read_text(encoding="utf-8")


class Balance(HTMLParser):
    """Elements that are open, and whatever links there are."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.links, self.seen = [], [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(html: str) -> ElementTree.Element:
    """Assert that a page is whole and needs nothing from outside; return its tree."""
    balance = Balance()
    balance.feed(html)
    assert not balance.open
    assert "script" not in balance.seen
    root = ElementTree.fromstring(html)
    marks = {f"#{each.get('id')}" for each in root.iter("section")}
    assert set(balance.links) == marks
    assert "http" not in html
    assert "url(" not in html
    assert ">nan<" not in html
    return root


def test_page_has_every_section_and_works_alone(page):
    root = checked(page)
    titles = " ".join("".join(each.itertext()) for each in root.iter("h2"))
    for heading in HEADINGS:
        assert heading in titles
    text = "".join(root.itertext())
    for said in ("abc123", "not committed", "make bench-full", "why internet & so", "✗ missed", "scattered is <off>"):
        assert said in text
    assert "Not in this file" not in text
    charts = [svg for svg in root.iter("svg") if svg.get("role") == "img"]
    assert len(charts) > 60
    assert all([svg.find("title") is not None and svg.find("title").text for svg in charts])


def test_each_system_looks_the_same_everywhere_and_differs_from_others(page):
    root = checked(page)
    legend = next(each for each in root.iter("ul") if each.get("class") == "legend")
    samples = [each.find("svg").find("path") for each in legend.findall("li")][: len(TITLES)]
    assert len({(each.get("class"), each.get("d")) for each in samples}) == len(TITLES)
    assert len({each.get("d") for each in samples}) == len(TITLES)
    theirs = [
        each
        for each in root.iter("path")
        if (title := each.find("title")) is not None and title.text.startswith("TileDB,")
    ]
    assert theirs
    assert {each.get("class").split()[1] for each in theirs} == {samples[5].get("class").split()[1]}


def test_same_file_gives_the_same_page(whole, page, tmp_path):
    again = json.loads(json.dumps(whole))
    assert written(again, tmp_path) == page
    assert markdown(whole) == markdown(again)


def test_sections_that_were_not_measured_say_what_makes_them(whole, tmp_path):
    quick = {name: value for name, value in whole.items() if name not in SWEEPS}
    text = "".join(checked(written(quick, tmp_path)).itertext())
    assert text.count("Not in this file; make bench-full makes it.") == 4
    empty = "".join(checked(written({}, tmp_path)).itertext())
    assert "Not in this file; make bench makes it." in empty
    assert markdown({}).startswith("### Where we lose")


def test_failed_reads_are_told_and_not_drawn(failing, tmp_path):
    html = written(failing, tmp_path)
    text = "".join(checked(html).itertext())
    assert "ValueError: <script>alert" in text
    assert "<script" not in html
    assert "\x1b" not in html
    for said in ("took nan seconds", "Failed: <took> too long", "OSError: cannot be opened"):
        assert said in text
    assert "took 0.0 seconds" in text
    told = {(each.system, each.workload) for each in of_result(failing) if each.error is not None}
    assert told == {("hsds", "camera"), ("zarrs", "camera"), ("icechunk", "camera"), ("hyperslab", "small box")}


def test_losses_are_all_cases_where_a_peer_is_better(failing):
    summaries = of_result(failing)
    found = losses(summaries)
    assert found
    assert all(loss.factor is None or loss.factor > 1 for loss in found)
    lost = {(loss.preset, loss.workload, loss.rule, loss.measure) for loss in found}
    for each in standings(summaries):
        assert ((each.preset, each.workload, each.rule, each.measure) in lost) == (each.factor < 1)


def test_losing_nowhere_is_said(whole, tmp_path):
    result = copy.deepcopy(whole)
    for read in result["reads"]:
        if read["system"] != "hyperslab":
            read["seconds"], read["usd"] = read["seconds"] * 1000, read["usd"] + 1
    assert "Nowhere in this file" in written(result, tmp_path)
    assert "Nowhere: no peer" in markdown(result)


def test_reads_that_we_failed_are_lost(whole):
    result = copy.deepcopy(whole)
    for read in result["reads"]:
        if read["system"] == "hyperslab" and read["workload"] == "camera":
            read["error"] = "no"
    first, *_ = losses(of_result(result))
    assert first.workload == "camera"
    assert first.factor is None
    assert "we failed" in markdown(result)


def test_markdown_has_a_table_for_each_thing_that_was_varied(failing):
    _, _, text = markdown(failing).partition("### One thing varied at a time\n")
    text, _, _ = text.partition("### ")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert sum(line.startswith("| --- ") for line in rows) == 1 + 3 + 2 + 1  # phi, chunks, lines, planning
    assert sum(" φ |" in line for line in rows) == 1
    assert sum(line.count("failed") for line in rows) == 2
    assert "nan" not in text


def test_markdown_has_a_row_for_every_system(failing):
    text = markdown({name: rows for name, rows in failing.items() if name not in SWEEPS})
    assert text.count("### ") == len(PRESETS) + 1
    for title in TITLES.values():
        assert text.count(f"| {title}, same |") == 3 * len(PRESETS)
    assert "failed" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {len(WORKLOADS) + 2}


def test_command_writes_page_and_markdown(whole, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(whole))
    for name, start in (("r.html", "<!DOCTYPE html>"), ("r.md", "### same-region")):
        main([str(tmp_path / "r.json"), str(tmp_path / name)])
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
