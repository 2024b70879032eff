"""What labs could leave behind: folders of those that were killed, and processes. Found, told, and removed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PREFIX", "found", "remove"]

PREFIX = "hyperslab-lab-"


def found() -> list[str]:
    """Return a line for each process and folder of a lab, running or not."""
    return [*_processes(), *(str(folder) for folder in _folders())]


def remove() -> None:
    """Remove the folders of labs whose owner has ended. Namespaces and processes have ended with it."""
    for folder in _folders():
        try:
            owner = int((folder / "owner").read_text())
        except (OSError, ValueError):
            continue  # one that is just being made
        if not _is_running(owner):
            shutil.rmtree(folder, ignore_errors=True)


def _folders() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _processes() -> Iterator[str]:
    proc = Path("/proc")
    for folder in proc.iterdir() if proc.exists() else ():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        text = b" ".join(words).decode(errors="replace")
        is_link = words[0].rpartition(b"/")[2].startswith(b"link-") and b"/out/lab/" in words[0]
        if is_link or "bench.lab.function" in text or "bench.lab.proxy" in text or f"/{PREFIX}" in text:
            yield f"{folder.name} {text[:150]}"
