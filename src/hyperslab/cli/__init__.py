"""The `hyperslab` command: what is stored, what a read would send and cost, and reading itself."""

from hyperslab.cli.command import command, main

__all__ = ["command", "main"]
