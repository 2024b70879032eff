"""Signed requests: who sends one knows a shared secret, and nobody changed it or can send it again later.

The signature is HMAC-SHA256 over a version, the key's name, a nonce, the expiry and the body's SHA-256.
"""

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from hyperslab.errors import AccessError, InvalidInputError

__all__ = ["MOST_LIFETIME_S", "SigningKey", "sign", "verify"]

KEY_HEADER = "x-hyperslab-key"
NONCE_HEADER = "x-hyperslab-nonce"
EXPIRES_HEADER = "x-hyperslab-expires"
SIGNATURE_HEADER = "x-hyperslab-signature"

# A request that lives longer is refused: whoever checks must remember its nonce for so long.
MOST_LIFETIME_S = 900.0

_VERSION = b"hyperslab-call-1"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_EXPIRES = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_LEAST_SECRET_BYTES = 16


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret that a function and its callers share, and the name that requests give it."""

    id: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not _ID.fullmatch(str(self.id)):
            raise InvalidInputError("the name of a signing key is 1 to 64 letters, digits and ._-")
        if len(bytes(self.secret)) < _LEAST_SECRET_BYTES:
            raise InvalidInputError(f"signing key {self.id!r} needs a secret of {_LEAST_SECRET_BYTES} bytes or more")

    @staticmethod
    def parse(text: str) -> "SigningKey":
        """Return the key of a text 'name:secret', the secret in hexadecimal digits.

        >>> SigningKey.parse("lab:00112233445566778899aabbccddeeff")
        SigningKey(id='lab')
        """
        name, colon, digits = text.strip().partition(":")
        # The text is never shown: it is the secret.
        if not colon or not re.fullmatch(r"(?:[0-9A-Fa-f]{2})+", digits):
            raise InvalidInputError("a signing key is written 'name:secret', the secret in hexadecimal digits")
        return SigningKey(name, bytes.fromhex(digits))

    @staticmethod
    def new(name: str) -> "SigningKey":
        """Return a key with a secret that nobody knows yet."""
        return SigningKey(name, secrets.token_bytes(32))

    @property
    def text(self) -> str:
        """What `parse` reads; it holds the secret."""
        return f"{self.id}:{self.secret.hex()}"


def sign(key: SigningKey, body: bytes, *, now: float, nonce: str, lifetime_s: float = 60) -> dict[str, str]:
    """Return the headers that make a request with this body one of the key's owner, for `lifetime_s` seconds.

    >>> key = SigningKey("lab", bytes(16))
    >>> headers = sign(key, b"body", now=0.0, nonce="n" * 16)
    >>> verify({"lab": key}, headers, b"body", now=59.0)
    ('lab', 'nnnnnnnnnnnnnnnn', 60)
    """
    if not _NONCE.fullmatch(nonce) or not 0 < lifetime_s <= MOST_LIFETIME_S:
        raise InvalidInputError("a nonce is 16 to 64 letters, digits and _-; a request lives 15 minutes at most")
    expires = str(math.ceil(now + lifetime_s))
    return {
        KEY_HEADER: key.id,
        NONCE_HEADER: nonce,
        EXPIRES_HEADER: expires,
        SIGNATURE_HEADER: _signature(key.secret, key.id, nonce, expires, body),
    }


def verify(
    keys: Mapping[str, SigningKey], headers: Mapping[str, str], body: bytes, *, now: float
) -> tuple[str, str, int]:
    """Return the key's name, the nonce and the expiry of a request that one of `keys` signed.

    The names of `headers` are in lower case. Raises AccessError, which does not say what of it was wrong.
    """
    values = [headers.get(name, "") for name in (KEY_HEADER, NONCE_HEADER, EXPIRES_HEADER, SIGNATURE_HEADER)]
    if not any(values):
        raise AccessError("the request is not signed; give the function's key to the caller")
    name, nonce, expires, found = values
    formed = [form.fullmatch(text) for form, text in zip((_ID, _NONCE, _EXPIRES, _SIGNATURE), values, strict=True)]
    if not all(formed):
        raise AccessError("the request's signature is not well formed; check the caller's version")
    key = keys.get(name)
    # An unknown name takes as long as a known one.
    secret = bytes(32) if key is None else key.secret
    good = hmac.compare_digest(_signature(secret, name, nonce, expires, body), found)
    if key is None or not good:
        raise AccessError("the request's signature does not fit; check the key and its secret")
    if not now <= int(expires) <= now + MOST_LIFETIME_S + 1:
        raise AccessError("the request has expired, or expires too late; check the clocks of both machines")
    return name, nonce, int(expires)


def _signature(secret: bytes, name: str, nonce: str, expires: str, body: bytes) -> str:
    digest = hashlib.sha256(body).hexdigest().encode()
    message = b"\n".join([_VERSION, name.encode(), nonce.encode(), expires.encode(), digest])
    return hmac.new(secret, message, hashlib.sha256).hexdigest()
