"""Speaks to the lab's store from beside it, in a process of its own.

python -m bench.lab.bucket ENDPOINT                 wait until an object can be written
python -m bench.lab.bucket ENDPOINT PATH NAME       put a file, or all files below a folder, under a name, anew
"""

import sys
import time
from http.client import HTTPConnection
from pathlib import Path

_START_S = 40.0


def wait(endpoint: str) -> None:
    """Return when an object could be written, which needs all parts of the server."""
    from bench.servers import obstore_client

    host = endpoint.removeprefix("http://")
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            connection = HTTPConnection(host, timeout=1)
            connection.request("GET", "/")
            connection.getresponse()
            connection.close()
            obstore_client(endpoint).put(".health", b"1")
            return
        except Exception:  # noqa: BLE001
            time.sleep(0.05)
    raise SystemExit(f"SeaweedFS did not answer within {_START_S:.0f} s")


def main(words: list[str]) -> None:
    if len(words) == 1:
        wait(words[0])
        return
    from bench.servers import Bucket

    endpoint, path, name = words
    print(Bucket(endpoint).upload(Path(path), name, anew=True))


if __name__ == "__main__":
    main(sys.argv[1:])
