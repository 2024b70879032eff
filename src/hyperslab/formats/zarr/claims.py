"""Claims: names by which a writer says in an array's metadata that it is at something only one may do at a time."""

import os
import socket
import threading

__all__ = ["PATIENCE_S", "drop_claim", "is_gone", "is_of_this_machine", "new_claim"]

# How long another writer's claim is respected, if nothing changes and it cannot be seen that the writer is gone.
# Longer than a request may take, so that none of its deletions is still on its way.
PATIENCE_S = 120.0

# The claims that this process makes use of; one of its own that is not among them could not be given back.
_in_use: set[str] = set()
_lock = threading.Lock()


def new_claim() -> str:
    """Return the name of a claim that this process makes use of from now on."""
    name = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(6).hex()}"
    with _lock:
        _in_use.add(name)
    return name


def drop_claim(name: str) -> None:
    """Say that a claim of this process is not made use of any more."""
    with _lock:
        _in_use.discard(name)


def is_of_this_machine(claim: str) -> bool:
    """Whether a claim is of a process that could be seen from here."""
    return claim.partition(":")[0] == socket.gethostname()


def is_gone(claim: str) -> bool:
    """Whether a claim is of a process of this machine that has ended, or has given it up."""
    host, pid, _ = (*claim.split(":"), "", "")[:3]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    if int(pid) == os.getpid():
        return claim not in _in_use
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _after_fork() -> None:
    # Another thread of the parent may hold the lock.
    globals()["_lock"] = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
