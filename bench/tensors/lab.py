"""Tensors on S3 at 1 Gbit/s in the lab: every layout beside a file of torch's, and the bytes of one image.

A file of torch's is put and fetched by one request, and loaded from memory. Every read of ours opens the table anew, in
a session that knows nothing: the log, a footer and the rows are all fetched.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hyperslab as hs
from bench.figures import Figure, at_least, at_most
from bench.lab import Lab
from bench.tensors.generators import pictures
from bench.tensors.local import BEST, KEYS, sparse_tensor
from bench.tensors.peers import SPARSE_LAYOUTS, ours, torch_cut, torch_tensor
from bench.timing import seconds_text
from hyperslab.execute.write import StoreWriter
from hyperslab.store import locate

__all__ = ["inside", "measure"]

ROOT = Path(__file__).resolve().parents[2]
PRESET = "same-region"
WHOLE, WARM_SHARE = 3, 1.05
IMAGES = 40


def measure(quick: bool) -> Iterator[Figure]:
    """Give the figures of one run of the lab."""
    with tempfile.TemporaryDirectory(prefix="hyperslab-tensors-") as home, Lab(PRESET, function=False) as lab:
        command = [sys.executable, "-m", "bench.tensors", "--inside", json.dumps({"quick": quick})]
        environment = {**os.environ, "HYPERSLAB_HOME": home}
        done = lab.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"the lab's client failed (exit {done.returncode})")
    found = json.loads(done.stdout.splitlines()[-1])
    for name, times in found["times"].items():
        told = ", ".join(f"{what} {seconds_text(seconds)}" for what, seconds in times.items())
        yield Figure(f"S3, {name}", "", told)
    whole = {name: times["all"] for name, times in found["times"].items()}
    yield at_least("S3: whole read against torch's file", whole["torch.save"] / whole[BEST], WHOLE)
    image = found["image"]
    cold = image["cold"] - image["footer"] - image["log"]
    yield at_most(
        "S3: bytes of one image, new handle, less footer and log", cold / image["nbytes"], WARM_SHARE,
        note=f" (footer {image['footer']:,}, log {image['log']:,})",
    )  # fmt: skip
    yield at_most("S3: bytes of one image, warm", image["warm"] / image["nbytes"], WARM_SHARE)


def inside(quick: bool) -> dict[str, Any]:
    """Measure as the lab's client."""
    lab = Lab.here()
    if lab is None:
        raise SystemExit("this part runs inside of a lab")
    tensor, rounds = sparse_tensor(quick), 2 if quick else 3
    times = {}
    for layout in SPARSE_LAYOUTS:
        kept = ours(lab.url(f"tensors/{layout}"), layout, tensor, layout, lab.storage_options)
        times[f"hyperslab {layout}"] = _times(kept.write, kept.cut, rounds)
    write, cut = _torch(lab, tensor)
    times["torch.save"] = _times(write, cut, rounds)
    return {"times": times, "image": _one_image(lab)}


def _times(write: Callable[[], None], cut: Callable[[Any], Any], rounds: int) -> dict[str, float]:
    found = {"write": _best(write, 1), "all": _best(lambda: cut(...), rounds)}
    for what, key in KEYS.items():
        found[what] = _best(lambda key=key: cut(key), rounds)
    return found


def _best(call: Callable[[], Any], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _torch(lab: Lab, tensor: Any) -> tuple[Callable[[], None], Callable[[Any], Any]]:
    import torch

    made = torch_tensor(tensor)
    store, path = locate(lab.url("tensors/x.pt"), lab.storage_options)
    session = hs.Session(timeout_s=120.0)
    writer = StoreWriter(session, store)

    def write() -> None:
        file = io.BytesIO()
        torch.save(made, file)
        writer.put(path, file.getbuffer())

    def cut(key: Any) -> Any:
        reply = writer.get(path)
        assert reply is not None
        return torch_cut(torch.load(io.BytesIO(reply.data), weights_only=True), key)

    return write, cut


def _one_image(lab: Lab) -> dict[str, int]:
    """Return the bytes that one image takes, as the session's metrics count them: cold, and with an open handle."""
    images, url = pictures(IMAGES), lab.url("tensors/images")
    kept = ours(url, "images", images, "ftsf", lab.storage_options, chunk_dims=3, rows=1)
    kept.write()
    with hs.Session() as session:
        table = hs.tensor_table(url, "r", storage_options=lab.storage_options, session=session)
        log = session.metrics.bytes
        assert np.array_equal(table["x"][17], images[17])
        cold = session.metrics.bytes
        footers = [int(file.path.split("-")[1]) for file in table._snapshot.data_of("x", [{"i0": (17, 17)}])]
        assert np.array_equal(table["x"][18], images[18])
        warm = session.metrics.bytes - cold
    assert len(footers) == 1
    return {"nbytes": images[0].nbytes, "cold": cold, "warm": warm, "log": log, "footer": footers[0]}
