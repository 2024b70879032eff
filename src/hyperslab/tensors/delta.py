"""What is asked of delta-rs: the table, opened with options that mean the same as ours, and its errors as ours."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from hyperslab.errors import ForkError, HyperslabError, StoreError, UnsupportedError
from hyperslab.store import LocalStore
from hyperslab.tensors.place import Place

__all__ = ["ask_delta", "delta_module", "delta_options", "delta_url", "open_delta"]

T = TypeVar("T")

# The process that delta-rs has its threads in: they do not live on in a fork of it.
_runtime: dict[str, int] = {}


def delta_module() -> Any:
    """Return the module of delta-rs, unless it was used before this process was forked off."""
    try:
        import deltalake
    except ImportError as error:
        raise UnsupportedError(
            f"tensor tables are written with deltalake: pip install 'hyperslab[tensors]' ({error})"
        ) from None
    if _runtime.setdefault("pid", os.getpid()) != os.getpid():
        raise ForkError("delta-rs cannot be used in a forked process after its parent used it; start it by spawn")
    return deltalake


def ask_delta(place: Place, what: str, ask: Callable[[], T]) -> T:
    """Let delta-rs do something, which `what` names in errors; count it. What fails may have been done nevertheless."""
    place.session.check_open()
    started = time.perf_counter()
    place.delta.calls += 1
    try:
        return ask()
    except HyperslabError:
        raise
    except BaseException as error:
        place.delta.failures += 1
        # Rust's panics are no Exception; all else that is none is an interrupt.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _failure(error, what) from error
    finally:
        place.delta.seconds += time.perf_counter() - started


def _failure(error: BaseException, what: str) -> StoreError:
    if type(error).__name__ == "PanicException":
        return ForkError(f"delta-rs gave up while {what}: {str(error)[:300]}")
    failure = StoreError(f"{what} failed: {type(error).__name__}: {str(error)[:500]}")
    failure.transient = True
    return failure


def open_delta(place: Place, version: int | None = None) -> Any:
    """Return the table as delta-rs reads it."""
    module = delta_module()
    options = delta_options(place)
    return ask_delta(
        place,
        "opening the table",
        lambda: module.DeltaTable(delta_url(place), version=version, storage_options=options),
    )


def delta_url(place: Place) -> str:
    """Return the table as delta-rs names it."""
    store = place.store
    return os.path.join(store.root, place.path) if isinstance(store, LocalStore) else place.url


def delta_options(place: Place) -> dict[str, str]:
    """Return the storage options of delta-rs that mean the same as ours."""
    scheme = place.store.scheme
    if isinstance(place.store, LocalStore):
        return {}
    if scheme not in ("s3", "az", "gs"):
        raise UnsupportedError(f"tensor tables are written to files, s3://, az:// and gs://, not to {scheme}://")
    given = {name: value for name, value in (place.options or {}).items() if name != "record"}
    return {"s3": _s3, "az": _azure, "gs": _google}[scheme](urlsplit(place.url).netloc, given)


def _s3(bucket: str, given: Mapping[str, Any]) -> dict[str, str]:
    from hyperslab.store.s3 import read_settings

    found = read_settings(bucket, given)
    options = {
        "AWS_CONDITIONAL_PUT": "etag",
        "AWS_REGION": found.region or "us-east-1",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(found.virtual_hosted).lower(),
        "AWS_REQUEST_PAYER": str(found.requester_pays).lower(),
        "AWS_SKIP_SIGNATURE": str(found.anonymous).lower(),
        # A request that was sent again by itself would meet its own first try; what became of it is looked up here.
        "max_retries": "0",
    }
    _add(options, "AWS_ENDPOINT_URL", found.endpoint)
    _add(options, "AWS_ACCESS_KEY_ID", found.access_key_id)
    _add(options, "AWS_SECRET_ACCESS_KEY", found.secret_access_key)
    _add(options, "AWS_SESSION_TOKEN", found.session_token)
    if found.endpoint and found.endpoint.startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def _azure(name: str, given: Mapping[str, Any]) -> dict[str, str]:
    from hyperslab.store.azure import read_settings

    found = read_settings(name.partition("@")[0], given)
    options = {"account_name": found.account, "endpoint": found.endpoint, "max_retries": "0"}
    _add(options, "account_key", found.account_key)
    _add(options, "sas_token", found.sas_token)
    _add(options, "bearer_token", found.token)
    _add(options, "tenant_id", found.tenant_id)
    _add(options, "client_id", found.client_id)
    _add(options, "client_secret", found.client_secret)
    if found.login == "azure_cli":
        options["use_azure_cli"] = "true"
    if found.endpoint.startswith("http://"):
        options["allow_http"] = "true"
    return options


def _google(bucket: str, given: Mapping[str, Any]) -> dict[str, str]:
    from hyperslab.store.google import read_settings

    found = read_settings(bucket, given)
    options = {"max_retries": "0"}
    if found.login in ("service_account", "service_account_key", "application_credentials"):
        _add(options, found.login, found.secret)
    elif found.login == "token":
        raise UnsupportedError("delta-rs takes no bare token of Google's; log in with a service account")
    if found.endpoint:
        options["base_url"] = found.endpoint
    return options


def _add(options: dict[str, str], name: str, value: str | None) -> None:
    if value is not None:
        options[name] = value
