"""How a container of Azure Blob Storage is reached: storage options first, then the environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from hyperslab.errors import AccessError, InvalidInputError
from hyperslab.store.options import Names, as_endpoint, environment, first, is_true, read_options

__all__ = ["LOGIN", "AzureSettings", "read_settings"]

LOGIN = (
    "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, pass storage_options "
    "with account_key, sas_token, azure_cli=True or managed_identity=True, or anonymous=True for public data"
)

# The account of the emulator, and its key, which is the same for everybody and printed in its manual.
EMULATOR_ACCOUNT = "devstoreaccount1"
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
EMULATOR_URL = "http://127.0.0.1:10000"

_NAMES = Names(
    "Azure",
    texts=(
        "account",
        "account_key",
        "sas_token",
        "connection_string",
        "token",
        "tenant_id",
        "client_id",
        "client_secret",
        "endpoint",
    ),
    flags=("anonymous", "azure_cli", "managed_identity", "emulator"),
    aliases={
        "account_name": "account",
        "storage_account": "account",
        "storage_account_name": "account",
        "storage_account_key": "account_key",
        "access_key": "account_key",
        "sas_key": "sas_token",
        "storage_sas_token": "sas_token",
        "storage_connection_string": "connection_string",
        "bearer_token": "token",
        "anon": "anonymous",
        "skip_signature": "anonymous",
        "endpoint_url": "endpoint",
        "use_azure_cli": "azure_cli",
        "use_emulator": "emulator",
    },
    prefix="azure_",
)
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
# What tells that a platform hands out credentials: which variable, and how it is asked.
_PLATFORM = {
    "AZURE_FEDERATED_TOKEN_FILE": "workload_identity",
    "IDENTITY_ENDPOINT": "managed_identity",
    "MSI_ENDPOINT": "managed_identity",
}


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """All that is needed to ask a container for blobs. Equal settings share connections.

    `login` says which of the secrets counts, in obstore's words for it.
    """

    container: str
    account: str
    endpoint: str
    login: str = "anonymous"
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tenant_id: str | None = field(default=None, repr=False)
    client_id: str | None = field(default=None, repr=False)
    client_secret: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        netloc = urlsplit(self.endpoint).netloc
        own = netloc == f"{self.account}.blob.core.windows.net"
        return f"az://{self.container}?account={self.account}" + ("" if own else f"&endpoint={netloc}")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any message."""
        hidden = (self.account_key, self.sas_token, self.token, self.client_secret)
        return tuple(value for value in hidden if value)

    @property
    def anonymous(self) -> bool:
        return self.login == "anonymous"


def read_settings(
    container: str,
    options: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
    *,
    account: str | None = None,
    endpoint: str | None = None,
) -> AzureSettings:
    """Gather the settings for a container; raises AccessError at once when there are no credentials.

    `account` and `endpoint` are those that the URL names: other ones among the options are refused.

    >>> read_settings("c", {"account": "abc", "anonymous": True}, {}).address
    'az://c?account=abc'
    """
    environ = environment(variables)
    given = read_options(_NAMES, options)
    if account is not None and given.setdefault("account", account) != account:
        raise InvalidInputError(f"the URL names account {account!r}, the options {given['account']!r}; give one")
    parts = _parts(given, environ)
    name = parts.get("AccountName") or given.get("account")
    name = name or first(environ, "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
    if name is None:
        raise InvalidInputError(
            f"which storage account holds az://{container}? Give account in storage_options, set "
            "AZURE_STORAGE_ACCOUNT_NAME, or write abfss://container@account.dfs.core.windows.net/path"
        )
    if not _ACCOUNT.fullmatch(name) or given.get("account", name) != name:
        raise InvalidInputError(f"{name!r} is not the storage account's name: 3 to 24 small letters and digits")
    login = _login(given, parts, environ)
    if login is None:
        raise AccessError(f"there are no credentials for az://{container} of account {name}; {LOGIN}")
    return AzureSettings(container, name, _endpoint(name, given, parts, environ, endpoint), **login)


def _parts(given: dict[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of the connection string, of the options, or of the environment where those say nothing."""
    if given.get("emulator"):
        return {"UseDevelopmentStorage": "true", "AccountName": EMULATOR_ACCOUNT, "AccountKey": EMULATOR_KEY}
    text = given.get("connection_string")
    if text is None and not _chosen(given):
        text = environ.get("AZURE_STORAGE_CONNECTION_STRING")
    if not text:
        return {}
    pairs = [part.partition("=") for part in text.strip().rstrip(";").split(";")]
    if not all(name and equals for name, equals, _ in pairs):
        raise InvalidInputError("an Azure connection string is written 'Name=value;Name=value'; copy it once more")
    parts = {name: value for name, _, value in pairs}
    if is_true(parts.get("UseDevelopmentStorage", "")):
        parts |= {"AccountName": EMULATOR_ACCOUNT, "AccountKey": EMULATOR_KEY}
    return parts


def _chosen(given: Mapping[str, Any]) -> bool:
    """Whether the options themselves say how to log in."""
    ways = ("account_key", "sas_token", "token", "client_secret", "azure_cli", "managed_identity", "anonymous")
    return any(given.get(name) for name in ways)


def _login(given: Mapping[str, Any], parts: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the way to log in: the first that is given, of the options before all of the environment's."""
    return (
        _explicit(given)
        or _fixed(parts.get("AccountKey"), parts.get("SharedAccessSignature"), None)
        or _fixed(
            first(environ, "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_KEY"),
            first(environ, "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
            first(environ, "AZURE_STORAGE_TOKEN"),
        )
        or _principal({name: environ.get(f"AZURE_{name.upper()}") for name in _PRINCIPAL})
        or _from_platform(environ)
    )


def _explicit(given: Mapping[str, Any]) -> dict[str, Any] | None:
    if given.get("anonymous"):
        return {"login": "anonymous"}
    fixed = _fixed(given.get("account_key"), given.get("sas_token"), given.get("token"))
    if fixed is not None:
        return fixed
    if "client_secret" in given:
        principal = _principal(given)
        if principal is None:
            raise InvalidInputError("storage options tenant_id, client_id and client_secret go together; give all")
        return principal
    if given.get("azure_cli"):
        return {"login": "azure_cli"}
    if given.get("managed_identity"):
        return {"login": "managed_identity", "client_id": given.get("client_id")}
    return None


def _fixed(key: str | None, sas: str | None, token: str | None) -> dict[str, Any] | None:
    if key:
        return {"login": "access_key", "account_key": key}
    if sas:
        return {"login": "sas_token", "sas_token": sas.lstrip("?")}
    return {"login": "bearer_token", "token": token} if token else None


_PRINCIPAL = ("tenant_id", "client_id", "client_secret")


def _principal(given: Mapping[str, Any]) -> dict[str, Any] | None:
    found = {name: given.get(name) for name in _PRINCIPAL}
    return {"login": "client_secret", **found} if all(found.values()) else None


def _from_platform(environ: Mapping[str, str]) -> dict[str, Any] | None:
    if is_true(environ.get("AZURE_SKIP_SIGNATURE", "")):
        return {"login": "anonymous"}
    if is_true(environ.get("AZURE_USE_AZURE_CLI", "")):
        return {"login": "azure_cli"}
    for variable, login in _PLATFORM.items():
        if environ.get(variable):
            return {"login": login}
    return None


def _endpoint(
    account: str, given: Mapping[str, Any], parts: Mapping[str, str], environ: Mapping[str, str], named: str | None
) -> str:
    """Return where the account's blobs are: options, connection string, URL, environment, or Azure itself."""
    said = given.get("endpoint") or parts.get("BlobEndpoint") or named
    said = said or first(environ, "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    if is_true(parts.get("UseDevelopmentStorage", "")) and "BlobEndpoint" not in parts:
        url = as_endpoint("an Azure", given.get("endpoint") or environ.get("AZURITE_BLOB_STORAGE_URL") or EMULATOR_URL)
        return url if url.endswith(f"/{account}") else f"{url}/{account}"
    if said is not None:
        return as_endpoint("an Azure", said)
    return f"https://{account}.blob.{parts.get('EndpointSuffix', 'core.windows.net')}"
