"""A function in a process of its own behind its real HTTP server, as `hyperslab serve-function` starts it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.calling import KEY

__all__ = ["ServedFunction"]


class ServedFunction:
    """A running function: its `url`, its process' `pid`, and what it wrote to its log."""

    def __init__(self, folder: Path, roots: Sequence[str], storage_options: Mapping[str, str], **settings: Any) -> None:
        keys = folder / "keys"
        keys.write_text(KEY.text + "\n", encoding="utf-8")
        flags = [part for root in roots for part in ("--root", root)]
        flags += [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hyperslab", "serve-function", "--key-file", str(keys), "--verbose", *flags],
            env={**os.environ, "HYPERSLAB_FUNCTION_STORAGE_OPTIONS": json.dumps(dict(storage_options))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        # It shows its URL as soon as it takes connections.
        self.url = self.process.stdout.readline().strip()
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self._reader.start()
        if not self.url.startswith("http://"):
            self.stop()
            raise RuntimeError(f"the function did not start: {''.join(self.log)}")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def peak_mb(self) -> float:
        """The most memory that the process had at once."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024

    def stop(self) -> int:
        """End it as a person or a supervisor does, and return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def __enter__(self) -> "ServedFunction":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
