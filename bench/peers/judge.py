"""The bars: what the result must show, judged from the result file alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.figures import Figure
from bench.peers.report.summary import Summary, of_result

__all__ = ["judged"]

OURS = "hyperslab"
# Those that read whole chunks, and so are held to a fifth of.
WHOLE = ("zarr_python", "tensorstore", "tiledb", "hsds")
SAMPLED = ("bert runs", "bert rows", "camera")
BY_HALF_MORE = ("vertical", "small box", *SAMPLED)
FIFTH, NEAR = 0.2, 1.05

Where = tuple[str, str]


def judged(result: Mapping[str, Any]) -> Iterator[Figure]:
    """Give a figure for each bar, preset and workload; a system that failed is not compared with."""
    cells: dict[Where, list[Summary]] = {}
    for each in of_result(result):
        cells.setdefault((each.preset, each.workload), []).append(each)
    outside = {name for name, each in result["presets"].items() if each["location"] == "internet"}
    for judge in (_bytes, _quick_same, _quick_best):
        yield from (figure for where, cell in cells.items() for figure in judge(where, cell))
    for where, cell in cells.items():
        if where[0] in outside:
            yield from _cheap(where, cell)
    yield from _near_the_best(result["reads"])


def _bytes(where: Where, cell: Sequence[Summary]) -> Iterator[Figure]:
    if where[1] not in SAMPLED:
        return
    ours = _ours(cell, "same")
    peers = {each.system: each.bytes for each in cell if each.system in WHOLE and each.layout == "same" and each.bytes}
    if ours is not None and ours.bytes is not None and peers:
        name = min(peers, key=lambda system: peers[system])
        yield _at_most(f"{_at(where)}: bytes, same chunks, of {name}'s", ours.bytes / peers[name], FIFTH)
    fetch = next((each for each in cell if each.system == OURS and each.method == "fetch"), None)
    zarrs = next((each for each in cell if each.system == "zarrs" and each.layout == "same"), None)
    if fetch is not None and zarrs is not None and fetch.bytes and zarrs.bytes:
        yield _at_most(f"{_at(where)}: bytes by fetch, of zarrs's", fetch.bytes / zarrs.bytes, 1.0)


def _quick_same(where: Where, cell: Sequence[Summary]) -> Iterator[Figure]:
    yield from _quick(where, _ours(cell, "same"), _peers(cell, "same"), 1.5 if where[1] in BY_HALF_MORE else 1.0)


def _quick_best(where: Where, cell: Sequence[Summary]) -> Iterator[Figure]:
    for layout in ("default", "best"):
        yield from _quick(where, _ours(cell, layout), _peers(cell, "best"), 1.0)


def _quick(where: Where, ours: Summary | None, peers: Sequence[Summary], bar: float) -> Iterator[Figure]:
    best = max(peers, key=lambda each: each.per_minute or 0.0, default=None)
    if ours is None or ours.per_minute is None or best is None or best.per_minute is None:
        return
    what = f"{_at(where)}: queries per minute, ours {ours.layout}, against {best.system} {best.layout}"
    ratio = ours.per_minute / best.per_minute
    yield Figure(what, f"≥ {bar:g}×", f"{ratio:.2f}× ({ours.per_minute:.0f} / {best.per_minute:.0f})", ratio >= bar)


def _cheap(where: Where, cell: Sequence[Summary]) -> Iterator[Figure]:
    if where[1] in SAMPLED:
        ours, peers = _ours(cell, "same"), [each for each in _peers(cell, "same") if each.system in WHOLE]
        yield from _dollars(where, ours, peers, FIFTH)
    saving = [each for each in cell if each.system == OURS and each.phi == "inf"]
    same = next((each for each in saving if each.layout == "same"), None)
    yield from _dollars(where, same, _peers(cell, "same"), 1.0)
    others = [each for each in saving if each.layout != "same" and each.usd is not None]
    if others:
        yield from _dollars(where, min(others, key=lambda each: each.usd or 0.0), _peers(cell, "best"), 1.0)


def _dollars(where: Where, ours: Summary | None, peers: Sequence[Summary], bar: float) -> Iterator[Figure]:
    priced = [each for each in peers if each.usd]
    if ours is None or not ours.usd or not priced:
        return
    least = min(priced, key=lambda each: each.usd or 0.0)
    how = f"ours {ours.layout}" + (", phi inf" if ours.phi == "inf" else "")
    yield _at_most(
        f"{_at(where)}: dollars, {how}, of {least.system} {least.layout}'s", ours.usd / (least.usd or 1), bar
    )


def _near_the_best(reads: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """Judge each query apart. Methods with the same plan are one and share their times; money is of phi inf."""
    queries: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for read in reads:
        if read["system"] == OURS and read["layout"] == "same" and read["error"] is None:
            queries.setdefault((read["preset"], read["workload"], read["query"]), []).append(read)
    worst: dict[tuple[Where, str], tuple[float, str]] = {}
    for (preset, name, _), mine in queries.items():
        for phi, measure in ((None, "seconds"), ("inf", "usd")):
            found = _against_forced(mine, phi, measure)
            if found is not None:
                at = (preset, name), measure
                worst[at] = max(worst.get(at, (0.0, "")), found)
    for (where, measure), (ratio, method) in worst.items():
        what = f"{_at(where)}: {measure} of the optimiser's plan, of the best forced one's"
        yield Figure(what, f"≤ {NEAR:g}", f"{ratio:.3f} ({method})", ratio <= NEAR)


def _against_forced(mine: Sequence[Mapping[str, Any]], phi: str | None, measure: str) -> tuple[float, str] | None:
    least: dict[str, float] = {}
    for read in mine:
        least[read["plan"]] = min(least.get(read["plan"], float("inf")), read[measure])
    ours = {read["plan"] for read in mine if read["method"] is None and read["phi"] == phi}
    forced = {read["plan"]: read["method"] for read in mine if read["method"] is not None}
    if not ours or not forced:
        return None
    best = min(forced, key=lambda plan: least[plan])
    return min(least[plan] for plan in ours) / least[best], forced[best]


def _ours(cell: Sequence[Summary], layout: str) -> Summary | None:
    return next((each for each in cell if each.system == OURS and each.layout == layout and each.plain), None)


def _peers(cell: Sequence[Summary], layout: str) -> list[Summary]:
    return [each for each in cell if each.system != OURS and each.layout == layout and each.per_minute is not None]


def _at(where: Where) -> str:
    return ", ".join(where)


def _at_most(what: str, ratio: float, bar: float) -> Figure:
    return Figure(what, f"≤ {bar:g}", f"{ratio:.3f}", ratio <= bar)
