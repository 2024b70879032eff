"""How a bucket is reached: storage options, environment and profile files, in this order."""

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from hyperslab.errors import AccessError, InvalidInputError, NotFoundError, StoreError
from hyperslab.store.failures import LOGIN, transient
from hyperslab.store.options import Names, as_endpoint, first, is_true, read_options

__all__ = ["S3Settings", "bucket_region", "read_settings"]

# Where a bucket of AWS is asked for, and where for its region.
AWS_URL = "https://s3.{region}.amazonaws.com"
AWS_PROBE_URL = "https://s3.amazonaws.com"

_NAMES = Names(
    "s3",
    texts=("endpoint", "region", "access_key_id", "secret_access_key", "session_token", "profile"),
    flags=("anonymous", "requester_pays", "virtual_hosted", "instance_metadata"),
    aliases={
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "anon": "anonymous",
        "skip_signature": "anonymous",
        "endpoint_url": "endpoint",
        "endpoint_url_s3": "endpoint",
        "region_name": "region",
        "default_region": "region",
        "request_payer": "requester_pays",
        "virtual_hosted_style_request": "virtual_hosted",
        "profile_name": "profile",
    },
    prefix="aws_",
)
# What tells that a platform hands out credentials at an address that answers.
_PLATFORM = (
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)
_LOGIN_PROGRAMS = ("role_arn", "sso_session", "sso_start_url", "credential_process", "login_session")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """All that is needed to ask a bucket for objects. Equal settings share connections."""

    bucket: str
    endpoint: str | None = None
    region: str | None = None
    region_chosen: bool = False  # by the caller, so that it is not corrected
    anonymous: bool = False
    requester_pays: bool = False
    virtual_hosted: bool = False
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        host = f"?endpoint={urlsplit(self.endpoint).netloc}" if self.endpoint else ""
        return f"s3://{self.bucket}{host}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any message."""
        return tuple(v for v in (self.secret_access_key, self.session_token, self.access_key_id) if v)

    def url(self, region: str) -> str:
        """Return the address that requests go to; with virtual hosts the bucket is part of it."""
        url = self.endpoint or AWS_URL.format(region=region) + (".cn" if region.startswith("cn-") else "")
        if not self.virtual_hosted:
            return url
        parts = urlsplit(url)
        known = parts.netloc.startswith(self.bucket + ".")
        return url if known else parts._replace(netloc=f"{self.bucket}.{parts.netloc}").geturl()


def read_settings(
    bucket: str, options: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> S3Settings:
    """Gather the settings for a bucket; raises AccessError at once when there are no credentials.

    Options go before the environment, and both before the profile's files; a profile that is
    asked for in the options goes before the environment.

    >>> read_settings("b", {"anon": True, "endpoint": "http://localhost:9000"}, {}).address
    's3://b?endpoint=localhost:9000'
    """
    environ = os.environ if environment is None else environment
    given = _given(options)
    profile = _Profile(given.get("profile"), environ)
    endpoint = _endpoint(given, environ, profile)
    anonymous = _switch("anonymous", given, "AWS_SKIP_SIGNATURE", environ)
    keys = (None, None, None) if anonymous else _credentials(given, environ, profile)
    if not (anonymous or keys[0] or given.get("instance_metadata") or any(n in environ for n in _PLATFORM)):
        raise AccessError(f"there are no credentials for s3://{bucket}; {LOGIN}")
    return S3Settings(
        bucket,
        endpoint=endpoint,
        region=_region(given, environ, profile),
        region_chosen="region" in given,
        anonymous=anonymous,
        requester_pays=_switch("requester_pays", given, "AWS_REQUEST_PAYER", environ),
        virtual_hosted=_switch("virtual_hosted", given, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", environ),
        access_key_id=keys[0],
        secret_access_key=keys[1],
        session_token=keys[2],
    )


def bucket_region(bucket: str, *, timeout_s: float = 5.0) -> str:
    """Ask AWS, with one unsigned HEAD, in which region a bucket lies."""
    from urllib import error, request

    class Stay(request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    asked = request.Request(f"{AWS_PROBE_URL}/{bucket}", method="HEAD")
    try:
        with request.build_opener(Stay()).open(asked, timeout=timeout_s) as answer:
            status, headers = answer.status, answer.headers
    except error.HTTPError as answer:  # a refusal names the region as well
        status, headers = answer.code, answer.headers
    except OSError as failure:
        reason = getattr(failure, "reason", failure)
        raise transient(
            f"the region of bucket {bucket!r} could not be found out ({reason}); give it in storage_options"
        ) from None
    region = headers.get("x-amz-bucket-region")
    if region:
        return str(region)
    if status == 404:
        raise NotFoundError(f"there is no bucket s3://{bucket} on AWS; check its name, or give an endpoint")
    raise StoreError(f"AWS did not name the region of bucket {bucket!r} ({status}); give it in storage_options")


def _given(options: Mapping[str, Any] | None) -> dict[str, Any]:
    given = read_options(_NAMES, options)
    if ("access_key_id" in given) != ("secret_access_key" in given):
        raise InvalidInputError("storage options access_key_id and secret_access_key go together; give both")
    return given


def _switch(name: str, given: Mapping[str, Any], variable: str, environ: Mapping[str, str]) -> bool:
    return bool(given[name]) if name in given else is_true(environ.get(variable, ""))


def _region(given: Mapping[str, Any], environ: Mapping[str, str], profile: "_Profile") -> str | None:
    return given.get("region") or first(environ, "AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region")


def _endpoint(given: Mapping[str, Any], environ: Mapping[str, str], profile: "_Profile") -> str | None:
    endpoint = (
        given.get("endpoint")
        or first(environ, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        or profile.get("endpoint_url")
    )
    return None if endpoint is None else as_endpoint("an S3", endpoint)


def _credentials(
    given: Mapping[str, Any], environ: Mapping[str, str], profile: "_Profile"
) -> tuple[str | None, str | None, str | None]:
    if "access_key_id" in given:
        return given["access_key_id"], given["secret_access_key"], given.get("session_token")
    key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if key and secret and not profile.chosen:
        return key, secret, first(environ, "AWS_SESSION_TOKEN", "AWS_TOKEN")
    return profile.credentials()


class _Profile:
    """One section of the AWS credentials and config files, read when first needed."""

    def __init__(self, name: str | None, environ: Mapping[str, str]) -> None:
        self.chosen = name is not None
        self.name = name or environ.get("AWS_PROFILE") or "default"
        home = environ.get("HOME") or os.path.expanduser("~")
        self._files = (
            environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(home, ".aws", "credentials"),
            environ.get("AWS_CONFIG_FILE") or os.path.join(home, ".aws", "config"),
        )
        self._values: dict[str, str] | None = None

    def get(self, option: str) -> str | None:
        if self._values is None:
            self._values = self._read()
        return self._values.get(option) or None

    def credentials(self) -> tuple[str | None, str | None, str | None]:
        key, secret = self.get("aws_access_key_id"), self.get("aws_secret_access_key")
        if key and secret:
            return key, secret, self.get("aws_session_token")
        for option in _LOGIN_PROGRAMS:
            if self.get(option):
                raise AccessError(
                    f"AWS profile {self.name!r} logs in by {option}, which is not supported; run "
                    f"`eval $(aws configure export-credentials --profile {self.name} --format env)` first"
                )
        if self.chosen:
            raise AccessError(f"AWS profile {self.name!r} holds no access key; {LOGIN}")
        return None, None, None

    def _read(self) -> dict[str, str]:
        values: dict[str, str] = {}
        names: set[str] = set()
        for path in reversed(self._files):  # what the credentials file says goes first
            for section, content in _sections(os.path.expanduser(path)).items():
                name = section.removeprefix("profile ").strip()
                names.add(name)
                if name == self.name:
                    values.update(content)
        if self.chosen and self.name not in names:
            known = ", ".join(sorted(names)[:20]) or "none at all"
            raise InvalidInputError(f"there is no AWS profile {self.name!r}; the files hold {known}")
        return values


def _sections(path: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=False, default_section="\x00")
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, configparser.Error) as error:
        # The message of a parser's error quotes the line, which may be a secret.
        raise AccessError(f"AWS profile file {path} cannot be read ({type(error).__name__}); repair it") from None
    return {name: dict(parser.items(name)) for name in parser.sections()}
