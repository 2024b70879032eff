"""The framing of HTTP/1.1 for the proxy's meter: the same rules as in `http.c`, on bytes that come in order."""

import re
from collections import deque
from dataclasses import dataclass, field

__all__ = ["Talk", "Tally"]

_METHODS = ("get", "head", "put", "post", "delete")
_MOST_HEAD_BYTES = 256 * 1024
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")


@dataclass
class Tally:
    """What one client did at one service; the names are those of `Counts`."""

    counts: dict[str, int] = field(default_factory=dict)
    talks: set["Talk"] = field(default_factory=set)

    def add(self, name: str, amount: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount

    def now(self) -> dict[str, int]:
        return {**self.counts, "open": sum([len(talk.waiting) for talk in list(self.talks)])}


class _Side:
    """One direction: where in a message it is."""

    def __init__(self) -> None:
        self.phase, self.left, self.body = "head", 0, 0
        self.kept = bytearray()

    def next_message(self) -> None:
        self.phase, self.body = "head", 0

    def take_until(self, mark: bytes) -> bytes | None:
        """Take the bytes up to a mark, which is taken too; None if it has not come."""
        at = self.kept.find(mark)
        if at < 0:
            return None
        taken = bytes(self.kept[:at])
        del self.kept[: at + len(mark)]
        return taken

    def frame(self, head: bytes, *, until_close: bool) -> bool:
        """Choose how the body is framed; False if that cannot be known."""
        lengths = re.findall(rb"\r\ncontent-length:[ \t]*([^\r]*)", head, re.IGNORECASE)
        codings = re.findall(rb"\r\ntransfer-encoding:[ \t]*([^\r]*)", head, re.IGNORECASE)
        self.left = self.body = 0
        if codings:
            self.phase = "size"
            return len(codings) == 1 and b"chunked" in codings[0].lower()
        if lengths:
            self.phase = "body"
            if len(lengths) > 1 or not lengths[0].strip().isdigit():
                return False
            self.left = int(lengths[0])
            return True
        self.phase = "close" if until_close else "body"
        return True

    def take_body(self) -> tuple[int, bool | None]:
        """Take bytes of the body; return how many, and whether it is complete (None: it is broken)."""
        taken = 0
        while True:
            if self.phase in ("body", "data", "close"):
                step = len(self.kept) if self.phase == "close" else min(self.left, len(self.kept))
                del self.kept[:step]
                taken, self.body = taken + step, self.body + step
                self.left -= step if self.phase != "close" else 0
                if self.phase == "close" or self.left:
                    return taken, False
                if self.phase == "body":
                    return taken, True
                self.phase = "mark"
            elif self.phase == "mark":
                if len(self.kept) < 2:
                    return taken, False
                if self.kept[:2] != b"\r\n":
                    return taken, None
                del self.kept[:2]
                self.phase = "size"
            else:
                line = self.take_until(b"\r\n")
                if line is None:
                    return taken, None if len(self.kept) > _MOST_HEAD_BYTES else False
                if self.phase == "trailer":
                    if not line:
                        return taken, True
                    continue
                size = line.partition(b";")[0].strip()
                if not _CHUNK_SIZE.fullmatch(size):
                    return taken, None
                self.left = int(size, 16)
                self.phase = "data" if self.left else "trailer"


class Talk:
    """Both directions of one connection.

    >>> tally = Tally()
    >>> talk = Talk(tally)
    >>> talk.from_client(b"GET /a HTTP/1.1\\r\\n\\r\\n")
    >>> talk.from_server(b"HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nabc")
    >>> tally.counts["get"], tally.counts["answers"], tally.counts["response_bytes"]
    (1, 1, 3)
    """

    def __init__(self, tally: Tally) -> None:
        self.tally, self.waiting = tally, deque[str]()
        self.up, self.down = _Side(), _Side()
        self.expects_continue = self.is_closed = False
        tally.talks.add(self)
        tally.add("connections")

    def from_client(self, data: bytes) -> None:
        side = self.up
        side.kept += data
        while side.kept and side.phase != "lost":
            if side.phase == "head":
                self._skip_empty_lines(side)
                head = side.take_until(b"\r\n\r\n")
                if head is None:
                    if len(side.kept) > _MOST_HEAD_BYTES:
                        self._lose(side)
                    break
                if not self._request(head):
                    self._lose(side)
                    break
            taken, is_done = side.take_body()
            self.tally.add("request_bytes", taken)
            if is_done is None:
                self._lose(side)
            elif is_done:
                side.next_message()
            else:
                break
        self._drop_if_lost(side)

    def from_server(self, data: bytes) -> None:
        side = self.down
        side.kept += data
        while side.phase != "lost":
            if side.phase == "head":
                self._skip_empty_lines(side)
                head = side.take_until(b"\r\n\r\n")
                if head is None:
                    if len(side.kept) > _MOST_HEAD_BYTES:
                        self._lose(side)
                    break
                if not self._response(head):
                    self._lose(side)
                    break
                if side.phase == "head":
                    continue
            _, is_done = side.take_body()
            if is_done is None:
                self._lose(side)
            elif is_done:
                self._answered()
            else:
                break
        self._drop_if_lost(side)

    def server_ended(self) -> None:
        """Its side is closed: no further bytes come."""
        if self.down.phase == "close" and self.waiting:
            self._answered()
        self.closed()

    def closed(self) -> None:
        """Neither side will speak again."""
        if self.is_closed:
            return
        self.is_closed = True
        self.tally.talks.discard(self)
        self.tally.add("unfinished", len(self.waiting))
        if self.waiting and self.down.phase not in ("head", "lost"):
            self.tally.add("unfinished_bytes", self.down.body)
        self.waiting.clear()

    def _request(self, head: bytes) -> bool:
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not self.up.frame(head, until_close=False):
            return False
        self.expects_continue = bool(re.search(rb"\r\nexpect:[ \t]*100-continue", head, re.IGNORECASE))
        method = words[0].decode("latin-1").lower()
        method = method if method in _METHODS and words[0].isupper() else "other"
        self.waiting.append(method)
        self.tally.add(method)
        return True

    def _response(self, head: bytes) -> bool:
        found = re.match(rb"HTTP/1\.\d ([1-5]\d\d)", head)
        if not found or not self.waiting or found[1] == b"101":
            return False
        status = int(found[1])
        if status < 200:
            self.tally.add("informational")
            return True
        self.tally.add(f"status_{status // 100}xx")
        # Who is told no before the body does not send it.
        if self.expects_continue and len(self.waiting) == 1 and self.up.phase != "head" and not self.up.body:
            self.up.next_message()
        self.expects_continue = False
        if not self.down.frame(head, until_close=True):
            return False
        if self.waiting[0] == "head" or status in (204, 304):
            self.down.phase, self.down.left = "body", 0
        return True

    def _answered(self) -> None:
        self.tally.add("answers")
        self.tally.add("response_bytes", self.down.body)
        self.waiting.popleft()
        self.down.next_message()

    def _lose(self, side: _Side) -> None:
        side.phase = "lost"
        self.tally.add("unknown")

    def _drop_if_lost(self, side: _Side) -> None:
        if side.phase == "lost":
            self.tally.add("unknown_bytes", len(side.kept))
            side.kept.clear()

    @staticmethod
    def _skip_empty_lines(side: _Side) -> None:
        while side.kept[:1] in (b"\r", b"\n"):
            del side.kept[:1]
