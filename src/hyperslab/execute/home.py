"""The folder of a person's own files: measured profiles, prices of their own."""

import os
from pathlib import Path

__all__ = ["home"]


def home() -> Path:
    """Return the folder; nothing is created. `HYPERSLAB_HOME` puts it elsewhere."""
    if own := os.environ.get("HYPERSLAB_HOME"):
        return Path(own)
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "hyperslab"
