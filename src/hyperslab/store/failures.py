"""obstore's errors in our words: what failed, why, and the way out; never a secret."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from hyperslab.errors import (
    AccessError,
    HyperslabError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    StoreNotFoundError,
)
from hyperslab.store.base import Span, changed, exists, gone, rewritten, too_short

__all__ = ["LOGIN", "Place", "is_empty_suffix", "other_region", "transient", "translate", "translate_put", "unusable"]

LOGIN = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, pass storage_options with access_key_id and "
    "secret_access_key or a profile, or anonymous=True for public data"
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,32})</Region>")
_ASKED_URL = re.compile(r"Error performing [A-Z]+ (\S+) in ")
_URL = re.compile(r"https?://\S+")
# What Azurite says of a range of an empty object.
_NOTHING = re.compile(r'"bytes \d+--1/0"')
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"}
_DENIED = {
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A store as a person knows it, and what must not be shown of it.

    `login_apart` is the store's own URL where another host hands out the credentials; `login` says
    how to get in; `kind` is what the store calls a space of names.
    """

    name: str
    login_apart: str | None = None
    secrets: tuple[str, ...] = ()
    login: str = LOGIN
    kind: str = "bucket"

    def __repr__(self) -> str:
        return f"Place({self.name!r})"


def translate(error: Exception, place: Place, name: str, span: Span = None) -> HyperslabError:
    """Return the error to raise instead of obstore's, for the object `name`.

    The kind of error is told by its class's name, as a forked child has classes of its own.
    """
    text, kind = str(error), type(error).__name__
    status, code = _answer(text)
    if _is_login(text, place):
        return AccessError(f"the credentials for {place.name} could not be fetched; {place.login}")
    if code in _NO_BUCKET:
        return StoreNotFoundError(f"there is no {place.kind} {place.name}; check its name and the endpoint")
    if kind in ("FileNotFoundError", "NotFoundError") or status == 404:
        return NotFoundError(f"nothing is stored at {name}")
    if kind == "PreconditionError" or status == 412:
        return changed(name)
    region = other_region(error)
    if region is not None:
        return _wrong_region(place, region)
    if status in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError") or code in _DENIED:
        return _denied(name, status, code, place)
    if status == 416 or "StartTooLarge" in text or _NOTHING.search(text):
        return too_short(name, span, None)
    if status:
        return _refused(name, status, code)
    if kind == "ValueError":
        return InvalidInputError(f"{name} is not a name that an object can have")
    return _broken(text, place, name)


def translate_put(
    error: Exception, place: Place, name: str, *, if_match: str | None, if_absent: bool
) -> HyperslabError:
    """Return the error to raise instead of obstore's, for an object that could not be stored."""
    text, kind = str(error), type(error).__name__
    status, code = _answer(text)
    if code in _NO_BUCKET:
        return translate(error, place, name)
    failed = kind in ("AlreadyExistsError", "PreconditionError") or status in (409, 412)
    if if_absent and failed:
        return exists(name)
    if if_match is not None and (failed or status == 404):
        return gone(name) if status == 404 or "not found" in text else rewritten(name)
    if status == 404:
        return StoreNotFoundError(f"there is no {place.kind} {place.name}; check its name and the endpoint")
    return translate(error, place, name)


def unusable(error: Exception, place: Place) -> HyperslabError:
    """Return the error for settings that obstore does not take; its own message may quote a secret."""
    if re.search(r"redential|ccess [Kk]ey|account|SAS|token|private key|PEM", str(error)):
        return AccessError(f"the credentials for {place.name} cannot be used (wrong file or key?); {place.login}")
    return InvalidInputError(f"{place.name} cannot be reached with these settings; check storage_options")


def _answer(text: str) -> tuple[int, str]:
    """Return the status and the store's own code for the failure, 0 and '' where it gave none."""
    found, told = _STATUS.search(text), _CODE.search(text)
    return int(found[1]) if found else 0, told[1] if told else ""


def is_empty_suffix(error: Exception, span: Span) -> bool:
    """Whether the store refused the last n bytes of an object because it has none at all."""
    return isinstance(span, int) and "status code: 416" in str(error)


def other_region(error: Exception) -> str | None:
    """Return the region to ask instead, '' if the store did not name it, None if the region was right."""
    text = str(error)
    found, told = _REGION.search(text), _CODE.search(text)
    code = told[1] if told else ""
    redirected = "redirect without LOCATION" in text or code in ("PermanentRedirect", "TemporaryRedirect")
    if redirected or (code in ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException")):
        return found[1] if found else ""
    return None


def transient(message: str) -> StoreError:
    """Return a failure that may be over a moment later."""
    failure = StoreError(message)
    failure.transient = True
    return failure


def _is_login(text: str, place: Place) -> bool:
    """Whether it was not the store that failed, but the service that hands out credentials."""
    asked = _ASKED_URL.search(text)
    if asked is not None and place.login_apart is not None:
        return _host(asked[1]) != _host(place.login_apart)
    return re.search(r"Failed to read (EKS )?token file|get-access-token", text) is not None


def _host(url: str) -> tuple[str | None, int]:
    parts = urlsplit(url)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _wrong_region(place: Place, region: str) -> StoreError:
    where, which = (f"in {region}", f"region={region!r}") if region else ("in another region", "its region")
    return StoreError(f"bucket {place.name} lies {where}; give {which} in storage_options, or none at all")


def _denied(name: str, status: int, code: str, place: Place) -> AccessError:
    if code == "RequestTimeTooSkewed":
        return AccessError(f"access to {name} was refused because this machine's clock is wrong; set it")
    return AccessError(f"access to {name} was refused ({_label(status, code)}); {place.login}")


def _refused(name: str, status: int, code: str) -> StoreError:
    what = f"the store answered {_label(status, code)} for {name}"
    busy = status in (408, 425, 429) or code in ("RequestTimeout", "SlowDown")
    if busy or (status >= 500 and status != 501):
        return transient(f"{what}; try again later")
    return StoreError(f"{what}; check the address and the options")


def _broken(text: str, place: Place, name: str) -> StoreError:
    """Return the failure of a request that got no answer, or one that makes no sense."""
    head = text.split("\n\nDebug source", 1)[0]
    if "non-partial response" in head or "Range request not supported" in head:
        return StoreError(f"{place.name} ignores byte ranges (asked for part of {name}); use method='get'")
    if re.search(r"Requested \d", head):
        return transient(f"{place.name} answered with other bytes of {name} than asked for; try again")
    if "object with invalid path" in head:
        return StoreError(
            f"below {name} lies an object that no path can name (it has an empty part, or '..'); remove it"
        )
    if "ertificate" in text.removeprefix(head):
        return StoreError(f"the certificate of {place.name} is not trusted; check endpoint and SSL_CERT_FILE")
    if "kind: Redirect" in text or "kind: Builder" in text:
        return StoreError(f"{place.name} cannot be asked for {name}; check the endpoint")
    if "kind: Timeout" in text:
        return transient(f"{place.name} did not answer in time for {name}; try again, or allow more time")
    if "kind: Connect," in text:
        return transient(f"cannot connect to {place.name}; check the endpoint and the network")
    if "HTTP error" in head:
        return transient(f"the connection to {place.name} broke during the request for {name}; try again")
    reason = head
    for secret in place.secrets:
        reason = reason.replace(secret, "***")
    reason = " ".join(_URL.sub("its URL", reason).split())[:200]
    return StoreError(f"{place.name} did not answer as it should for {name} ({reason}); check the endpoint")


def _label(status: int, code: str) -> str:
    return f"{status or ''} {code}".strip() or "refused"
