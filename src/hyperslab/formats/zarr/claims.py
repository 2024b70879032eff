"""Claims: names by which a writer says in an array's metadata that it is at something only one may do at a time.

    vm/f0000000:17:4a8f-0af3c2d1e0b9

That is the machine and its namespace of processes, the number of the process and when it was started, so that another
one which has got its number since is not taken for it; and something random. Containers may share the name of a
machine, but do not see each other's processes: whether one of those has ended is not known.
"""

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
    name = f"{_here()}:{os.getpid()}:{_started(os.getpid())}-{os.urandom(6).hex()}"
    with _lock:
        _in_use.add(name)
    return name


def drop_claim(name: str) -> None:
    """Say that a claim of this process is not made use of any more."""
    with _lock:
        _in_use.discard(name)


def is_of_this_machine(claim: str) -> bool:
    """Whether a claim is of a process that could be seen from here."""
    return claim.partition(":")[0] in (_here(), socket.gethostname())


def is_gone(claim: str) -> bool:
    """Whether a claim is of a process of this machine that has ended, or has given it up."""
    _, pid, about = (*claim.split(":"), "", "")[:3]
    if not is_of_this_machine(claim) or not pid.isdecimal():
        return False
    if int(pid) == os.getpid():
        return claim not in _in_use
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # perhaps it is another user's
        pass
    began, now = about.rpartition("-")[0], _started(int(pid))
    return bool(began and now and began != now)


def _here() -> str:
    """Return the name of the machine and of its processes' namespace, where there are such."""
    try:
        return f"{socket.gethostname()}/{os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:  # not Linux
        return socket.gethostname()


def _started(pid: int) -> str:
    """Return when a process was started, by the system's own count; nothing where that is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return f"{int(fields[19]):x}"
    except (OSError, ValueError, IndexError):
        return ""


def _after_fork() -> None:
    # Another thread of the parent may hold the lock.
    globals()["_lock"] = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
