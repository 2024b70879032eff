"""Requests signed as AWS wants them (Signature Version 4), for functions that its IAM guards."""

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from hyperslab.errors import AccessError, InvalidInputError
from hyperslab.store.s3 import read_settings

__all__ = ["AwsLogin", "function_region", "read_login", "sign_aws"]

_LOGIN = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_FUNCTION_HOST = re.compile(r"[a-z0-9]+\.lambda-url\.(?P<region>[a-z0-9-]+)\.on\.aws")


@dataclass(frozen=True, slots=True)
class AwsLogin:
    """Who sends a request to AWS, and the region of the service that it goes to."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str = "us-east-1"


def read_login(url: str, environment: Mapping[str, str] | None = None) -> AwsLogin:
    """Return the credentials in the environment or the profile's files, for the function at a URL.

    >>> keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret"}
    >>> read_login("https://abc.lambda-url.eu-west-1.on.aws/", keys)
    AwsLogin(region='eu-west-1')
    """
    try:
        found = read_settings("function", None, environment)
    except AccessError as error:
        if "there are no credentials" not in str(error):
            raise
        raise AccessError(f"there are no credentials to sign a call of {url} with; {_LOGIN}") from None
    region = function_region(url) or found.region
    if not found.access_key_id or not found.secret_access_key:
        raise AccessError(f"there are no credentials to sign a call of {url} with; {_LOGIN}")
    if region is None:
        raise InvalidInputError(f"the region of {url} is not known; set AWS_REGION")
    return AwsLogin(found.access_key_id, found.secret_access_key, found.session_token, region)


def function_region(url: str) -> str | None:
    """Return the region that the URL of a Lambda function names, None if it is another URL.

    >>> function_region("https://abc.lambda-url.eu-west-1.on.aws/")
    'eu-west-1'
    """
    found = _FUNCTION_HOST.fullmatch(urlsplit(url).hostname or "")
    return found["region"] if found else None


def sign_aws(
    login: AwsLogin,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    service: str = "lambda",
) -> dict[str, str]:
    """Return the headers to add to a POST of `body`, so that AWS knows who sent it.

    All of `headers` are signed as well: each must arrive as it is given.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    added = {"x-amz-date": stamp}
    if login.session_token:
        added["x-amz-security-token"] = login.session_token
    signed = {"host": _host(url)} | {name.lower(): _folded(value) for name, value in {**headers, **added}.items()}
    names = ";".join(sorted(signed))
    canonical = [
        "POST",
        _canonical_path(urlsplit(url).path),
        "",
        *[f"{name}:{signed[name]}" for name in sorted(signed)],
        "",
        names,
        hashlib.sha256(body).hexdigest(),
    ]
    scope = f"{stamp[:8]}/{login.region}/{service}/aws4_request"
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    message = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, digest])
    signature = hmac.new(_key(login, scope), message.encode(), hashlib.sha256).hexdigest()
    added["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={login.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return added


def _key(login: AwsLogin, scope: str) -> bytes:
    """Return the key of one day, region and service."""
    key = f"AWS4{login.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _canonical_path(path: str) -> str:
    """Return a URL's path as it is signed.

    What stands for a character in it is quoted once more: the rule of all services but S3.

    >>> _canonical_path("/a//./b%20c/")
    '/a/b%2520c/'
    """
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            kept[-1:] = []
        elif part not in ("", "."):
            kept.append(part)
    end = "/" if kept and path.endswith("/") else ""
    return quote("/" + "/".join(kept) + end, safe="/-_.~")


def _folded(value: str) -> str:
    return " ".join(value.split())


def _host(url: str) -> str:
    """Return the host as the Host header gives it: with its port, unless it is the scheme's own."""
    parts = urlsplit(url)
    own = {"http": 80, "https": 443}.get(parts.scheme)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port in (None, own) else f"{host}:{parts.port}"
