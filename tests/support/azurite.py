"""Azurite, the emulator of Azure's blobs, on a free loopback port with its blobs in memory."""

import base64
import hashlib
import hmac
import os
import shutil
import sys
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from hyperslab.store.azure import EMULATOR_ACCOUNT, EMULATOR_KEY
from support.server import Server, free_ports


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


class Azurite(Server):
    """A running server with one container, and a public one."""

    name = "Azurite"

    def __init__(self, container: str = "bench", *, start_s: float = 60.0) -> None:
        self.container = container
        super().__init__(start_s)

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}/{EMULATOR_ACCOUNT}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {"emulator": True, "endpoint": f"http://{self.host}"}

    def url(self, prefix: str = "") -> str:
        return f"az://{self.container}/{prefix}".rstrip("/")

    def client(self, container: str | None = None) -> Any:
        from hyperslab.store import runtime

        obstore = runtime.obstore_module()
        config = {"account_name": EMULATOR_ACCOUNT, "account_key": EMULATOR_KEY, "endpoint": self.endpoint}
        return obstore.store.AzureStore(container or self.container, config=config, client_options={"allow_http": True})

    def command(self, folder: str) -> list[str]:
        command = find_azurite()
        if command is None:
            raise FileNotFoundError("Azurite is not installed; `make test` does it where npm is")
        (self.port,) = free_ports(1)
        return [
            *command, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck",
            "--blobHost", "127.0.0.1", "--blobPort", str(self.port),
        ]  # fmt: skip

    def is_up(self) -> bool:
        return self._make(self.container) and self._make("public", public=True)

    def _make(self, container: str, *, public: bool = False) -> bool:
        """Create a container, which obstore cannot; whether it is there now."""
        headers = {"x-ms-version": "2021-12-02", "Content-Length": "0", "x-ms-date": formatdate(usegmt=True)}
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


def _signature(method: str, path: str, query: str, headers: dict[str, str]) -> str:
    """Sign a request without a body as Azure's manual for shared keys says."""
    ours = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers) if name.startswith("x-ms-"))
    text = method + "\n" * 12 + ours + f"/{EMULATOR_ACCOUNT}{path}\n{query}"
    digest = hmac.new(base64.b64decode(EMULATOR_KEY), text.encode(), hashlib.sha256).digest()
    return f"SharedKey {EMULATOR_ACCOUNT}:{base64.b64encode(digest).decode()}"
