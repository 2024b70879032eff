"""The network of the lab: hosts in namespaces of their own, joined by `link.c`. Needs root, Linux and a C compiler."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from bench.lab.presets import Line, Preset

__all__ = ["CLIENT", "FUNCTION", "STORE", "Network", "build", "why_not"]

T = TypeVar("T")

CLIENT, STORE, FUNCTION = range(3)
ADDRESSES = ("10.77.0.1", "10.77.0.2", "10.77.0.3")
HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "out" / "lab"

_SOURCES = ("link.c", "hosts.c", "http.c", "meter.c")
_HEADERS = ("hosts.h", "http.h", "meter.h")
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra")
# Where the supervisor keeps the hosts' namespaces; the same number is in hosts.h.
_FIRST_NAMESPACE = 40
_CLONE_NEWNET = 0x40000000
# Reno is in every kernel and allowed in every namespace. No connection begins with what another has learned. Windows
# are wide enough for one connection to fill the longest line. Packets leave in bursts as from a network card.
_SETTINGS = (
    "ipv4/tcp_congestion_control=reno",
    "ipv4/tcp_no_metrics_save=1",
    # A connection keeps its window over pauses, as servers that answer many small requests are commonly set up; with
    # Linux's default, how a read goes depends on how long ago the last one was.
    "ipv4/tcp_slow_start_after_idle=0",
    "ipv4/tcp_rmem=4096 131072 67108864",
    "ipv4/tcp_wmem=4096 65536 67108864",
    "ipv4/tcp_min_tso_segs=16",
    "ipv6/conf/all/disable_ipv6=1",
)


def why_not() -> str | None:
    """Say why there can be no network of our own here, or None."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    if compiler() is None:
        return "there is no C compiler (cc or gcc)"
    return _why_not_tried()


@lru_cache(maxsize=1)
def _why_not_tried() -> str | None:
    """Try what may be forbidden to root, as in many containers."""
    try:
        tried = subprocess.run([build(), "probe"], stderr=subprocess.PIPE, text=True, check=False)
    except subprocess.CalledProcessError:
        return "the link cannot be compiled"
    return None if tried.returncode == 0 else f"namespaces cannot be made: {tried.stderr.strip()}"


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build() -> Path:
    """Compile the link, unless it is there already; return the program."""
    content = b"".join((HERE / name).read_bytes() for name in (*_SOURCES, *_HEADERS))
    program = OUT / f"link-{hashlib.sha256(content).hexdigest()[:16]}"
    if not program.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=OUT) as folder:
            made = Path(folder) / "link"
            command = [compiler() or "cc", *_FLAGS, "-o", str(made), *(str(HERE / name) for name in _SOURCES)]
            subprocess.run(command, check=True)
            made.replace(program)
    return program


class Network:
    """Three hosts and the lines between them. Everything that was started in it ends with `stop`, or with us."""

    def __init__(
        self, preset: Preset, folder: Path, services: Mapping[str, tuple[int, int, float]], remove: Sequence[Path] = ()
    ) -> None:
        """`services`: by name, the host and port, and the seconds that a request waits there."""
        self.program, self.folder = build(), folder
        options = [f"outside={_line(preset.outside)}", f"region={_line(preset.region)}"]
        options += [f"service={name},{host},{port},{wait * 1e6:.0f}" for name, (host, port, wait) in services.items()]
        options += [f"setting={each}" for each in _SETTINGS] + [f"remove={path}" for path in remove]
        self._log = open(folder / "link.log", "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            [self.program, "serve", str(folder), str(os.getpid()), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            start_new_session=True,
        )  # fmt: skip
        self._started: list[subprocess.Popen[bytes]] = []
        if self._process.stdout.readline() != b"up\n":
            said = (folder / "link.log").read_text(errors="replace")
            self.stop()
            raise RuntimeError(f"the lab's network did not start: {said}")

    @property
    def supervisor(self) -> int:
        """The process that everything ends with."""
        return self._process.pid

    @property
    def meter(self) -> Path:
        """The meter's socket."""
        return self.folder / "meter"

    def start(self, host: int, command: Sequence[str], *, log: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a server on a host."""
        whole = [str(self.program), "start", str(self.supervisor), str(host), *command]
        with open(self.folder / log, "wb") as out:
            process = subprocess.Popen(
                whole, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )
        self._started.append(process)
        return process

    def has_ended(self) -> bool:
        """Whether something that was started has ended by itself."""
        return any(each.poll() is not None for each in (self._process, *self._started))

    def stop(self) -> None:
        """End everything. Harmless when repeated."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        self._log.close()
        for each in self._started:
            each.wait(30)


def entering(program: Path, supervisor: int, host: int) -> list[str]:
    """Return what to put before a command to run it on a host."""
    return [str(program), "enter", str(supervisor), str(host)]


def call_at(supervisor: int, host: int, call: Callable[[], T]) -> T:
    """Return what `call` returns on a host: in a thread of this process that has entered it."""
    result: list[Any] = []

    def enter() -> None:
        try:
            with open(f"/proc/{supervisor}/fd/{_FIRST_NAMESPACE + host}", "rb") as namespace:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "the host cannot be entered")
            result.append((call(), None))
        except BaseException as error:  # noqa: BLE001
            result.append((None, error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


def _line(line: Line) -> str:
    per_connection = line.connection_bytes_per_s or 0
    return f"{line.rtt_s / 2 * 1e6:.1f},{line.bytes_per_s},{line.queue_bytes},{per_connection}"
