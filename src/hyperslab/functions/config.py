"""What a function may read, for whom and how much at once: from arguments or the environment."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from hyperslab.errors import InvalidInputError
from hyperslab.store import Store, locate
from hyperslab.store.call import CallLimits, bucket_of
from hyperslab.store.signing import SigningKey

__all__ = ["Auth", "FunctionConfig", "Root", "function_config", "keys_of_file"]

# Who checks that a caller may call: we, by signatures, or the provider, before a request reaches us.
Auth = Literal["keys", "provider"]

_KINDS = ("s3", "gs", "az", "memory")
# What Python and the libraries take before anything is read.
_BASE_BYTES = 256 << 20
_LEAST_MEMORY_MB = 384
# AWS gives a function a whole core at this size.
_MEMORY_MB = 1769


@dataclass(frozen=True, slots=True)
class Root:
    """A bucket, or what lies below a prefix of it, that may be read."""

    store: Store
    prefix: str

    @property
    def bucket(self) -> str:
        """What calls name it by."""
        return bucket_of(self.store.address)

    def holds(self, key: str) -> bool:
        """Whether a key is the prefix itself or lies below it, also where a store takes a backslash for '/'."""
        if not self.prefix:
            return True
        inside = key == self.prefix or key.startswith(self.prefix + "/")
        return inside and ".." not in key.replace("\\", "/").split("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionConfig:
    """The settings of a function. `function_config` makes them from texts and checks them.

    `memory_mb` is all that the process may take. `gets_at_once` bounds what the function asks of its stores,
    `chunks_at_once` what one call has of that, `requests_at_once` what it answers before it says that it is busy.
    """

    roots: tuple[Root, ...]
    keys: Mapping[str, SigningKey] = field(default_factory=dict, repr=False)
    auth: Auth = "keys"
    limits: CallLimits = field(default_factory=CallLimits)
    memory_mb: int = _MEMORY_MB
    timeout_s: float = 60.0
    gets_at_once: int = 64
    chunks_at_once: int = 16
    requests_at_once: int = 256
    retries: int = 2

    def __post_init__(self) -> None:
        if not self.roots:
            raise InvalidInputError("a function reads only what it is given: name a bucket, as in s3://bucket/prefix")
        if self.auth not in get_args(Auth):
            raise InvalidInputError(f"auth is 'keys' or 'provider', got {self.auth!r}")
        if self.auth == "keys" and not self.keys:
            raise InvalidInputError(
                "a function that anybody may call is not started: give it keys, "
                "or auth='provider' where the provider checks who calls"
            )
        for name in ("memory_mb", "gets_at_once", "chunks_at_once", "requests_at_once"):
            _positive(name, getattr(self, name))
        if self.memory_mb < _LEAST_MEMORY_MB:
            raise InvalidInputError(f"a function needs {_LEAST_MEMORY_MB} MB of memory, got {self.memory_mb}")
        if not 0 < self.timeout_s <= 900:
            raise InvalidInputError(f"a call lasts up to 900 s, got timeout_s={self.timeout_s}")

    @property
    def work_bytes(self) -> int:
        """Memory for chunks that are being read and decoded."""
        return self._free_bytes * 5 // 10

    @property
    def held_bytes(self) -> int:
        """Memory for cells that are on their way back."""
        return self._free_bytes * 3 // 10

    @property
    def arriving_bytes(self) -> int:
        """Memory for long requests that are on their way in."""
        return self._free_bytes // 10

    @property
    def _free_bytes(self) -> int:
        return (self.memory_mb << 20) - _BASE_BYTES

    def roots_of(self, bucket: str) -> list[Root]:
        """Return what of a bucket may be read."""
        return [root for root in self.roots if root.bucket == bucket]


def function_config(
    roots: Iterable[str] | None = None,
    *,
    keys: Iterable[SigningKey | str] = (),
    auth: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    memory_mb: int | None = None,
    timeout_s: float | None = None,
    environ: Mapping[str, str] | None = None,
) -> FunctionConfig:
    """Return the settings of a function; what is not given is taken from the environment.

    | variable | what |
    |---|---|
    | `HYPERSLAB_FUNCTION_ROOTS` | buckets and prefixes that may be read: `s3://bucket/prefix,s3://other` |
    | `HYPERSLAB_FUNCTION_KEYS` | keys of those who may call: `name:hexadecimal secret,…` |
    | `HYPERSLAB_FUNCTION_KEY_FILE` | a file with such keys, one on each line |
    | `HYPERSLAB_FUNCTION_AUTH` | `keys`, or `provider` if the provider lets nobody else call |
    | `HYPERSLAB_FUNCTION_STORAGE_OPTIONS` | options of the buckets, as JSON |
    | `HYPERSLAB_FUNCTION_LIMITS` | limits of one call, as JSON: see `CallLimits` |
    | `HYPERSLAB_FUNCTION_MEMORY_MB` | memory of the process; 1769 unless the provider says it |
    | `HYPERSLAB_FUNCTION_TIMEOUT_S` | how long a call may take |

    >>> config = function_config(["memory://lab/run"], keys=["me:" + "00" * 16], environ={})
    >>> config.roots[0].holds("run/c/0"), config.roots[0].holds("running")
    (True, False)
    """
    variables = os.environ if environ is None else environ
    options = _mapping("STORAGE_OPTIONS", variables) if storage_options is None else storage_options
    texts = _texts("ROOTS", variables) if roots is None else list(roots)
    known = [_key(each) for each in keys] or _keys(variables)
    chosen = auth or variables.get("HYPERSLAB_FUNCTION_AUTH") or "keys"
    return FunctionConfig(
        roots=tuple([_root(text, options) for text in texts]),
        keys={key.id: key for key in known},
        auth=chosen,  # type: ignore[arg-type]  # checked there
        limits=_limits(_mapping("LIMITS", variables) if limits is None else limits),
        memory_mb=memory_mb or int(_number("MEMORY_MB", variables, _provided_mb(variables))),
        timeout_s=timeout_s or _number("TIMEOUT_S", variables, 60.0),
    )


def keys_of_file(path: str) -> list[SigningKey]:
    """Return the keys in a file: one 'name:secret' on each line; lines that start with # are notes."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the keys in {path} cannot be read: {type(error).__name__}") from error
    return [SigningKey.parse(line) for line in lines if line and not line.startswith("#")]


def _root(text: str, options: Mapping[str, Any]) -> Root:
    scheme = text.partition("://")[0]
    if scheme.lower() not in (*_KINDS, "gcs", "azure", "abfs", "abfss"):
        raise InvalidInputError(f"a function reads from buckets ({', '.join(_KINDS)}), got a root of {scheme[:20]!r}")
    store, prefix = locate(text, None if scheme.lower() == "memory" else options)
    return Root(store, prefix)


def _keys(variables: Mapping[str, str]) -> list[SigningKey]:
    path = variables.get("HYPERSLAB_FUNCTION_KEY_FILE")
    found = keys_of_file(path) if path else []
    return found + [SigningKey.parse(text) for text in _texts("KEYS", variables)]


def _key(given: SigningKey | str) -> SigningKey:
    return given if isinstance(given, SigningKey) else SigningKey.parse(given)


def _texts(name: str, variables: Mapping[str, str]) -> list[str]:
    return [text.strip() for text in variables.get(f"HYPERSLAB_FUNCTION_{name}", "").split(",") if text.strip()]


def _mapping(name: str, variables: Mapping[str, str]) -> dict[str, Any]:
    text = variables.get(f"HYPERSLAB_FUNCTION_{name}", "")
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # Not shown: it may hold a secret.
        raise InvalidInputError(f"HYPERSLAB_FUNCTION_{name} is a mapping in JSON, such as {{}}")
    return found


def _number(name: str, variables: Mapping[str, str], default: float) -> float:
    text = variables.get(f"HYPERSLAB_FUNCTION_{name}")
    try:
        number = default if not text else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError(f"HYPERSLAB_FUNCTION_{name} is a number, got {text!r}")
    return number


def _provided_mb(variables: Mapping[str, str]) -> int:
    """Return the memory that the provider gave the function, where it says so."""
    text = variables.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    return int(text) if text.isdecimal() else _MEMORY_MB


def _limits(given: Mapping[str, Any]) -> CallLimits:
    known = [each.name for each in fields(CallLimits)]
    for name, value in given.items():
        if name not in known:
            raise InvalidInputError(f"limit {name!r} is not known; known are {', '.join(known)}")
        _positive(name, value)
    return replace(CallLimits(), **given)


def _positive(name: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InvalidInputError(f"{name} is a whole number from 1 on, got {value!r}")
