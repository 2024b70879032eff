"""Redis, a real key/value server, on a free loopback port with a folder of its own."""

import os
import shutil
import signal
import socket
import sys
from typing import Any

from support.server import Server, free_ports

__all__ = ["RedisServer", "find_redis"]


def find_redis() -> str | None:
    """Return the server's program: what make installed, Redis, or Valkey, which speaks the same."""
    beside = os.path.join(os.path.dirname(sys.executable), "redis-server")
    return beside if os.path.exists(beside) else shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer(Server):
    """A running server that keeps nothing on disk. `arguments` are added to its command."""

    name = "Redis"

    def __init__(self, *arguments: str, password: str | None = None, start_s: float = 60.0) -> None:
        self.arguments, self.password = arguments, password
        self.port = 0
        super().__init__(start_s)

    @property
    def url(self) -> str:
        return f"redis://{self.host}"

    def command(self, folder: str) -> list[str]:
        program = find_redis()
        if program is None:
            raise FileNotFoundError("redis-server is not installed; Debian has it as redis-server")
        # Started again, it is found where it was.
        self.port = self.port or free_ports(1)[0]
        login = ["--requirepass", self.password] if self.password else []
        return [
            program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
            "--appendonly", "no", *login, *self.arguments,
        ]  # fmt: skip

    def is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as line:
                line.sendall(b"PING\r\n")
                # Before a login, that is asked for.
                return line.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def client(self) -> Any:
        import redis

        return redis.Redis("127.0.0.1", self.port, password=self.password, socket_timeout=60)

    def ask(self, *command: Any) -> Any:
        """Return the answer to one command."""
        with self.client() as client:
            return client.execute_command(*command)

    @property
    def pid(self) -> int:
        with self.client() as client:
            return int(client.info("server")["process_id"])

    def kill(self) -> None:
        """End it as a failing machine would; `start` brings it back, empty."""
        self._kill()

    def start(self) -> None:
        self._start(60.0)

    def pause(self) -> int:
        """Stop it without ending it: it takes requests and does not answer. Returns what `resume` needs."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        return pid

    def resume(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)
