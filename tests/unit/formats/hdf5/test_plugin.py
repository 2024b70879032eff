"""Filters in a process of their own: what crashes there is a typed error here, and nothing is left behind."""

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import times

from hyperslab.errors import ChunkSizeError, HyperslabError, IntegrityError, UnsupportedError
from hyperslab.formats.hdf5 import plugin, plugin_child
from hyperslab.formats.hdf5.plugin import PluginFilter
from hyperslab.layout.codecs import Size

KEY = "file.h5/a/0.1"
CELLS = np.random.default_rng(0).integers(0, 9, 4096).astype("<i4")
# A filter that the library has itself; here its work is done over there.
DEFLATE, STORED = PluginFilter(1, "deflate", (6,)), zlib.compress(CELLS.tobytes())


def decode(codec: PluginFilter, stored: bytes, nbytes: int = CELLS.nbytes, *, exact: bool = True) -> bytes:
    return codec.decode(np.frombuffer(stored, np.uint8), Size(nbytes, exact), KEY).tobytes()


def pids() -> list[int]:
    return [child.process.pid for child in plugin._children._all]


@pytest.fixture
def fresh(monkeypatch):
    """No process yet, and none left after the test."""
    plugin._children.close()
    yield
    plugin._children.close()


@pytest.fixture
def rigged(monkeypatch, tmp_path, fresh):
    """A child that does as the chunk says."""
    program = tmp_path / "rigged.py"
    program.write_text(
        Path(plugin_child.__file__)
        .read_text(encoding="utf-8")
        .replace(
            'if __name__ == "__main__":\n    main()\n',
            textwrap.dedent("""
            import os, time
            real = _Tap.answer
            def answer(self, number, most_nbytes, file):
                if file.endswith(b"crash"):
                    os.kill(os.getpid(), signal.SIGSEGV)
                if file.endswith(b"once") and not os.path.exists(__file__ + ".done"):
                    open(__file__ + ".done", "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
                if file.endswith(b"hang"):
                    time.sleep(1000)
                if file.endswith(b"long"):
                    return DECODED, bytes(1 << 20)
                if file.endswith(b"raise"):
                    raise RuntimeError
                if file.endswith(b"exit"):
                    os._exit(0)
                if file.endswith(b"once"):
                    return DECODED, bytes(most_nbytes)
                return real(self, number, most_nbytes, file)
            _Tap.answer = answer
            main()
            """),
        ),
        encoding="utf-8",
    )
    monkeypatch.setattr(plugin_child, "__file__", str(program))


def test_decodes_and_keeps_the_process(fresh):
    assert decode(DEFLATE, STORED) == CELLS.tobytes()
    first = pids()
    assert len(first) == 1
    for _ in range(5):
        assert decode(DEFLATE, STORED) == CELLS.tobytes()
    assert pids() == first


def test_sizes():
    assert decode(DEFLATE, STORED, CELLS.nbytes + 1, exact=False) == CELLS.tobytes()
    with pytest.raises(ChunkSizeError):
        decode(DEFLATE, STORED, CELLS.nbytes + 1)
    for exact in (True, False):
        with pytest.raises(IntegrityError, match="expected at most 16383"):
            decode(DEFLATE, STORED, CELLS.nbytes - 1, exact=exact)


def test_nbit():
    with h5py.File("in-memory", "w", driver="core", backing_store=False) as file:
        kind = h5py.h5t.STD_I32LE.copy()
        kind.set_precision(20)
        kind.set_offset(3)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4096,))
        plist.set_filter(5, 0, ())
        data = h5py.h5d.create(file.id, b"a", kind, h5py.h5s.create_simple((4096,)), dcpl=plist)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, CELLS, h5py.h5t.NATIVE_INT32)
        file.flush()
        _, stored = data.read_direct_chunk((0,))
        values = data.get_create_plist().get_filter(0)[2]
    found = np.frombuffer(decode(PluginFilter(5, "nbit", values), stored), "<i4")
    assert len(stored) < CELLS.nbytes
    np.testing.assert_array_equal(found >> 3 & 0xFFFFF, CELLS)


def test_a_plugin_that_is_missing_is_named(fresh):
    with pytest.raises(UnsupportedError, match=r"filter 4242 \(mine\).*pip install hdf5plugin"):
        decode(PluginFilter(4242, "mine", ()), b"data")
    assert len(pids()) == 1


def test_without_hdf5plugin(monkeypatch, tmp_path, fresh):
    (tmp_path / "hdf5plugin.py").write_text("raise ImportError", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnsupportedError, match=r"32013 \(zfp\).*pip install hdf5plugin"):
        decode(PluginFilter(32013, "zfp", ()), b"data")
    assert decode(DEFLATE, STORED) == CELLS.tobytes()


def test_a_crash_is_an_error_that_names_the_chunk(rigged):
    assert decode(DEFLATE, STORED) == CELLS.tobytes()
    (before,) = pids()
    with pytest.raises(IntegrityError, match=rf"'{KEY}' is damaged: deflate .*SIGSEGV"):
        decode(DEFLATE, b"crash")
    assert not psutil.pid_exists(before)
    assert decode(DEFLATE, STORED) == CELLS.tobytes()


@pytest.mark.parametrize("how", [b"raise", b"exit", b"long"])
def test_other_ends_are_errors_too(rigged, how):
    with pytest.raises(IntegrityError, match="ended the process"):
        decode(DEFLATE, how)
    assert decode(DEFLATE, STORED) == CELLS.tobytes()


def test_a_process_that_somebody_killed_is_replaced(rigged):
    assert decode(DEFLATE, b"once", 8) == bytes(8)
    psutil.Process(pids()[0]).kill()
    assert decode(DEFLATE, STORED) == CELLS.tobytes()


def test_a_filter_that_never_ends_is_ended(rigged, monkeypatch):
    monkeypatch.setattr(plugin, "_LEAST_TIMEOUT_S", 1)
    started = time.monotonic()
    with pytest.raises(IntegrityError, match="no answer"):
        decode(DEFLATE, b"hang")
    assert time.monotonic() - started < 60
    assert pids() == []


def test_a_child_that_cannot_start(monkeypatch, tmp_path, fresh):
    monkeypatch.setattr(plugin_child, "__file__", str(tmp_path / "nothing.py"))
    with pytest.raises(UnsupportedError, match="could not start"):
        decode(DEFLATE, STORED)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UnsupportedError, match="could not start"):
        decode(DEFLATE, STORED)


def test_after_damage_another_process_goes_on(fresh):
    decode(DEFLATE, STORED)
    before = pids()
    with pytest.raises(IntegrityError, match="cannot decode"):
        decode(DEFLATE, STORED[:50])
    assert decode(DEFLATE, STORED) == CELLS.tobytes()
    assert set(pids()).isdisjoint(before)


def test_a_bomb_is_bounded_over_there(fresh):
    # 1.6 GB of zeros: the stream of 16 MB, a hundred times, and the checksum of all.
    engine = zlib.compressobj(1, zlib.DEFLATED, -15)
    part = engine.compress(bytes(1 << 24)) + engine.flush(zlib.Z_FULL_FLUSH)
    adler = (100 << 24) % 65521 << 16 | 1
    bomb = b"\x78\x01" + 100 * part + b"\x03\x00" + adler.to_bytes(4, "big")
    decode(DEFLATE, STORED)
    most = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.005):
            for pid in pids():
                with contextlib.suppress(psutil.NoSuchProcess):
                    most = max(most, psutil.Process(pid).memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(IntegrityError):
            decode(DEFLATE, bomb)
    finally:
        done.set()
        watcher.join()
    assert most < 600 << 20


def test_many_threads(fresh):
    wrong: list[int] = []

    def work(seed: int) -> None:
        cells = np.random.default_rng(seed).integers(0, 9, 5000).astype("u1").tobytes()
        stored = zlib.compress(cells)
        wrong.extend(seed for _ in range(10) if decode(DEFLATE, stored, 5000) != cells)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 1 <= len(pids()) <= plugin._MOST_CHILDREN


def test_a_forked_process_has_its_own(fresh):
    decode(DEFLATE, STORED)
    before = pids()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            none = pids() == []
            good = decode(DEFLATE, STORED) == CELLS.tobytes()
            os.write(writer, bytes([none, good, set(pids()).isdisjoint(before)]))
            plugin._children.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    assert os.read(reader, 9) == b"\1\1\1"
    os.close(reader)
    assert pids() == before
    assert decode(DEFLATE, STORED) == CELLS.tobytes()


SCRIPT = """
import os, signal, sys, zlib
import numpy as np
from hyperslab.formats.hdf5 import plugin
from hyperslab.layout.codecs import Size
data = np.frombuffer(zlib.compress(bytes(100)), np.uint8)
plugin.PluginFilter(1, "deflate", (6,)).decode(data, Size(100, True), "k")
print([child.process.pid for child in plugin._children._all][0], flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_nothing_is_left_behind(how):
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=False, timeout=60)
    pid = int(done.stdout)
    until = time.monotonic() + 60
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until, "the process is still there"
            time.sleep(0.05)
    assert done.stderr == ""


def test_importing_starts_nothing():
    code = (
        "import hyperslab.formats.hdf5.filters, sys, threading; print('h5py' in sys.modules, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "1"]


def lzf() -> tuple[PluginFilter, bytes]:
    with h5py.File("in-memory", "w", driver="core", backing_store=False) as file:
        data = file.create_dataset("a", data=CELLS, chunks=CELLS.shape, compression="lzf")
        _, stored = data.id.read_direct_chunk((0,))
        return PluginFilter(32000, "lzf", data.id.get_create_plist().get_filter(0)[2]), stored


LZF, LZF_STORED = lzf()


@settings(max_examples=times(10, 2000), deadline=None)
@given(data=st.data())
def test_damaged_lzf(data):
    stored = bytearray(LZF_STORED)
    for at in data.draw(st.lists(st.integers(0, len(stored) - 1), max_size=4)):
        stored[at] = data.draw(st.integers(0, 255))
    stored = stored[: data.draw(st.just(len(stored)) | st.integers(1, len(stored)))]
    try:
        found = decode(LZF, bytes(stored))
    except HyperslabError:
        return
    assert len(found) == CELLS.nbytes


def test_an_lzf_bomb():
    # Copies of 264 zeros from one byte before, as often as fits in 32 KB: 2.8 MB of nothing.
    bomb = bytes([0, 0]) + bytes([0xE0, 0xFF, 0]) * 10900
    with pytest.raises((IntegrityError, ChunkSizeError)):
        decode(PluginFilter(32000, "lzf", (4, 261, 1 << 30)), bomb, 4096)
    with pytest.raises((IntegrityError, ChunkSizeError)):
        decode(PluginFilter(32000, "lzf", (4, 261, 4096)), bomb, 4096)
    assert decode(LZF, LZF_STORED) == CELLS.tobytes()
