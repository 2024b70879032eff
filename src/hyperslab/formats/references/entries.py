"""One reference, as kerchunk writes it: checked, and turned into a place."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.source import join
from hyperslab.formats.zarr.metadata import shown
from hyperslab.layout import WHOLE, Place

__all__ = ["as_place", "check_templates", "inline_bytes", "target_name"]

# A URL that is longer is refused, also once its templates are filled in.
_LONGEST_URL = 4096
_BASE64 = b"base64:"
_TEMPLATE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def as_place(entry: Any, key: str, base: str, templates: Mapping[str, str]) -> Place:
    """Return the place that an entry of a reference file stands for.

    `key` names it in errors, `base` is the folder that URLs without a scheme are relative to.

    >>> as_place("base64:YWI=", "a/0", "", {}), as_place(["{{u}}/b.nc", 8, 4], "a/0", "", {"u": "s3://c"})
    (b'ab', ('s3://c/b.nc', 8, 4))
    """
    if isinstance(entry, str):
        return inline_bytes(entry.encode("utf-8", "surrogatepass"), key)
    if not isinstance(entry, list) or len(entry) not in (1, 3) or not isinstance(entry[0], str):
        raise MetadataError(
            f"the reference {key!r} is {shown(entry)}; expected a text, [url] or [url, offset, length]"
        )  # fmt: skip
    name = target_name(_filled(entry[0], key, templates), base)
    if len(entry) == 1:
        return name, 0, WHOLE
    offset, length = entry[1:]
    for number in (offset, length):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise MetadataError(f"the reference {key!r} has {shown(number)}; expected an offset and a length from 0 on")
    if not length:
        raise MetadataError(f"the reference {key!r} is to 0 bytes; no chunk is so small")
    return name, offset, length


def inline_bytes(data: bytes, key: str) -> bytes:
    """Return the bytes that an inline reference stands for."""
    if not data.startswith(_BASE64):
        return data
    try:
        return base64.b64decode(data[len(_BASE64) :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise MetadataError(f"the reference {key!r} is not base64: {error}") from None


def target_name(url: str, base: str) -> str:
    """Return a URL as it is, or the key of a path beside the reference file.

    >>> target_name("s3://a/b", "runs"), target_name("./b.nc", "runs"), target_name("/data/b.nc", "runs")
    ('s3://a/b', 'runs/b.nc', '/data/b.nc')
    """
    if len(url) > _LONGEST_URL:
        raise MetadataError(f"a reference has a URL of {len(url):,} characters; at most {_LONGEST_URL:,} are read")
    if "://" in url or url.startswith("/"):
        return url
    return join(base, url.removeprefix("./"))


def check_templates(given: Any) -> dict[str, str]:
    """Return the templates of a reference file: names that stand for parts of URLs."""
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise MetadataError(f"templates are {shown(given)}; expected texts by their names")
    return given


def _filled(url: str, key: str, templates: Mapping[str, str]) -> str:
    if "{{" not in url:
        return url
    if len(url) > _LONGEST_URL:
        raise MetadataError(f"the reference {key!r} has a URL of {len(url):,} characters")

    def value(found: re.Match[str]) -> str:
        text = templates.get(found[1])
        if text is None:
            raise MetadataError(f"the reference {key!r} needs the template {found[1]!r}, which is not given")
        if "{{" in text:
            raise UnsupportedError(f"the template {found[1]!r} is a function; write its references out")
        if len(text) > _LONGEST_URL:
            raise MetadataError(f"the template {found[1]!r} has {len(text):,} characters")
        return text

    filled = _TEMPLATE.sub(value, url)
    if "{{" in filled:
        raise UnsupportedError(f"the reference {key!r} has an expression as a URL; write its references out")
    return filled
