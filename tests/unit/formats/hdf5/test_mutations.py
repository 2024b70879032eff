"""Good files with bytes changed or cut off: a typed error or a value, quickly and in little memory, nothing else.

Checksums would hide most of the parser from changed bytes, so half of the runs do without them.
"""

import random
import time
import tracemalloc
from functools import cache
from types import ModuleType

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hdf5_files import LIBVERS, file_bytes, opened, read_everything
from support.profiles import times

from hyperslab.errors import HyperslabError
from hyperslab.formats.hdf5 import btree2, fractal, header, shared, superblock

# Of processor time: a busy machine does not count.
MOST_S, MOST_BYTES = 2.0, 256 << 20
EDGES = [
    bytes(8),
    b"\xff" * 8,
    (2**62).to_bytes(8, "little"),
    (2**31).to_bytes(4, "little"),
    b"\xff\xff",
    b"\x7f",
    b"\x80",
]


def everything(file: h5py.File) -> None:
    """A little of all that the parser knows."""
    chunks = {"chunks": (2, 3), "compression": "gzip", "shuffle": True, "maxshape": (None, 6)}
    file.create_dataset("a/b/chunks", data=np.arange(24.0).reshape(4, 6), **chunks)
    file["scalar"] = np.float32(3)
    file["scalar"].attrs.update({"unit": "m", "several": np.arange(3), "texts": np.array([b"ab", b"c"])})
    file["strings"] = ["hello", "wörld", ""]
    file["complex"], file["flags"] = np.zeros(3, complex), np.array([True, False])
    file["record"] = np.zeros(3, [("a", "i4"), ("b", "S3"), ("c", "f8", (2,)), ("d", [("e", "u1")])])
    file["enum"] = np.array([5], h5py.enum_dtype({"A": 1, "B": 5}, "i2"))
    for number in range(30):
        file.create_group(f"many/g{number}")
        file.attrs[f"a{number}"] = [number] * number if number else "zero"
    file["soft"], file["out"] = h5py.SoftLink("/a/b"), h5py.ExternalLink("other.h5", "/x")
    file["kind"] = np.dtype("i4,f8")
    file.create_dataset("typed", (3,), file["kind"])
    ragged = file.create_dataset("ragged", (3,), h5py.vlen_dtype("i4"))
    ragged[0], ragged[2] = [1, 2, 3], [4]
    file["a/scale"] = np.arange(4)
    file["a/scale"].make_scale("scale")
    file["a/b/chunks"].dims[0].attach_scale(file["a/scale"])
    file["a/b/chunks"].dims[1].label = "label"


@cache
def good_files() -> tuple[bytes, ...]:
    return tuple(
        file_bytes(everything, libver=libver, track_order=order) for libver in LIBVERS for order in (False, True)
    )


class _Same:
    """A checksum that always holds."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> np.bool_:  # type: ignore[override]
        return np.False_


@pytest.fixture(params=["guarded", "unguarded"])
def checksums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    modules: list[ModuleType] = [btree2, fractal, header, shared, superblock] * (request.param == "unguarded")
    for module in modules:
        for name in ("lookup3", "lookup3_many"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda _: _Same())
        if hasattr(module, "lookup3_each"):
            monkeypatch.setattr(module, "lookup3_each", lambda buffers: [_Same()] * len(buffers))
    return request.param


def outcome(data: bytes) -> str:
    """Look at everything in a file and return how that ended; anything but a typed error goes through."""
    began = time.process_time()
    try:
        read_everything(data)
        found = "read"
    except HyperslabError as error:
        found = type(error).__name__
    assert time.process_time() - began < MOST_S
    return found


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(min(len(changed), rng.choice([300, 3000, len(changed)])))
        match rng.randrange(4):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                edge = rng.choice(EDGES)
                changed[at : at + len(edge)] = edge
            case 2:
                changed[at : at + 8] = rng.randrange(len(data)).to_bytes(8, "little")
            case 3:
                changed[at : at + 4] = rng.randbytes(4)
    return bytes(changed)


def test_good_files_are_good() -> None:
    assert {read_everything(data) for data in good_files()} == {46}


def test_changed_bytes(checksums: str) -> None:
    rng = random.Random(f"changed {checksums}")
    found = {outcome(mutated(rng, rng.choice(good_files()))) for _ in range(times(200, 30_000))}
    assert found >= {"read", "MetadataError", "IntegrityError"}


def test_changed_bytes_take_little_memory(checksums: str) -> None:
    rng = random.Random(f"memory {checksums}")
    cases = [mutated(rng, rng.choice(good_files())) for _ in range(times(20, 3000))]
    tracemalloc.start()
    for case in cases:
        outcome(case)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < MOST_BYTES


def test_files_that_end_early(checksums: str) -> None:
    rng = random.Random(f"cut {checksums}")
    for _ in range(times(100)):
        data = rng.choice(good_files())
        assert outcome(data[: rng.randrange(8, len(data))]) != "read"


def test_parts_of_files_swapped(checksums: str) -> None:
    rng = random.Random(f"swapped {checksums}")
    for _ in range(times(100)):
        changed = bytearray(rng.choice(good_files()))
        nbytes = rng.choice([8, 64, 512, 4096])
        one, two = (rng.randrange(48, len(changed) - nbytes) for _ in range(2))
        changed[one : one + nbytes] = changed[two : two + nbytes]
        outcome(bytes(changed))


@given(st.binary(max_size=400), st.sampled_from([0, 1, 2, 3]))
def test_noise_behind_a_signature(noise: bytes, version: int) -> None:
    outcome(superblock.SIGNATURE + bytes([version]) + noise)
    outcome(noise)


def test_every_bit_of_guarded_metadata() -> None:
    """Where all metadata has a checksum, no flipped bit of it gives another answer."""

    def fill(file: h5py.File) -> None:
        file.create_dataset("x", (6,), "i4", chunks=(2,), fillvalue=3).attrs["a"] = 5
        file.create_group("g").attrs["b"] = np.arange(4)

    def answer(data: bytes) -> str:
        file = opened(data)
        found = file.find("x")
        return repr([found.shape, found.datatype, found.fill, found.storage, found.attrs(), file.find("g").attrs(),
                     file.root.kinds()])  # fmt: skip

    data = file_bytes(fill, libver="latest")
    expected, seen = answer(data), 0
    for bit in range(8 * 8, 8 * len(data), 5):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            # What a bit may change is free space, which nothing refers to.
            assert answer(bytes(changed)) == expected
        except HyperslabError:
            seen += 1
    assert seen > 8 * len(data) / 5 / 4
