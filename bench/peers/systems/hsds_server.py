"""HSDS as processes of this machine: a service node and data nodes, talking over sockets in a folder of their own.

No node listens on a network (the service's own `--use_socket`). All of them end with the process that started them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import requests_unixsocket

__all__ = ["HOME", "PASSWORD", "USER", "Server"]

USER, PASSWORD = "admin", "admin"
# The service has an environment of its own, see hsds.txt.
HOME = Path(sys.prefix) / "hsds"
START_S, STOP_S = 120.0, 10.0

# A node ends when its input does: by `stop`, or because the process that has the other end is gone. What it held is in
# the bucket by then, or was being written by somebody who has failed.
_NODE = """
import os, shutil, sys, threading

here = os.getcwd()

def follow():
    sys.stdin.buffer.read()
    shutil.rmtree(here, ignore_errors=True)
    os._exit(0)

threading.Thread(target=follow, daemon=True).start()
from hsds.node_runner import main
main()
"""


class Server:
    """A running service. `endpoint` is for h5pyd; `settings` are those of HSDS's config.yml, by name."""

    def __init__(self, *, data_nodes: int, settings: Mapping[str, object]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hsds-"))
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._environment = _environment(self._folder, settings)
        self.endpoint = self._url("sn_1")
        data = [self._url(f"dn_{number + 1}") for number in range(data_nodes)]
        shared = ["--standalone", "--use_socket", f"--dn_urls={','.join(data)}", f"--hsds_endpoint={self.endpoint}"]
        try:
            for number in range(data_nodes):
                self._start("--node_type=dn", f"--node_number={number}", *shared)
            self._start("--node_type=sn", f"--sn_url={self.endpoint}", *shared)
            for url in (*data, self.endpoint):
                self._wait_for(url)
        except BaseException:
            self.stop()
            raise

    def _url(self, node: str) -> str:
        return f"http+unix://{quote(str(self._folder / node), safe='')}.sock"

    def _start(self, *words: str) -> None:
        with (self._folder / f"{len(self._nodes)}.log").open("wb") as log:
            node = subprocess.Popen(
                [str(HOME / "bin" / "python"), "-c", _NODE, *words], cwd=self._folder, env=self._environment,
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._nodes.append(node)

    def _wait_for(self, url: str) -> None:
        until = time.monotonic() + START_S
        with requests_unixsocket.Session() as session:
            while True:
                try:
                    if session.get(f"{url}/info", timeout=5).ok:
                        return
                except OSError:
                    pass
                if time.monotonic() > until or any(node.poll() is not None for node in self._nodes):
                    raise RuntimeError(f"HSDS did not start: {self.said()}")
                time.sleep(0.02)

    def said(self) -> str:
        """Return the ends of the nodes' logs."""
        return " | ".join(path.read_text(errors="replace")[-300:] for path in sorted(self._folder.glob("*.log")))

    def stop(self) -> None:
        """End all nodes and remove their folder. Harmless when repeated."""
        for node in self._nodes:
            if node.stdin is not None:
                node.stdin.close()
        for node in self._nodes:
            try:
                node.wait(STOP_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        self._nodes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def _environment(folder: Path, settings: Mapping[str, object]) -> dict[str, str]:
    """Return what the nodes are told. HSDS takes each of its settings from a variable of that name, in capitals."""
    passwords = folder / "passwd.txt"
    passwords.touch(mode=0o600)
    passwords.write_text(f"{USER}:{PASSWORD}\n")
    told = {"password_file": passwords, "log_level": "ERROR", **settings}
    return {**os.environ, **{name.upper(): str(value) for name, value in told.items()}}
