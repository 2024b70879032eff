"""A small S3 in memory: GET, HEAD, PUT, DELETE and listing, unsigned. For faults, not for conformance."""

import hashlib
import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def error_answer(status: int, code: str, extra: str = "") -> Answer:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code>{extra}</Error>'.encode()
    return Answer(status, {"Content-Type": "application/xml"}, body)


@dataclass
class FakeS3:
    """Objects by "bucket/key"; any bucket in `buckets` exists."""

    buckets: set[str] = field(default_factory=lambda: {"bucket"})
    objects: dict[str, bytes] = field(default_factory=dict)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        path, _, query = target.partition("?")
        name = unquote(path).strip("/")
        bucket = name.partition("/")[0]
        if bucket not in self.buckets:
            return error_answer(404, "NoSuchBucket")
        if method == "PUT":
            self.objects[name] = body
            return Answer(200, {"ETag": _etag(body)}, b"")
        if method == "DELETE":
            self.objects.pop(name, None)
            return Answer(204, {}, b"")
        if "list-type=2" in query:
            return self._listing(bucket, parse_qs(query, keep_blank_values=True))
        if name not in self.objects:
            return error_answer(404, "NoSuchKey")
        return _object(self.objects[name], headers)

    def _listing(self, bucket: str, query: dict[str, list[str]]) -> Answer:
        prefix = query.get("prefix", [""])[0]
        inner = [name.removeprefix(f"{bucket}/") for name in sorted(self.objects) if name.startswith(f"{bucket}/")]
        folders, entries = set(), []
        for name in inner:
            if not name.startswith(prefix):
                continue
            head, slash, _ = name.removeprefix(prefix).partition("/")
            if slash and "delimiter" in query:
                folders.add(prefix + head + "/")
            else:
                data = self.objects[f"{bucket}/{name}"]
                entries.append(
                    f"<Contents><Key>{escape(name)}</Key><LastModified>2015-10-21T07:28:00Z</LastModified>"
                    f"<ETag>{escape(_etag(data))}</ETag><Size>{len(data)}</Size></Contents>"
                )
        shown = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(entries)}{shown}</ListBucketResult>"
        return Answer(200, {"Content-Type": "application/xml"}, body.encode())


def _object(data: bytes, headers: dict[str, str]) -> Answer:
    etag = _etag(data)
    about = {"ETag": etag, "Last-Modified": _DATE, "Accept-Ranges": "bytes"}
    if headers.get("if-match", etag) != etag:
        return error_answer(412, "PreconditionFailed")
    wanted = _RANGE.match(headers.get("range", ""))
    if wanted is None:
        return Answer(200, about, data)
    first, last = wanted.groups()
    start, stop = (int(first), int(last) + 1 if last else len(data)) if first else (-int(last), len(data))
    start, stop = max(0, start + len(data)) if start < 0 else start, min(stop, len(data))
    if start >= stop:
        return error_answer(416, "InvalidRange")
    about["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
    return Answer(206, about, data[start:stop])


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
