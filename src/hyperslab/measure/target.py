"""What probes read: an object of random bytes that is put there and removed again, or one that is there already."""

import _thread
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from hyperslab.errors import HyperslabError, InvalidInputError, NotFoundError, StoreError
from hyperslab.execute import Session
from hyperslab.execute.write import StoreWriter
from hyperslab.measure.encoded import probe_body
from hyperslab.measure.probes import Prober, SpentError, Target
from hyperslab.store import Store

__all__ = ["NAME", "ending_on_term", "existing", "uploaded"]

NAME = "hyperslab-probe-"
# Sizes that are uploaded, one over the other, as long as they take this share of the time and of the bytes at most.
_SIZES = (1 << 18, 1 << 21, 1 << 25)
_SHARE = 0.15
# Smaller objects tell nothing about bandwidth.
_SMALLEST_BYTES = 1 << 16
# How long an upload that broke off may still turn up at the store.
_LATE_S = (0.2, 0.6, 1.5)
_METADATA = ("zarr.json", ".zarray", ".zgroup")


def existing(session: Session, store: Store, path: str, key: str | None) -> Target | None:
    """Return the object to read where none is to be uploaded: the one named, the one at the URL, or an array's largest.

    None if there is none at the URL, so that one has to be put there.
    """
    writer = StoreWriter(session, store)
    if key is not None:
        found = _sized(writer, key)
        if found is None:
            raise NotFoundError(f"there is no object {key!r} in {store.address}; name one that is stored there")
        return _large_enough(found)
    if not path:
        return None
    found = _sized(writer, path)
    if found is not None:
        return _large_enough(found)
    if all(writer.get(f"{path}/{name}", -1, lookup=True) is None for name in _METADATA):
        return None
    largest, _ = max(writer.keys(path), key=lambda each: each[1])
    found = _sized(writer, largest)
    return None if found is None else _large_enough(found)


def _sized(writer: StoreWriter, key: str) -> Target | None:
    # The last byte tells the object's size and version.
    reply = writer.get(key, -1, lookup=True)
    return None if reply is None else Target(key, reply.object_nbytes, reply.etag)


def _large_enough(target: Target) -> Target:
    if target.nbytes < _SMALLEST_BYTES:
        raise InvalidInputError(
            f"{target.key!r} holds {target.nbytes:,} bytes, too few to measure with; name a larger object"
        )
    return target


@contextmanager
def uploaded(prober: Prober, path: str) -> Iterator[Target]:
    """Put an object of random bytes below the path, as large as time and bytes allow; remove it at the end, always."""
    session, store = prober.session, prober.store
    key = f"{path}/{NAME}{secrets.token_hex(8)}".lstrip("/")
    writer = StoreWriter(session, store)
    try:
        target = _upload(prober, writer, key)
    except HyperslabError:
        # A store that does not let itself be written to rarely deletes; what it said first is what helps.
        with suppress(StoreError):
            _removed(writer, key, settled=False)
        raise
    except BaseException:
        _removed(writer, key, settled=False)
        raise
    try:
        yield target
    finally:
        _removed(writer, key, settled=True)


def _upload(prober: Prober, writer: StoreWriter, key: str) -> Target:
    """Upload a little to see how fast that goes, then as much as there is time for."""
    left_bytes, end = _SHARE * prober.left_bytes(), time.monotonic() + _SHARE * prober.left_s()
    target, took_s = None, 0.0
    for nbytes in _SIZES:
        grown = nbytes / target.nbytes if target else 1.0
        # Twice as much never takes more than twice as long.
        if nbytes > left_bytes or time.monotonic() + took_s * grown > end:
            break
        started = time.monotonic()
        body, encoded = probe_body(nbytes)
        target = Target(key, nbytes, _put(writer, key, body), encoded)
        took_s, left_bytes = time.monotonic() - started, left_bytes - nbytes
    if target is None:
        raise SpentError
    return target


def _put(writer: StoreWriter, key: str, body: bytes) -> str | None:
    try:
        return writer.put(key, body)
    except StoreError as error:
        if error.transient:
            raise
        raise type(error)(f"{error} (to measure without writing, name a stored object: object=, --object)") from None


def _removed(writer: StoreWriter, key: str, settled: bool) -> None:
    """Remove the object, in a thread of its own so that another interrupt does not end that, too."""
    failed: list[BaseException] = []
    ended = threading.Event()

    def remove() -> None:
        try:
            writer.delete(key)
            for pause_s in () if settled else _LATE_S:
                # The store may still be busy with an upload that nobody waits for any more.
                time.sleep(pause_s)
                if writer.get(key, -1, lookup=True) is not None:
                    writer.delete(key)
        except HyperslabError as error:
            failed.append(error)
        finally:
            ended.set()

    # Not by `Thread`: an interrupt ends the wait in its `start`, and after one in its `join` a running thread passes
    # for one that has ended.
    _thread.start_new_thread(remove, ())
    while not ended.is_set():
        with suppress(KeyboardInterrupt, SystemExit):
            ended.wait()
    if failed:
        raise StoreError(f"the object {key!r} could not be removed ({failed[0]}); remove it by hand") from failed[0]


@contextmanager
def ending_on_term() -> Iterator[None]:
    """Let a polite request to end (SIGTERM) end the measurement as Ctrl-C does, where nobody else handles it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
