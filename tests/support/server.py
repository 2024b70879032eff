"""A server of the tests: started on free loopback ports with a folder of its own, polled for health, always stopped."""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

__all__ = ["Server", "free_ports"]

# The shell ends the server and removes its directory when its own input ends: also when the tests are killed.
_SUPERVISOR = '"$@" & server=$!; read -r _; kill -9 $server; wait $server; rm -rf "$0"'


class Server(ABC):
    """A running server. Stopped by `stop()`, and when the interpreter ends."""

    name: str
    port: int

    def __init__(self, start_s: float) -> None:
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)
        for attempt in range(3):  # a port may be taken between choosing and binding it
            try:
                self._start(start_s)
                return
            except RuntimeError:
                self._kill()
                if attempt == 2:
                    self.stop()
                    raise

    @abstractmethod
    def command(self, folder: str) -> list[str]:
        """Choose ports, and return the command that starts the server; it may store below `folder`."""

    @abstractmethod
    def is_up(self) -> bool:
        """Say whether it answers as it should."""

    @abstractmethod
    def client(self) -> Any:
        """Return an obstore store of the test's own, for the process at hand."""

    def environment(self) -> Mapping[str, str]:
        return os.environ

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def put(self, key: str, data: bytes) -> None:
        self.client().put(key, data)

    def read(self, key: str) -> bytes:
        return bytes(self.client().get(key).bytes())

    def delete(self, key: str) -> None:
        self.client().delete(key)

    def answers(self, path: str) -> bool:
        """Say whether it answers a GET well; for servers that speak HTTP."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """End the server and remove what it stored. Harmless when repeated."""
        atexit.unregister(self.stop)
        self._kill()

    def _start(self, start_s: float) -> None:
        self._folder = tempfile.mkdtemp(prefix=f"{self.name.lower()}-")
        command = self.command(self._folder)
        with open(os.path.join(self._folder, "server.log"), "wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _SUPERVISOR, self._folder, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                cwd=self._folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + start_s
        while time.monotonic() < deadline and self._process.poll() is None:
            if self.is_up():
                return
            time.sleep(0.05)
        log_end = Path(self._folder, "server.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} did not start in time; its log ends with:\n{log_end}")

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()  # the shell ends the server and waits for it
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
            shutil.rmtree(self._folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Return loopback ports that nobody uses, all held at once so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(contextlib.closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
