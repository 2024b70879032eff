"""The S3 server of the measurements: SeaweedFS, started here, or the one that `run.py` started for all."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["ENDPOINT", "Bucket", "bucket", "use_test_support"]

# Tells a measurement that a server runs already.
ENDPOINT = "HYPERSLAB_BENCH_ENDPOINT"
BUCKET = "bench"
# How many files are put at a time: thousands of small ones would take minutes one after another.
_AT_ONCE = 16


def use_test_support() -> None:
    """Make the servers of the tests (`tests/support`) importable."""
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of a running server."""

    endpoint: str

    @property
    def host(self) -> str:
        return self.endpoint.removeprefix("http://")

    @property
    def options(self) -> dict[str, str]:
        return options_at(self.endpoint)

    def upload(self, folder: Path, name: str, *, anew: bool = False) -> str:
        """Put a file, or all files below a folder, under `name`, unless it is there already; return its URL.

        `anew` replaces what is there.
        """
        client = obstore_client(self.endpoint, retries=5)
        done = f".done/{name}"
        if anew:
            for page in client.list(name):
                client.delete([each["path"] for each in page])
        if anew or not _exists(client, done):
            files = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.is_file())
            names = (name + ("" if file == folder else f"/{file.relative_to(folder)}") for file in files)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                # The list asks every put for its error.
                list(pool.map(partial(client.put, use_multipart=False), names, files))
            client.put(done, b"")
        return f"s3://{BUCKET}/{name}"


def options_at(endpoint: str) -> dict[str, str]:
    """Return Hyperslab's storage options for the server, or for something in front of it."""
    use_test_support()
    from support.seaweed import options_for

    return options_for(endpoint)


def obstore_client(endpoint: str, prefix: str | None = None, *, retries: int = 0) -> Any:
    """Return obstore's own client for the bucket, or for what lies under `prefix`."""
    import obstore

    return obstore.store.S3Store(
        BUCKET,
        prefix=prefix,
        config={**options_at(endpoint), "region": "us-east-1"},
        client_options={"allow_http": True},
        retry_config={"max_retries": retries},
    )


@contextmanager
def bucket() -> Iterator[Bucket]:
    """Give a bucket for the length of a `with` block."""
    running = os.environ.get(ENDPOINT)
    if running:
        yield Bucket(running)
        return
    use_test_support()
    from support.seaweed import Seaweed

    server = Seaweed(BUCKET)
    try:
        yield Bucket(server.endpoint)
    finally:
        server.stop()


def _exists(client: Any, key: str) -> bool:
    import obstore

    try:
        obstore.head(client, key)
    except FileNotFoundError:
        return False
    return True
