"""Where the tests write: in memory, where that can be. On a disk, each rename over an older file waits for the disk.

A soak run stays on the disk. So does a run whose folder somebody has chosen by TMPDIR, and one on a machine whose
memory has little room or loads no libraries (tests of forked processes load some from there).
"""

import os
import tempfile

from support.profiles import SOAK

__all__ = ["use_memory"]

_MEMORY = "/dev/shm"
_LEAST_BYTES = 6 << 30


def use_memory() -> None:
    """Let temporary files of this process and its children be in memory, if that can be."""
    if SOAK or "TMPDIR" in os.environ or not _fits():
        return
    folder = f"{_MEMORY}/hyperslab-{os.getuid()}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None  # forget what was chosen before


def _fits() -> bool:
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    roomy = found.f_bavail * found.f_frsize >= _LEAST_BYTES and _free_memory_bytes() >= _LEAST_BYTES
    return roomy and not found.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK | os.X_OK)


def _free_memory_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
