"""Google's functions framework, running an unpacked bundle on a free loopback port."""

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.server import Server, free_ports


def has_framework() -> bool:
    return find_spec("functions_framework") is not None


class FunctionsFramework(Server):
    """A running function."""

    name = "Google's functions framework"

    def __init__(self, bundle: Path, variables: Mapping[str, str], *, start_s: float = 60.0) -> None:
        self._bundle = bundle
        self._variables = dict(variables)
        super().__init__(start_s)

    @property
    def url(self) -> str:
        return f"http://{self.host}/"

    def command(self, folder: str) -> list[str]:
        (self.port,) = free_ports(1)
        source = str(self._bundle / "main.py")
        flags = ["--target", "handle", "--source", source, "--host", "127.0.0.1", "--port", str(self.port)]
        return [sys.executable, "-m", "functions_framework", *flags]

    def environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
        # The bundle's part of Hyperslab, and not what is installed here.
        return {**kept, **self._variables, "PYTHONPATH": str(self._bundle)}

    def is_up(self) -> bool:
        return self.answers("/")

    def client(self) -> Any:
        raise TypeError("a function holds no objects")
