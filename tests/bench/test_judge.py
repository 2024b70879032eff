"""The bars, judged from invented results."""

import pytest

from bench.peers.judge import judged

PRESETS = {"internet": {"location": "internet"}}


def row(system, seconds, *, layout="same", workload="camera", nbytes=1000, usd=1e-6, method=None, phi=None, plan="a"):
    return {
        "preset": "internet", "workload": workload, "system": system, "layout": layout, "method": method, "phi": phi,
        "query": 0, "round": 0, "seconds": seconds, "requests": 1, "calls": 0, "bytes": nbytes, "sent_bytes": 0,
        "inside_requests": 0, "inside_bytes": 0, "usd": usd, "predicted_s": None, "predicted_usd": None, "gets": None,
        "plan": plan, "error": None,
    }  # fmt: skip


def bars(*reads):
    result = {"presets": PRESETS, "workloads": {}, "reads": list(reads)}
    return {figure.what: (figure.passed, figure.figure) for figure in judged(result)}


@pytest.mark.parametrize(("ours", "held"), [(200, True), (201, False)])
def test_bytes_are_held_to_a_fifth_of_the_best_of_those_who_read_whole_chunks(ours, held):
    found = bars(
        row("hyperslab", 0.1, nbytes=ours), row("zarr_python", 1, nbytes=2000), row("tensorstore", 1, nbytes=1000)
    )
    assert found["internet, camera: bytes, same chunks, of tensorstore's"][0] is held


@pytest.mark.parametrize(("workload", "held"), [("camera", False), ("horizontal", True)])
def test_some_workloads_must_be_half_as_quick_again(workload, held):
    found = bars(row("hyperslab", 1.0, workload=workload), row("zarrs", 1.2, workload=workload))
    what = f"internet, {workload}: queries per minute, ours same, against zarrs same"
    assert found[what] == (held, "1.20× (60 / 50)")


def test_layouts_of_our_own_are_held_against_the_peers_best_one():
    found = bars(
        row("hyperslab", 2.0, layout="default"), row("hyperslab", 0.5, layout="best"), row("zarrs", 0.1),
        row("zarrs", 1.0, layout="best"),
    )  # fmt: skip
    held = {what.split("ours ")[1]: passed for what, (passed, _) in found.items() if "per minute" in what}
    assert held == {"default, against zarrs best": False, "best, against zarrs best": True}


def test_money_is_judged_from_outside_the_region():
    reads = [row("hyperslab", 1.0, usd=2e-6, phi="inf"), row("zarrs", 1.0, usd=1e-6)]
    assert bars(*reads)["internet, camera: dollars, ours same, phi inf, of zarrs same's"] == (False, "2.000")
    result = {"presets": {"internet": {"location": "same-region"}}, "workloads": {}, "reads": reads}
    assert not [figure for figure in judged(result) if "dollars" in figure.what]


def test_methods_with_the_same_plan_are_one():
    slower, forced = row("hyperslab", 1.2, plan="a"), row("hyperslab", 1.0, method="fetch", plan="a")
    what = "internet, camera: seconds of the optimiser's plan, of the best forced one's"
    assert bars(slower, forced)[what] == (True, "1.000 (fetch)")
    assert bars(slower, {**forced, "plan": "b"})[what] == (False, "1.200 (fetch)")


def test_who_failed_is_not_compared_with():
    found = bars(row("hyperslab", 1.0), {**row("zarrs", 0.1), "error": "wrong cells"})
    assert not [what for what in found if "zarrs" in what]
