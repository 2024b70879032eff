"""A fake of Google Cloud Storage's XML API: what obstore sends is answered as Google's documentation says.

It is no proof that Google answers so. Objects have a generation, a number that grows with every put
and is never given twice; a put may ask for the one it replaces (0: none). No login is checked.
"""

import itertools
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

from support.fake_s3 import Answer, error_answer, etag_of, listing_answer, object_answer


@dataclass
class FakeGcs:
    """Objects by "bucket/key", each with its generation; any bucket in `buckets` exists."""

    buckets: set[str] = field(default_factory=lambda: {"bucket"})
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    page: int = 1000

    def __post_init__(self) -> None:
        self._generations = itertools.count(1_700_000_000_000_000)

    def put(self, key: str, data: bytes, bucket: str = "bucket") -> None:
        self.objects[f"{bucket}/{key}"] = (bytes(data), next(self._generations))

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        path, _, query = target.partition("?")
        name = unquote(path).strip("/")
        bucket = name.partition("/")[0]
        if bucket not in self.buckets:
            return error_answer(404, "NoSuchBucket")
        if "list-type=2" in query:
            inner = {k.removeprefix(f"{bucket}/"): v[0] for k, v in self.objects.items() if k.startswith(f"{bucket}/")}
            return listing_answer(inner, parse_qs(query, keep_blank_values=True), self.page)
        data, generation = self.objects.get(name, (b"", 0))
        if int(headers.get("x-goog-if-generation-match", generation)) != generation:
            return error_answer(412, "PreconditionFailed")
        if method == "PUT":
            self.put(name.partition("/")[2], body, bucket)
            return Answer(200, _about(*self.objects[name]), b"")
        if generation == 0:
            return error_answer(404, "NoSuchKey")
        if method == "DELETE":
            del self.objects[name]
            return Answer(204, {}, b"")
        answer = object_answer(data, headers, etag_of(data))
        answer.headers.update(_about(data, generation) if answer.status < 300 else {})
        return answer


def _about(data: bytes, generation: int) -> dict[str, str]:
    return {"ETag": etag_of(data), "x-goog-generation": str(generation)}
