"""What differs between the kinds of store behind obstore. Backends pickle, and hold no connection."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from hyperslab.errors import ForkError, HyperslabError, StoreError
from hyperslab.store import azure, google, http, runtime
from hyperslab.store.base import strong_etag
from hyperslab.store.failures import Place, other_region, transient
from hyperslab.store.s3 import S3Settings, bucket_region

__all__ = ["AzureBackend", "Backend", "GoogleBackend", "HttpBackend", "MemoryBackend", "S3Backend", "memory"]

CONNECT_S = 5.0


class Backend(ABC):
    """One bucket, container or server, as its settings describe it. Equal settings make equal backends."""

    scheme: str
    # Whether the last n bytes can be asked for without knowing the object's size.
    has_suffix = True
    # Whether names can be listed, and objects stored.
    can_list = True
    can_write = True
    # Whether a backslash in a name is taken for itself.
    has_backslash = True

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.address: str = settings.address

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.settings,))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.settings == self.settings

    def __hash__(self) -> int:
        return hash((self.scheme, self.settings))

    @property
    def ready(self) -> bool:
        """Whether `client` answers without asking anybody."""
        return True

    @property
    @abstractmethod
    def place(self) -> Place:
        """What errors say of where it is."""

    @abstractmethod
    def client(self, obstore: Any, timeout_s: float, silent_s: float) -> Any:
        """Return obstore's store for requests that last at most `timeout_s`, unanswered for `silent_s`."""

    def explain(self, error: Exception) -> HyperslabError | None:
        """Return a better error than the usual one, where this kind of store knows of one."""
        return None

    def tag(self, meta: Mapping[str, Any]) -> str | None:
        """Return what tells this version of an object from all others, None where nothing does."""
        return strong_etag(meta["e_tag"])

    def if_match(self, tag: str) -> str:
        """Return what a request for exactly this version says."""
        return tag

    def replacing(self, tag: str) -> dict[str, str]:
        """Return obstore's mode for a put over exactly this version."""
        return {"e_tag": tag}

    def check(self, name: str, answer: Any) -> None:
        """Refuse obstore's answer whose body is not the object's bytes; most kinds of store give no others."""
        return


class S3Backend(Backend):
    """Clients for a bucket; finds out its region when nobody said it."""

    scheme = "s3"
    settings: S3Settings

    def __init__(self, settings: S3Settings) -> None:
        super().__init__(settings)
        self._region = settings.region or ("us-east-1" if settings.endpoint else None)
        self._corrected = False

    @property
    def ready(self) -> bool:
        return self._region is not None

    @property
    def place(self) -> Place:
        settings = self.settings
        name = f"s3://{settings.bucket}" + (f" at {settings.endpoint}" if settings.endpoint else "")
        delegated = not settings.anonymous and settings.access_key_id is None
        return Place(name, settings.url(self._region or "") if delegated else None, settings.secrets)

    def client(self, obstore: Any, timeout_s: float, silent_s: float) -> Any:
        settings = self.settings
        if self._region is None:
            self._region = bucket_region(settings.bucket)
        url = settings.url(self._region)
        # Every value is given, else obstore would take it from the environment, whatever our options say.
        config = {
            "endpoint": url,
            "aws_endpoint_url_s3": url,
            "region": self._region,
            "skip_signature": settings.anonymous,
            "request_payer": settings.requester_pays,
            "virtual_hosted_style_request": settings.virtual_hosted,
            "conditional_put": "etag",
        }
        fixed = {
            "access_key_id": settings.access_key_id,
            "secret_access_key": settings.secret_access_key,
            "token": settings.session_token,
        }
        return obstore.store.S3Store(
            settings.bucket,
            config=config,
            credential_provider=None if settings.access_key_id is None else _Login(fixed),
            **_manners(url, timeout_s, silent_s),
        )

    def explain(self, error: Exception) -> HyperslabError | None:
        """Find the right region once, where a wrong one came from the environment or a profile."""
        region = other_region(error)
        if region is None or self.settings.endpoint or self.settings.region_chosen or self._corrected:
            return None
        wrong, self._region, self._corrected = self._region, region or None, True
        return transient(f"bucket s3://{self.settings.bucket} is not in region {wrong}; try again, elsewhere")


class AzureBackend(Backend):
    """Clients for a container of an Azure storage account."""

    scheme = "az"
    has_suffix = False
    has_backslash = False  # it becomes a slash on the way
    settings: azure.AzureSettings

    @property
    def place(self) -> Place:
        settings = self.settings
        delegated = settings.login in ("client_secret", "workload_identity", "managed_identity")
        name = f"az://{settings.container} of account {settings.account}"
        apart = settings.endpoint if delegated else None
        return Place(name, apart, settings.secrets, azure.LOGIN, "container")

    def client(self, obstore: Any, timeout_s: float, silent_s: float) -> Any:
        settings = self.settings
        config = {
            "account_name": settings.account,
            "endpoint": settings.endpoint,
            "skip_signature": settings.anonymous,
            "use_emulator": False,
            "use_fabric_endpoint": False,
            "use_azure_cli": settings.login == "azure_cli",
        }
        if not settings.anonymous:
            config["credential_type"] = settings.login
        fixed = {"access_key": settings.account_key, "sas_token": settings.sas_token, "token": settings.token}
        fixed = {name: value for name, value in fixed.items() if value is not None}
        for name in ("tenant_id", "client_id", "client_secret"):
            if getattr(settings, name) is not None:
                config[name] = getattr(settings, name)
        return obstore.store.AzureStore(
            settings.container,
            config=config,
            credential_provider=_Login(fixed) if fixed else None,
            **_manners(settings.endpoint, timeout_s, silent_s),
        )


class GoogleBackend(Backend):
    """Clients for a bucket of Google Cloud Storage.

    A put is conditional on an object's generation, a get on its ETag: a version here is both.
    """

    scheme = "gs"
    settings: google.GoogleSettings

    @property
    def place(self) -> Place:
        settings = self.settings
        apart = None if settings.login in ("anonymous", "token") else settings.endpoint
        return Place(f"gs://{settings.bucket}", apart, settings.secrets, google.LOGIN)

    def client(self, obstore: Any, timeout_s: float, silent_s: float) -> Any:
        settings = self.settings
        config: dict[str, Any] = {"base_url": settings.endpoint, "skip_signature": settings.anonymous}
        if settings.login in ("service_account", "service_account_key", "application_credentials"):
            config[settings.login] = settings.secret
        # Without a login obstore would look for one wherever it can before it writes; so it gets one that is refused.
        fixed = settings.login in ("token", "anonymous")
        return obstore.store.GCSStore(
            settings.bucket,
            config=config,
            credential_provider=_Login({"token": settings.secret or "anonymous"}) if fixed else None,
            **_manners(settings.endpoint, timeout_s, silent_s),
        )

    def tag(self, meta: Mapping[str, Any]) -> str | None:
        etag, generation = strong_etag(meta["e_tag"]), meta.get("version")
        return f"{etag}#{generation}" if etag and generation else etag

    def if_match(self, tag: str) -> str:
        return tag.partition("#")[0]

    def replacing(self, tag: str) -> dict[str, str]:
        etag, _, generation = tag.partition("#")
        if not generation:
            raise StoreError(f"gs://{self.settings.bucket} does not number its objects' versions; it cannot be written")
        return {"e_tag": etag, "version": generation}


class HttpBackend(Backend):
    """Clients for a web server, which can be read from by name, and nothing else."""

    scheme = "http"
    can_list = False
    can_write = False
    has_backslash = False
    settings: http.HttpSettings

    @property
    def place(self) -> Place:
        return Place(self.settings.server, None, self.settings.secrets, http.LOGIN, "server")

    def client(self, obstore: Any, timeout_s: float, silent_s: float) -> Any:
        settings = self.settings
        manners = _manners(settings.server, timeout_s, silent_s)
        manners["client_options"]["default_headers"] = dict(settings.headers)
        query = f"?{settings.query}" if settings.query else ""
        return obstore.store.HTTPStore(settings.server + query, **manners)

    def check(self, name: str, answer: Any) -> None:
        encoding = str(answer.attributes.get("Content-Encoding", ""))
        # Some programs leave "aws-chunked" with what they upload to S3; it means nothing there.
        if {part.strip().lower() for part in encoding.split(",")} - {"", "identity", "aws-chunked"}:
            raise StoreError(
                f"{name} is sent packed ({encoding[:40]}), so its parts cannot be read; use another server"
            )


class MemoryBackend(Backend):
    """A store in this process's memory, shared by all who use its name."""

    scheme = "memory"

    def __init__(self, settings: str) -> None:
        self.settings = settings
        self.address = f"memory://{settings}"

    @property
    def place(self) -> Place:
        return Place(self.address)

    def client(self, obstore: Any, timeout_s: float, silent_s: float) -> Any:
        return memory(self.settings)


class _Login:
    """Hands obstore fixed credentials; given as plain options, the environment's would be added."""

    def __init__(self, fixed: Mapping[str, Any]) -> None:
        self._fixed = fixed

    def __call__(self) -> dict[str, Any]:
        return {**self._fixed, "expires_at": None}


_memories: dict[str, tuple[int, Any]] = {}


def memory(name: str) -> Any:
    """Return the obstore MemoryStore behind `memory://name`, to put objects there.

    It lives as long as the process, and only in this one.
    """
    obstore = runtime.obstore_module()
    with runtime.guard():
        pid, store = _memories.setdefault(name, (os.getpid(), None))
        if pid != os.getpid():
            raise ForkError(
                f"memory://{name} lives in the process that made it, not in this fork of it; use files or S3"
            )
        if store is None:
            store = obstore.store.MemoryStore()
            _memories[name] = (pid, store)
        return store


def _manners(url: str, limit_s: float, silent_s: float) -> dict[str, Any]:
    """How every client asks: once, and for no longer than this."""
    options = {
        "allow_http": url.startswith("http://"),
        "connect_timeout": timedelta(seconds=min(CONNECT_S, limit_s)),
        "read_timeout": timedelta(seconds=silent_s),
        "timeout": timedelta(seconds=limit_s),
        "pool_idle_timeout": timedelta(seconds=90),
    }
    return {"client_options": options, "retry_config": {"max_retries": 0}}
