"""Azurite, the emulator of Azure's blobs, on a free loopback port with its blobs in memory."""

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
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from hyperslab.store.azure import EMULATOR_ACCOUNT, EMULATOR_KEY

# The shell ends the server and removes its directory when its own input ends: also when the tests are killed.
_SUPERVISOR = '"$@" & server=$!; read -r _; kill -9 $server; wait $server; rm -rf "$0"'


def find_azurite() -> list[str] | None:
    """Return the command of the server: installed beside this Python, where HYPERSLAB_AZURITE says, or on the path."""
    node = shutil.which("node")
    places = [os.environ.get("HYPERSLAB_AZURITE"), Path(sys.executable).parent.parent / "azurite"]
    for place in places:
        script = Path(place, "node_modules/azurite/dist/src/blob/main.js") if place else None
        if node and script and script.exists():
            return [node, str(script)]
    installed = shutil.which("azurite-blob")
    return [installed] if installed else None


class Azurite:
    """A running server with one container, and a public one. Stopped by `stop()`, and when the interpreter ends."""

    def __init__(self, container: str = "bench", *, start_s: float = 60.0) -> None:
        self.container = container
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)
        for attempt in range(3):  # the port may be taken between choosing and binding it
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
        return f"http://{self.host}/{EMULATOR_ACCOUNT}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {"emulator": True, "endpoint": f"http://{self.host}"}

    def url(self, prefix: str = "") -> str:
        return f"az://{self.container}/{prefix}".rstrip("/")

    def client(self, container: str | None = None) -> Any:
        """An obstore store of the test's own, for the process at hand."""
        from hyperslab.store import runtime

        obstore = runtime.obstore_module()
        config = {"account_name": EMULATOR_ACCOUNT, "account_key": EMULATOR_KEY, "endpoint": self.endpoint}
        return obstore.store.AzureStore(container or self.container, config=config, client_options={"allow_http": True})

    def put(self, key: str, data: bytes) -> None:
        self.client().put(key, data)

    def read(self, key: str) -> bytes:
        return bytes(self.client().get(key).bytes())

    def stop(self) -> None:
        """End the server. Harmless when repeated."""
        atexit.unregister(self.stop)
        self._kill()

    def _start(self, start_s: float) -> None:
        command = find_azurite()
        if command is None:
            raise FileNotFoundError("Azurite is not installed; `make test` does it where npm is")
        self._folder = tempfile.mkdtemp(prefix="azurite-")
        with contextlib.closing(socket.socket()) as held:
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
        command += [
            "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck",
            "--blobHost", "127.0.0.1", "--blobPort", str(self.port),
        ]  # fmt: skip
        with open(os.path.join(self._folder, "server.log"), "wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _SUPERVISOR, self._folder, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + start_s
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._make(self.container) and self._make("public", public=True):
                return
            time.sleep(0.05)
        log_end = Path(self._folder, "server.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"Azurite did not start in time; its log ends with:\n{log_end}")

    def _make(self, container: str, *, public: bool = False) -> bool:
        """Create a container, which obstore cannot; whether it is there now."""
        headers = {"x-ms-version": "2021-12-02", "Content-Length": "0", **_date()}
        if public:
            headers["x-ms-blob-public-access"] = "container"
        path = f"/{EMULATOR_ACCOUNT}/{container}"
        headers["Authorization"] = _signature("PUT", path, "restype:container", headers)
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("PUT", f"{path}?restype=container", headers=headers)
            return connection.getresponse().status in (201, 409)
        except OSError:
            return False
        finally:
            connection.close()

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


def _date() -> dict[str, str]:
    from email.utils import formatdate

    return {"x-ms-date": formatdate(usegmt=True)}


def _signature(method: str, path: str, query: str, headers: dict[str, str]) -> str:
    """Sign a request without a body as Azure's manual for shared keys says."""
    import base64
    import hashlib
    import hmac

    ours = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers) if name.startswith("x-ms-"))
    text = method + "\n" * 12 + ours + f"/{EMULATOR_ACCOUNT}{path}\n{query}"
    digest = hmac.new(base64.b64decode(EMULATOR_KEY), text.encode(), hashlib.sha256).digest()
    return f"SharedKey {EMULATOR_ACCOUNT}:{base64.b64encode(digest).decode()}"
