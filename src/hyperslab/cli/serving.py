"""`hyperslab serve-function`: a function on this machine, behind a real HTTP server."""

import logging
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import click

from hyperslab.errors import InvalidInputError
from hyperslab.functions import function_config, keys_of_file

__all__ = ["serve_function"]


def serve_function(
    *,
    roots: Sequence[str],
    key_file: str | None = None,
    auth: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    memory_mb: int | None = None,
    timeout_s: float | None = None,
    options: Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> None:
    """Answer calls until Ctrl-C or SIGTERM. Prints the function's URL as soon as it can be called.

    `options` are those of the stores. What is not given is taken from the environment, as `function_config` says.
    """
    config = function_config(
        roots or None,
        keys=keys_of_file(key_file) if key_file else (),
        auth=auth,
        storage_options=options or None,
        memory_mb=memory_mb,
        timeout_s=timeout_s,
    )
    try:
        import uvicorn
    except ImportError as error:
        raise InvalidInputError("serve-function needs uvicorn: pip install 'hyperslab[function]'") from error
    from hyperslab.functions.asgi import make_app

    if verbose:
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    settings = uvicorn.Config(
        make_app(config),
        log_config=None,
        access_log=False,
        server_header=False,
        # The other parser reads headers without end.
        http="h11",
        h11_max_incomplete_event_size=64 << 10,
        ws="none",
        # Connections; a good part of them only waits for the next request.
        limit_concurrency=4 * config.requests_at_once,
        timeout_graceful_shutdown=10,
    )
    click.echo(f"http://{shown}:{listening.getsockname()[1]}/")
    # The server ends by these signals, and then raises them again: for it to end well they must do nothing here.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    uvicorn.Server(settings).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections from now on, so that the URL shown can be called at once."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        raise InvalidInputError(f"cannot listen at {host}:{port}: {error.strerror or error}; choose another") from error
    return listening
