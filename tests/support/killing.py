"""Processes that are killed -9 in the middle of a call to the file system."""

import gc
import os
import signal
from collections.abc import Callable
from unittest import mock

from hyperslab.store import local_write


class KillingCalls:
    """The `os` module until its n-th call: there the process is killed, in the middle of it if it writes."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __getattr__(self, name: str):
        found = getattr(os, name)
        if not callable(found) or name in ("fspath", "getpid", "urandom", "fsencode"):
            return found

        def call(*args, **kwargs):
            if self._left <= 0:
                if name == "write":
                    os.write(args[0], bytes(args[1][: len(args[1]) // 2]))
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            return found(*args, **kwargs)

        return call


def killed(work: Callable[[], None], at: int) -> bool:
    """Do the work in a forked child that is killed at its n-th call; say if it was."""
    pid = os.fork()
    if pid == 0:
        gc.disable()  # a collection would touch, and so copy, all that the parent holds
        try:
            with mock.patch.object(local_write, "os", KillingCalls(at)):
                work()
            os._exit(0)
        except BaseException:  # noqa: BLE001
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)
