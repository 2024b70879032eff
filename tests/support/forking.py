"""Running a function in a forked child, so that a hang fails instead of hanging."""

import faulthandler
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import Any


class Child:
    """A forked child that runs one function. It never returns into the test."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        # Before the fork, as one may hang in what is done right after it, too.
        faulthandler.register(signal.SIGUSR1, file=2)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._read)
                try:
                    result = (True, function())
                except BaseException as error:  # noqa: BLE001
                    result = (False, error)
                with os.fdopen(write, "wb") as out:
                    pickle.dump(result, out)
            finally:
                os._exit(0)
        os.close(write)

    def result(self, timeout_s: float = 60.0) -> Any:
        """Return what the function returned, or raise what it raised; a hang is an AssertionError."""
        deadline, parts = time.monotonic() + timeout_s, []
        # Not `select`, which knows no descriptor above 1023: a worker of the tests may have more.
        waiting = select.poll()
        waiting.register(self._read, select.POLLIN)
        try:
            while True:
                ready = waiting.poll(1000 * max(0.0, deadline - time.monotonic()))
                if not ready:
                    os.kill(self.pid, signal.SIGUSR1)  # it says where
                    time.sleep(1.0)
                assert ready, f"the child hung for {timeout_s} s"
                part = os.read(self._read, 1 << 16)
                if not part:
                    break
                parts.append(part)
        finally:
            os.close(self._read)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        good, value = pickle.loads(b"".join(parts))
        if not good:
            raise value
        return value


def in_child(function: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Return what the function returns in a forked child."""
    return Child(function).result(timeout_s)
