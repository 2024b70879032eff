"""The lab's network, and both ends of connections through it."""

import socket
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.lab import Lab, Line, Preset
from bench.lab import network as lab_network
from bench.lab.lab import PLAIN_PORT

STORE = lab_network.ADDRESSES[lab_network.STORE]
QUICK = Preset("quick", "for tests", Line(0.002, 125e6), first_byte_s=0.003, region=Line(0.001, 125e6))
# A queue of a few packets: the sender finds out by losing some.
LOSSY = Preset("lossy", "for tests", Line(0.002, 20e6, short_queue_bytes=30_000), first_byte_s=0.0)


class Wire:
    """A line: makes connections through it, and says what the meter counted since."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.supervisor = lab, lab._supervisor
        self.listener = self.at(lab_network.STORE, lambda: socket.create_server((STORE, PLAIN_PORT)))
        self.before = lab.meter()

    def at(self, host: int, call):
        return lab_network.call_at(self.supervisor, host, call)

    def connect(self, source: str | None = None) -> tuple[socket.socket, socket.socket]:
        """Return the client's and the server's end of a connection."""
        own = None if source is None else (source, 0)
        address = (STORE, PLAIN_PORT)
        client = self.at(lab_network.CLIENT, lambda: socket.create_connection(address, 10, own))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server, _ = self.listener.accept()
        server.settimeout(10)
        return client, server

    def counts(self, client: str = "client"):
        """Return what was counted since the last time."""
        now = self.lab.meter()
        used, self.before = now - self.before, now
        return used.of("plain", client)


@pytest.fixture(scope="session")
def can_network():
    """Skip where there can be no network of our own: that needs root, which not everybody has."""
    why = lab_network.why_not()
    if why:
        pytest.skip(why)


def _wire(preset: Preset):
    with Lab(preset, only_network=True) as lab:
        wire = Wire(lab)
        yield wire
        wire.listener.close()


@pytest.fixture(scope="session")
def wire(can_network):
    yield from _wire(QUICK)


@pytest.fixture(scope="session")
def lossy_wire(can_network):
    yield from _wire(LOSSY)
