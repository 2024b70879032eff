"""What is lost and sent again is counted once."""

import threading
import time

GET, OK = b"GET /a HTTP/1.1\r\nHost: lab\r\n\r\n", b"HTTP/1.1 200 OK\r\n"

NBYTES = 6_000_000


def test_retransmissions_are_counted_once(lossy_wire):
    wire = lossy_wire
    pairs = [wire.connect() for _ in range(4)]
    drops = wire.lab.meter().lines["outside"]["to_client"]["drops"]
    wire.counts()

    def serve(server):
        server.recv(1000)
        server.sendall(OK + b"Content-Length: %d\r\n\r\n" % NBYTES + bytes(NBYTES))

    threads = [threading.Thread(target=serve, args=(server,)) for _, server in pairs]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for client, _ in pairs:
        client.sendall(GET)
    for client, server in pairs:
        left = NBYTES + len(OK) + len(b"Content-Length: %d\r\n\r\n" % NBYTES)
        while left:
            left -= len(client.recv(1 << 20))
        client.close()
        server.close()
    for thread in threads:
        thread.join()
    counts, took_s = wire.counts(), time.monotonic() - began
    assert took_s >= 4 * NBYTES / wire.lab.preset.outside.bytes_per_s
    assert wire.lab.meter().lines["outside"]["to_client"]["drops"] > drops
    assert counts.response_bytes == 4 * NBYTES
    assert (counts.get, counts.answers, counts.unknown, counts.unfinished, counts.open) == (4, 4, 0, 0, 0)
    # The wire itself has carried more than that: headers of packets, and what was sent again.
    assert counts.wire_bytes_down > 4 * NBYTES + counts.repeated_bytes
