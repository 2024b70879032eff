"""Tensors on the local disk: every layout and every other system, write, read all, read slices; against the bars."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.figures import Figure, at_least, at_most
from bench.tensors.generators import PICKUPS_SHAPE, pickups, pictures
from bench.tensors.peers import Kept, dense_systems, sparse_systems
from bench.timing import race, seconds_text
from hyperslab.tensors import Coo

__all__ = ["KEYS", "dense", "dense_images", "sparse", "sparse_tensor"]

KEYS: dict[str, Any] = {
    "X[i]": np.s_[91], "X[:, i]": np.s_[:, 17], "X[:, :, i]": np.s_[:, :, 668], "X[…, i]": np.s_[:, :, :, 668],
}  # fmt: skip
BEST = "hyperslab bsgs"
SIZE_SHARE, NEW, OPEN, OTHER, WHOLE, WRITE = 0.025, 20, 100, 5, 0.5, 3
DENSE_NPY, DENSE_ZARR, DENSE_WRITE = 10, 1, 1.5


def sparse_tensor(quick: bool) -> Coo:
    """Return the tensor of pickups, values as float32."""
    coords, counts = pickups(200_000) if quick else pickups()
    return Coo.of(PICKUPS_SHAPE, coords, counts.astype(np.float32))


def dense_images(quick: bool) -> np.ndarray:
    return pictures(250 if quick else 1000)


def sparse(quick: bool) -> Iterator[Figure]:
    tensor, rounds = sparse_tensor(quick), 3 if quick else 5
    with tempfile.TemporaryDirectory(prefix="hyperslab-tensors-") as folder:
        systems = sparse_systems(Path(folder), tensor)
        write = race({name: kept.write for name, kept in systems.items()}, rounds=2, batch_s=0)
        sizes = {name: kept.nbytes for name, kept in systems.items()}
        _check(systems, tensor)
        whole = race({name: kept.read for name, kept in systems.items()}, rounds=rounds, batch_s=0)
        slices = {
            what: race({name: _bound(kept, key) for name, kept in systems.items()}, rounds=rounds, batch_s=0)
            for what, key in KEYS.items()
        }
        opened = systems[BEST].opened
        assert opened is not None
        cut = opened()
        calls = {"open": lambda: cut(KEYS["X[i]"]), "torch": _bound(systems["torch.save"], KEYS["X[i]"])}
        held = race(calls, rounds=rounds, batch_s=0.05)
    for name in systems:
        cuts = ", ".join(f"{what} {seconds_text(slices[what][name].best_s)}" for what in KEYS)
        yield Figure(
            f"sparse, {name}", "",
            f"{sizes[name] / 1e6:.2f} MB, write {seconds_text(write[name].best_s)}, "
            f"all {seconds_text(whole[name].best_s)}, {cuts}",
        )  # fmt: skip
    pt = "torch.save"
    yield at_most("size of bsgs against torch.save", 100 * sizes[BEST] / sizes[pt], 100 * SIZE_SHARE, "%")
    first = slices["X[i]"]
    yield at_least("X[i], new handle, against torch.load", first[pt].best_s / first[BEST].best_s, NEW)
    yield at_least("X[i], open handle, against torch.load", held["torch"].best_s / held["open"].best_s, OPEN)
    for what in list(KEYS)[1:]:
        ratio = slices[what][pt].best_s / slices[what][BEST].best_s
        yield at_least(f"{what}, new handle, against torch.load", ratio, OTHER)
    yield at_least("whole read against torch.load", whole[pt].best_s / whole[BEST].best_s, WHOLE)
    yield at_most("write against torch.save", write[BEST].best_s / write[pt].best_s, WRITE)


def _bound(kept: Kept, key: Any) -> Any:
    return lambda: kept.cut(key)


def _check(systems: dict[str, Kept], tensor: Coo) -> None:
    """Refuse to time a system that finds another number of cells, or other cells than it should."""
    for name, kept in systems.items():
        if kept.count(kept.read()) != tensor.nnz:
            raise AssertionError(f"{name} has other cells than were written")
        for what, key in KEYS.items():
            axis = len(key) - 1 if isinstance(key, tuple) else 0
            at = key[-1] if isinstance(key, tuple) else key
            if kept.count(kept.cut(key)) != int((tensor.coords[axis] == at).sum()):
                raise AssertionError(f"{name} has other cells in {what}")


def dense(quick: bool) -> Iterator[Figure]:
    images, rounds = dense_images(quick), 5 if quick else 9
    low, some = len(images) // 2, len(images) // 50
    key = np.s_[low : low + some]
    with tempfile.TemporaryDirectory(prefix="hyperslab-tensors-") as folder:
        systems = dense_systems(Path(folder), images)
        write = race({name: kept.write for name, kept in systems.items()}, rounds=3, batch_s=0)
        sizes = {name: kept.nbytes for name, kept in systems.items()}
        for name, kept in systems.items():
            if not (np.asarray(kept.cut(key)) == images[key]).all() or not (np.asarray(kept.read()) == images).all():
                raise AssertionError(f"{name} has other images than were written")
        whole = race({name: kept.read for name, kept in systems.items()}, rounds=3, batch_s=0)
        cuts = race({name: _bound(kept, key) for name, kept in systems.items()}, rounds=rounds, batch_s=0)
    for name in systems:
        yield Figure(
            f"dense, {name}", "",
            f"{sizes[name] / 1e6:.1f} MB, write {seconds_text(write[name].best_s)}, "
            f"all {seconds_text(whole[name].best_s)}, 2% {seconds_text(cuts[name].best_s)}",
        )  # fmt: skip
    mine = "hyperslab ftsf"
    yield at_least("2% of images against np.load", cuts["np.save"].best_s / cuts[mine].best_s, DENSE_NPY)
    yield at_least("2% of images against zarr", cuts["zarr"].best_s / cuts[mine].best_s, DENSE_ZARR)
    yield at_most("dense write against zarr", write[mine].best_s / write["zarr"].best_s, DENSE_WRITE)
