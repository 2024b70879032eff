"""Zstandard: what other libraries read and write, from several threads, and after errors."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs.zstd import compress as other_compress
from numcodecs.zstd import decompress as other_decompress
from zstandard import ZstdError

from hyperslab.errors import HyperslabError
from hyperslab.layout import zstd
from hyperslab.layout.codecs import Size
from hyperslab.layout.compressors import Zstd
from hyperslab.layout.zstd import compress, decompress


def array(data):
    return np.frombuffer(data, np.uint8)


@given(st.binary(min_size=1, max_size=5000), st.integers(0, 9))
def test_others_read_what_is_written_and_the_other_way_round(data, level):
    assert bytes(other_decompress(compress(data, level))) == data
    assert decompress(array(other_compress(array(data), level)), len(data)).tobytes() == data
    assert Zstd().decode(array(compress(data, level)), Size(len(data), exact=True), "k").tobytes() == data


@given(st.binary(min_size=1, max_size=5000), st.integers(0, 9), st.integers(2, 9))
def test_frames_of_several_parts_hold_the_same(data, level, parts):
    frame = compress(data, level, parts)
    assert bytes(other_decompress(frame)) == data
    assert decompress(array(frame), len(data)).tobytes() == data


def test_parts_that_are_not_alike_have_codes_of_their_own():
    rng = np.random.default_rng(5)
    parts = [rng.integers(low, low + 16, 8192, np.uint8) for low in (0, 100, 200)]
    data = np.concatenate(parts)
    assert len(compress(data, 1, 3)) < 0.85 * len(compress(data, 1))
    assert len(compress(data, 1, 3)) < sum([len(compress(part, 1)) for part in parts])


@given(st.binary(min_size=1, max_size=300), st.data())
def test_damaged_frames_are_an_error_or_as_long_as_they_say(data, draw):
    frame = bytearray(compress(data, 1))
    frame[draw.draw(st.integers(0, len(frame) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        found = Zstd().decode(array(bytes(frame)), Size(len(data), exact=True), "k")
    except (HyperslabError, ValueError, RuntimeError, ZstdError):
        return
    assert found.nbytes == len(data)


def test_engines_serve_threads_one_at_a_time_and_not_after_an_error():
    chunks = [np.random.default_rng(n).integers(0, 4, 20_000, np.uint8).tobytes() for n in range(16)]
    frames = [array(compress(chunk, 1)) for chunk in chunks]

    def work(turn):
        if turn % 5 == 0:
            with pytest.raises(ZstdError):
                decompress(frames[turn % 16][:-2], 20_000)
        return (
            decompress(frames[turn % 16], 20_000).tobytes()
            == chunks[turn % 16]
            == decompress(array(compress(chunks[turn % 16], 1)), 20_000).tobytes()
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(400)))


def test_a_frame_that_states_another_size_is_not_unpacked():
    with pytest.raises(ValueError, match="4 bytes"):
        decompress(array(compress(b"hello", 1)), 4)


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        (b"x", RuntimeError, "invalid input data"),
        (compress(b"hello", 1), ValueError, "too small; expected at least 10, got 5"),
    ],
    ids=["garbage", "another"],
)
def test_bytes_after_the_frame_are_an_error(more, error, words):
    with pytest.raises(error, match=words):
        Zstd().decode(array(compress(b"hello", 1) + more), Size(5, exact=True), "k")


@pytest.mark.parametrize("more", [compress(b"", 1), b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"], ids=["empty", "skipped"])
def test_frames_that_hold_nothing_may_follow(more):
    decoded = Zstd().decode(array(compress(b"hello", 1) + more), Size(5, exact=True), "k")
    assert decoded.tobytes() == b"hello"


def test_large_engines_are_not_kept():
    noise = np.random.default_rng(0).integers(0, 9, 1 << 20, np.uint8)
    for level, kept in ((1, True), (19, False)):
        zstd._compressors(level).clear()
        compress(noise, level)
        assert bool(zstd._compressors(level)) is kept
