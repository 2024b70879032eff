"""How a bucket of Google Cloud Storage is reached: storage options first, then the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from hyperslab.errors import AccessError, InvalidInputError
from hyperslab.store.options import Names, as_endpoint, environment, first, is_true, read_options

__all__ = ["LOGIN", "GoogleSettings", "read_settings"]

LOGIN = (
    "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, pass storage_options with "
    "service_account (a file) or token, or anonymous=True for public data"
)
GOOGLE_URL = "https://storage.googleapis.com"

_NAMES = Names(
    "Google Cloud Storage",
    texts=("service_account", "service_account_key", "application_credentials", "token", "endpoint"),
    flags=("anonymous", "instance_metadata"),
    aliases={
        "service_account_path": "service_account",
        "service_account_file": "service_account",
        "credentials": "application_credentials",
        "bearer_token": "token",
        "anon": "anonymous",
        "skip_signature": "anonymous",
        "endpoint_url": "endpoint",
        "base_url": "endpoint",
    },
    prefix="google_",
)
_LOGINS = (
    "anonymous",
    "token",
    "service_account",
    "service_account_key",
    "application_credentials",
    "instance_metadata",
)
# Variables that obstore obeys whatever it is told, and the way to log in that each stands for.
_OBEYED = {
    "GOOGLE_SERVICE_ACCOUNT": "service_account",
    "GOOGLE_SERVICE_ACCOUNT_PATH": "service_account",
    "GOOGLE_SERVICE_ACCOUNT_KEY": "service_account_key",
}
# What tells that a platform hands out credentials at an address that answers.
_PLATFORM = ("K_SERVICE", "CLOUD_RUN_JOB", "FUNCTION_TARGET", "GAE_ENV", "GCE_METADATA_HOST")


@dataclass(frozen=True, slots=True)
class GoogleSettings:
    """All that is needed to ask a bucket for objects. Equal settings share connections.

    `login` says how, and `secret` is what that needs: a file's path, a key in JSON, or a token.
    """

    bucket: str
    endpoint: str = GOOGLE_URL
    login: str = "anonymous"
    secret: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        own = self.endpoint == GOOGLE_URL
        return f"gs://{self.bucket}" + ("" if own else f"?endpoint={urlsplit(self.endpoint).netloc}")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any message; the path of a file is no secret."""
        return (self.secret,) if self.secret and self.login in ("token", "service_account_key") else ()

    @property
    def anonymous(self) -> bool:
        return self.login == "anonymous"


def read_settings(
    bucket: str, options: Mapping[str, Any] | None = None, variables: Mapping[str, str] | None = None
) -> GoogleSettings:
    """Gather the settings for a bucket; raises AccessError at once when there are no credentials.

    >>> read_settings("b", {"token": "anon"}, {})
    GoogleSettings(bucket='b', endpoint='https://storage.googleapis.com', login='anonymous')
    """
    environ = environment(variables)
    given = _plain(read_options(_NAMES, options))
    emulator = environ.get("STORAGE_EMULATOR_HOST")
    endpoint = given.get("endpoint") or environ.get("GOOGLE_BASE_URL") or emulator
    if endpoint is not None and "://" not in endpoint and endpoint is emulator:
        endpoint = f"http://{endpoint}"
    login = _from_options(given, environ) or _from_environment(environ)
    if login is None and emulator:
        login = ("anonymous", None)
    if login is None:
        raise AccessError(f"there are no credentials for gs://{bucket}; {LOGIN}")
    return GoogleSettings(bucket, GOOGLE_URL if endpoint is None else as_endpoint("a Google", endpoint), *login)


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with gcsfs's words for a token replaced by what they mean."""
    meaning = {"anon": "anonymous", "cloud": "instance_metadata"}.get(given.get("token", ""))
    if meaning is not None:
        return {**{name: value for name, value in given.items() if name != "token"}, meaning: True}
    if given.get("token", "").endswith(".json"):
        given["application_credentials"] = given.pop("token")
    return given


def _from_options(given: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, str | None] | None:
    chosen = [name for name in _LOGINS if given.get(name)]
    if not chosen:
        return None
    if len(chosen) > 1:
        raise InvalidInputError(f"storage options {' and '.join(chosen)} are ways to log in; give one")
    for variable, stands_for in _OBEYED.items():
        if environ.get(variable) and chosen[0] != stands_for:
            raise InvalidInputError(f"storage option {chosen[0]} is not obeyed while {variable} is set; unset it")
    value = given[chosen[0]]
    return chosen[0], value if isinstance(value, str) else None


def _from_environment(environ: Mapping[str, str]) -> tuple[str, str | None] | None:
    if is_true(environ.get("GOOGLE_SKIP_SIGNATURE", "")):
        return "anonymous", None
    for variables, login in (
        (("GOOGLE_BEARER_TOKEN",), "token"),
        (("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"), "service_account"),
        (("GOOGLE_SERVICE_ACCOUNT_KEY",), "service_account_key"),
        (("GOOGLE_APPLICATION_CREDENTIALS",), "application_credentials"),
    ):
        found = first(environ, *variables)
        if found:
            return login, found
    home = environ.get("HOME") or os.path.expanduser("~")
    folder = environ.get("CLOUDSDK_CONFIG") or os.path.join(home, ".config", "gcloud")
    default = os.path.join(folder, "application_default_credentials.json")
    if os.path.exists(default):
        return "application_credentials", default
    return ("instance_metadata", None) if any(environ.get(name) for name in _PLATFORM) else None
