"""Storage options as a person writes them, checked and under the names that we use."""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from hyperslab.errors import InvalidInputError

__all__ = ["Names", "as_endpoint", "environment", "first", "is_true", "read_options"]


@dataclass(frozen=True, slots=True)
class Names:
    """The options of one kind of store: `aliases` are what other libraries call them.

    `prefix` is what the kind's environment variables start with, in lower case: it may be left on.
    """

    store: str
    texts: Sequence[str]
    flags: Sequence[str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    mappings: Sequence[str] = ()


def read_options(names: Names, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options under our names; raises InvalidInputError for one that is unknown or of the wrong kind.

    >>> read_options(Names("s3", ["region"], ["anonymous"], {"anon": "anonymous"}), {"anon": "true"})
    {'anonymous': True}
    """
    given: dict[str, Any] = {}
    for name, value in _flatten(options or {}):
        known = _known(names, name)
        if value is None:
            continue
        if known in names.mappings:
            checked: Any = _mapping(name, value)
        else:
            checked = _flag(name, value) if known in names.flags else _text(name, value)
        if given.setdefault(known, checked) != checked:
            raise InvalidInputError(f"storage option {known!r} is given twice, differently; give it once")
    return given


def as_endpoint(kind: str, value: Any) -> str:
    """Return the address of a server, without a slash at its end."""
    try:
        parts = urlsplit(str(value))
        good = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        good = good and not parts.query and not parts.fragment
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise InvalidInputError(f"{kind} endpoint is written 'http://host:port' or 'https://host', without a login")
    return str(value).rstrip("/")


def is_true(value: str) -> bool:
    """Whether an environment variable or an option's text means yes."""
    return value.lower() in ("true", "1", "requester")


def first(environ: Mapping[str, str], *names: str) -> str | None:
    """Return the first of these variables that is set to something."""
    return next((environ[name] for name in names if environ.get(name)), None)


def environment(given: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the process's environment where none is given."""
    return os.environ if given is None else given


def _known(names: Names, name: str) -> str:
    own = (*names.texts, *names.flags, *names.mappings)
    plain = name.lower() if name.lower() in own else name.lower().removeprefix(names.prefix)
    known = names.aliases.get(plain, plain)
    if known not in own:
        near = difflib.get_close_matches(plain, [*own, *names.aliases], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(own)}"
        raise InvalidInputError(f"storage option {name!r} is not known for {names.store}; {hint}")
    return known


def _flatten(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in options.items():
        if not isinstance(name, str):
            raise InvalidInputError(f"storage option names are strings, got {type(name).__name__}")
        if name == "client_kwargs":
            if not isinstance(value, Mapping):
                raise InvalidInputError("storage option 'client_kwargs' must be a mapping")
            pairs += _flatten(value)
        else:
            pairs.append((name, value))
    return pairs


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or "\x00" in value or "\n" in value:
        raise InvalidInputError(f"storage option {name!r} must be a string of one line, not empty")
    return value


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0", "requester"):
        return is_true(value)
    raise InvalidInputError(f"storage option {name!r} must be True or False, got {type(value).__name__}")


def _mapping(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"storage option {name!r} must be a mapping of names to strings")
    return tuple(sorted((_text(name, key), _text(name, text)) for key, text in value.items()))
