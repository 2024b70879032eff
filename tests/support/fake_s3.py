"""A small S3 in memory: GET, HEAD, PUT with conditions, DELETE and listing in pages, unsigned. A fake, for faults."""

import hashlib
import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape, unescape

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
    page: int = 1000

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        path, _, query = target.partition("?")
        name = unquote(path).strip("/")
        bucket = name.partition("/")[0]
        if bucket not in self.buckets:
            return error_answer(404, "NoSuchBucket")
        if method == "PUT":
            return self._put(name, headers, body)
        if method == "DELETE":
            self.objects.pop(name, None)
            return Answer(204, {}, b"")
        if method == "POST" and query == "delete":
            return self._delete_many(bucket, body)
        if "list-type=2" in query:
            return self._listing(bucket, parse_qs(query, keep_blank_values=True))
        if name not in self.objects:
            return error_answer(404, "NoSuchKey")
        return object_answer(self.objects[name], headers, etag_of(self.objects[name]))

    def _put(self, name: str, headers: dict[str, str], body: bytes) -> Answer:
        old = self.objects.get(name)
        if headers.get("if-none-match") == "*" and old is not None:
            return error_answer(412, "PreconditionFailed")
        if "if-match" in headers and old is None:
            return error_answer(404, "NoSuchKey")
        if old is not None and headers.get("if-match", etag_of(old)) != etag_of(old):
            return error_answer(412, "PreconditionFailed")
        self.objects[name] = body
        return Answer(200, {"ETag": etag_of(body)}, b"")

    def _delete_many(self, bucket: str, body: bytes) -> Answer:
        keys = [unescape(key, {"&apos;": "'", "&quot;": '"'}) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        for key in keys:
            self.objects.pop(f"{bucket}/{key}", None)
        done = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return Answer(200, {"Content-Type": "application/xml"}, f"<DeleteResult>{done}</DeleteResult>".encode())

    def _listing(self, bucket: str, query: dict[str, list[str]]) -> Answer:
        inner = {
            name.removeprefix(f"{bucket}/"): data
            for name, data in self.objects.items()
            if name.startswith(f"{bucket}/")
        }
        return listing_answer(inner, query, self.page)


def listing_answer(objects: dict[str, bytes], query: dict[str, list[str]], page: int) -> Answer:
    """One page of a listing in S3's XML, which Google's XML API speaks, too."""
    prefix, after = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
    found: dict[str, str] = {}
    for name, data in sorted(objects.items()):
        head, slash, _ = name.removeprefix(prefix).partition("/")
        if not name.startswith(prefix):
            continue
        if slash and "delimiter" in query:
            folder = prefix + head + "/"
            found[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
        else:
            found[name] = (
                f"<Contents><Key>{escape(name)}</Key><LastModified>2015-10-21T07:28:00Z</LastModified>"
                f"<ETag>{escape(etag_of(data))}</ETag><Size>{len(data)}</Size></Contents>"
            )
    names = [name for name in found if name > after]
    shown, more = names[:page], len(names) > page
    token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
    body = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
    body += "".join(found[name] for name in shown) + "</ListBucketResult>"
    return Answer(200, {"Content-Type": "application/xml"}, body.encode())


def object_answer(data: bytes, headers: dict[str, str], etag: str) -> Answer:
    """The object, or the part of it that was asked for, if it is still the version that was asked for."""
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


def etag_of(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
