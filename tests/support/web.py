"""A plain web server: files by path, with or without ranges and ETags, and a login if wanted."""

from dataclasses import dataclass, field
from urllib.parse import unquote

from support.fake_s3 import Answer, etag_of, object_answer


@dataclass
class Web:
    """Files by their path. `redirects` lead from a path to another URL; `headers` must come with every request."""

    objects: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    etags: str = "strong"
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = bytes(data)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        path, _, query = target.partition("?")
        name = unquote(path).lstrip("/")
        if method not in ("GET", "HEAD"):
            return _page(405)
        if any(headers.get(key) != value for key, value in self.headers.items()) or query != self.query:
            return _page(403)
        if name in self.redirects:
            return Answer(302, {"Location": self.redirects[name]}, b"")
        if name not in self.objects:
            return _page(404)
        kept = {key: value for key, value in headers.items() if self.ranges or key != "range"}
        answer = object_answer(self.objects[name], kept, etag_of(self.objects[name]))
        if answer.status >= 400:
            return _page(answer.status)
        if self.etags == "weak":
            answer.headers["ETag"] = "W/" + answer.headers["ETag"]
        elif self.etags == "none":
            del answer.headers["ETag"]
        return answer


def _page(status: int) -> Answer:
    return Answer(status, {"Content-Type": "text/html"}, f"<html><h1>{status}</h1></html>".encode())
