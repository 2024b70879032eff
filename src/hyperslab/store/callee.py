"""Where a function beside the data is, and how to prove who calls it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from hyperslab.errors import InvalidInputError
from hyperslab.store.options import environment as process_environment
from hyperslab.store.signing import SigningKey

__all__ = ["Function"]

Provider = Literal["aws", "google", "azure", "local"]
Auth = Literal["none", "aws"]

URL_VARIABLE = "HYPERSLAB_FUNCTION_URL"
KEY_VARIABLE = "HYPERSLAB_FUNCTION_KEY"

_HOSTS = (
    ("aws", re.compile(r"\.lambda-url\.[a-z0-9-]+\.on\.aws$")),
    ("google", re.compile(r"\.(?:cloudfunctions\.net|run\.app)$")),
    ("azure", re.compile(r"\.azurewebsites\.net$")),
)
_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[ -~\t]*")
# Set for each call, or no business of a caller's.
_OWN_HEADERS = ("host", "connection", "transfer-encoding", "accept-encoding", "content-encoding", "content-length")


@dataclass(frozen=True, slots=True)
class Function:
    """A deployed function that reads chunks beside the data and sends back only the cells asked for.

    `key` signs the calls: a `SigningKey`, or its text 'name:secret'. `headers` go with every call, such as
    `x-functions-key` on Azure. `auth="aws"` signs for AWS's IAM, with the credentials of the environment.
    `provider` and `memory_mb` say whose prices and limits hold; URLs of the providers tell their own.
    `compress` asks for compressed cells, which pays on slow links. No secret is shown by its repr.

    >>> Function("http://127.0.0.1:9000", key="lab:00112233445566778899aabbccddeeff")
    Function(url='http://127.0.0.1:9000/', provider='local', memory_mb=1769)
    """

    url: str
    key: SigningKey | str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    auth: Auth = "none"
    provider: Provider = "local"
    memory_mb: int = 1769
    compress: bool = False

    def __post_init__(self) -> None:
        url = _checked_url(self.url)
        fixed: dict[str, Any] = {"url": url, "headers": _checked_headers(self.headers, url)}
        if self.key is not None:
            fixed["key"] = _checked_key(self.key)
        if self.provider == "local":
            fixed["provider"] = _guess(url)
        elif self.provider not in get_args(Provider):
            raise InvalidInputError(f"provider is one of {', '.join(get_args(Provider))}, got {self.provider!r}")
        if self.auth not in get_args(Auth):
            raise InvalidInputError(f"auth is 'none' or 'aws', got {self.auth!r}")
        if type(self.memory_mb) is not int or not 64 <= self.memory_mb <= 1 << 20:
            raise InvalidInputError(f"memory_mb is a whole number of megabytes from 64 on, got {self.memory_mb!r}")
        if type(self.compress) is not bool:
            raise InvalidInputError(f"compress is True or False, got {self.compress!r}")
        for name, value in fixed.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        shown = {"provider": self.provider, "memory_mb": self.memory_mb}
        shown |= {"auth": self.auth} if self.auth != "none" else {}
        shown |= {"compress": True} if self.compress else {}
        return f"Function(url={self.url!r}, {', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> "Function":
        """Return the function that HYPERSLAB_FUNCTION_URL names, with the key in HYPERSLAB_FUNCTION_KEY if it is set.

        >>> Function.from_environment({"HYPERSLAB_FUNCTION_URL": "https://abc.lambda-url.eu-west-1.on.aws/"}).provider
        'aws'
        """
        environ = process_environment(environment)
        url = environ.get(URL_VARIABLE)
        if not url:
            raise InvalidInputError(f"{URL_VARIABLE} is not set; set it to the function's URL, or pass a Function")
        return Function(url, key=environ.get(KEY_VARIABLE) or None)


def _checked_url(url: Any) -> str:
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        good = parts.scheme in ("http", "https") and parts.hostname and re.fullmatch(r"[!-~]+", parts.geturl())
        _ = parts.port
    except ValueError:
        good = False
    # The URL is not repeated in the message: it may hold a login.
    if not good:
        raise InvalidInputError("the URL of a function is written 'https://host/path', or 'http://host:port/path'")
    if "@" in parts.netloc:
        raise InvalidInputError("the URL of a function has no login in it; give headers, or a key")
    if parts.query or parts.fragment:
        raise InvalidInputError(
            "the URL of a function has nothing after '?' or '#'; the code of an Azure function is given as "
            "headers={'x-functions-key': code}"
        )
    return parts._replace(path=parts.path or "/").geturl()


def _checked_key(key: Any) -> SigningKey:
    if isinstance(key, str):
        return SigningKey.parse(key)
    if not isinstance(key, SigningKey):
        raise InvalidInputError(f"key is a SigningKey or its text 'name:secret', got {type(key).__name__}")
    return key


def _checked_headers(headers: Any, url: str) -> dict[str, str] | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidInputError(f"headers is a mapping of names to texts, got {type(headers).__name__}")
    checked = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise InvalidInputError("the name of a header is letters, digits and hyphens")
        if name.lower() in _OWN_HEADERS or name.lower().startswith("x-hyperslab-"):
            raise InvalidInputError(f"header {name!r} is set by Hyperslab itself; leave it out")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidInputError(f"header {name!r} must be a text of one line in ASCII")
        checked[name.lower()] = value
    parts = urlsplit(url)
    if checked and parts.scheme == "http" and not _LOOPBACK.fullmatch(parts.hostname or ""):
        raise InvalidInputError("headers may hold secrets, and http:// shows them to everybody; use https://")
    return checked


def _guess(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return next((name for name, form in _HOSTS if form.search(host)), "local")
