"""A function beside the data: `hyperslab serve-function` in a process of its own, on a free loopback port."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperslab.store.callee import Function
from hyperslab.store.signing import SigningKey
from support.server import Server, free_ports

__all__ = ["FunctionServer"]


class FunctionServer(Server):
    """A running function that may read `root`."""

    name = "Function"

    def __init__(self, root: str, storage_options: Mapping[str, str], *, memory_mb: int = 1769) -> None:
        self.root, self.storage_options, self.memory_mb = root, storage_options, memory_mb
        self.key = SigningKey.new("tests")
        super().__init__(60.0)

    @property
    def function(self) -> Function:
        return Function(f"http://{self.host}/", key=self.key)

    def command(self, folder: str) -> list[str]:
        keys = Path(folder, "keys")
        keys.write_text(self.key.text + "\n")
        (self.port,) = free_ports(1)
        return [
            sys.executable, "-m", "hyperslab", "serve-function", "--root", self.root, "--key-file", str(keys),
            "--port", str(self.port), "--memory-mb", str(self.memory_mb),
        ]  # fmt: skip

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "HYPERSLAB_FUNCTION_STORAGE_OPTIONS": json.dumps(dict(self.storage_options))}

    def is_up(self) -> bool:
        return self.answers("/health")

    def client(self) -> Any:
        raise TypeError("a function stores nothing")
