"""Logs that were torn, damaged, or made by somebody else: skipped or refused, in bounded memory."""

import contextlib
import json
import os
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hyperslab as hs
from hyperslab.errors import FormatError, HyperslabError, IntegrityError, InvalidInputError
from hyperslab.workload import frames
from hyperslab.workload.columns import decode
from hyperslab.workload.frames import MAGIC, Skipped, append, frame, payloads

quick = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The bytes of a log of three frames, and the reads in it."""
    folder = tmp_path_factory.mktemp("good")
    np.save(folder / "a.npy", np.zeros((20, 30), "i4"))
    array = hs.open(folder / "a.npy")
    for number in range(3):
        with hs.record(folder / "w.hslog"):
            array[number], array[[1, 3, 9], number], array.points[[1, 2], [3, 4]]
    data = (folder / "w.hslog").read_bytes()
    # The first read of each is written at once.
    assert data.count(MAGIC) == 6
    return data


def load(folder, data):
    (folder / "x.hslog").write_bytes(data)
    return hs.Workload.load(folder / "x.hslog")


def test_what_is_torn_or_foreign_is_skipped_and_counted(tmp_path, good):
    assert len(load(tmp_path, good)) == 9
    second = good.index(MAGIC, 1)
    torn = load(tmp_path, good[:second] + good[second : second + 30] + b"noise" + good[second:])
    assert (len(torn), torn.skipped_frames, torn.skipped_bytes) == (9, 1, 35)
    last = good.rindex(MAGIC)
    cut = load(tmp_path, good[:-3])
    assert (len(cut), cut.skipped_frames, cut.skipped_bytes) == (7, 1, len(good) - 3 - last)
    noise = load(tmp_path, b"\0" * 3_000_000 + good)
    assert (len(noise), noise.skipped_frames, noise.skipped_bytes) == (9, 0, 3_000_000)
    empty = load(tmp_path, b"")
    assert (len(empty), empty.skipped_bytes) == (0, 0)


def test_a_magic_over_the_border_of_two_blocks_is_found(tmp_path, good, monkeypatch):
    monkeypatch.setattr(frames, "_BLOCK_BYTES", 64)
    for noise in range(50, 75):
        found = load(tmp_path, b"x" * noise + good)
        assert (len(found), found.skipped_bytes) == (9, noise)


@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
@quick
def test_flipped_bytes_lose_only_their_frames(tmp_path, good, flips):
    data = bytearray(good)
    for where, change in flips:
        data[int(where * len(data))] ^= change
    found = load(tmp_path, bytes(data))
    damaged = {good[: int(where * len(good)) + 1].count(MAGIC) for where, _ in flips}
    assert len(found) >= 9 - 2 * len(damaged)
    assert found.skipped_bytes > 0 or bytes(data) == good


@given(noise=st.binary(max_size=300), inside=st.booleans())
@quick
def test_random_bytes_give_nothing(tmp_path, noise, inside):
    if not inside and not MAGIC.startswith(noise[: len(MAGIC)]):
        with pytest.raises(FormatError, match=r"is not a log|is no workload"):
            load(tmp_path, noise)
        return
    found = load(tmp_path, frame(noise) if inside else noise)
    assert len(found) == 0
    assert found.skipped_bytes >= len(noise)


def payload_of(good):
    return good[16 : 16 + struct.unpack_from("<I", good, 12)[0]]


@given(where=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
@quick
def test_a_payload_that_somebody_changed_is_understood_or_refused(good, where, change):
    payload = bytearray(payload_of(good))
    payload[int(where * len(payload))] ^= change
    try:
        records = decode(bytes(payload))
    except FormatError:
        return
    workload = hs.Workload(records)
    workload.selections(), workload.boxes(), str(workload.summary())


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "reads": st.sampled_from([-1, 2, 10**6, 2**61, 2**70, "1", None, 1.5]),
            "axes": st.sampled_from([0, 3, 10**9, 2**62, -1]),
            "cells": st.sampled_from([-1, 1, 10**9]),
            "types": st.lists(st.sampled_from(["<i1", "<i8", "|O", "<f8", 0, -1, 2**63, None, True]), max_size=20),
            "arrays": st.sampled_from(
                [[], None, [[]], [["a", [2**62], "i4", 4, [1], None]], [["a", [1] * 65, "", 1, [1] * 65, None]]]
            ),
            "errors": st.sampled_from([[], None, [3], ["x" * 70_000]]),
            "host": st.sampled_from([None, 5, "h"]),
            "version": st.sampled_from([0, 2, "1"]),
        },
    )
)
@quick
def test_a_head_that_lies_is_refused(good, lies):
    payload = payload_of(good)
    length = struct.unpack_from("<I", payload)[0]
    head = json.loads(payload[4 : 4 + length]) | lies
    text = json.dumps(head).encode()
    try:
        found = decode(struct.pack("<I", len(text)) + text + payload[4 + length :])
    except FormatError:
        return
    hs.Workload(found).summary()


def test_a_short_frame_cannot_claim_much_memory(tmp_path):
    head = {
        "version": 1, "host": "", "pid": 1, "run": "", "reads": 10**8, "axes": 0, "cells": 0, "methods": [None],
        "errors": [None], "arrays": [["a", [], "i4", 4, [], None]], "types": [0] * 12 + ["<i1"] * 4,
    }  # fmt: skip
    text = json.dumps(head).encode()
    hostile = frame(struct.pack("<I", len(text)) + text) * 50
    tracemalloc.start()
    try:
        found = load(tmp_path, hostile)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert (len(found), found.skipped_frames) == (0, 50)


def test_frames_that_overlap_one_another_are_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "MOST_PAYLOAD_BYTES", 1 << 16)
    (tmp_path / "x.hslog").write_bytes((MAGIC + struct.pack("<II", 0, 60_000)) * 10_000)
    with pytest.raises(IntegrityError, match="damaged all over"):
        list(payloads(str(tmp_path / "x.hslog"), Skipped()))


def test_every_error_is_typed(tmp_path):
    for name, data in {"a.hslog": MAGIC * 1000, "b.parquet": MAGIC}.items():
        (tmp_path / name).write_bytes(data)
        with contextlib.suppress(HyperslabError):
            hs.Workload.load(tmp_path / name)


@pytest.mark.parametrize("path", [5, None, b"w.hslog", "", "a\0b"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InvalidInputError, match="named by its path"):
        hs.Workload.load(path)


@pytest.mark.timeout(30)
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="not a file"):
        hs.Workload.load(tmp_path / "pipe")
    with pytest.raises(InvalidInputError), hs.record(tmp_path / "pipe"):
        raise AssertionError
    with pytest.raises(InvalidInputError, match="not a file"):
        hs.Workload.load("/dev/zero")


def test_appending_keeps_what_is_there(tmp_path):
    path = str(tmp_path / "x.hslog")
    for text in (b"one", b"two"):
        append(path, frame(text))
    assert list(payloads(path, Skipped())) == [b"one", b"two"]
