"""Measured profiles, kept as files in a person's own folder and found by the address of their store."""

import hashlib
import json
import os
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperslab.errors import InvalidInputError
from hyperslab.execute.home import home
from hyperslab.plan import Profile
from hyperslab.plan.learn import Learner

__all__ = ["Known", "Point", "all_profiles", "find_known", "find_profile", "save_known", "save_profile"]

# What a probe was for, its requests, the bytes of each, its seconds.
Point = tuple[str, int, int, float]

_VERSION = 1
# A file that is longer was not written by us.
_MOST_BYTES = 1 << 20
_warned: set[tuple[Path, int]] = set()


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of a store: its address, the measured profile with what was learned since, and the probes.

    `points` are rows (kind, requests, bytes of each, seconds) of what was measured.
    """

    address: str
    learner: Learner
    points: tuple[Point, ...] = ()

    @property
    def profile(self) -> Profile:
        """The profile as it was measured."""
        return self.learner.base


def find_profile(address: str) -> Profile | None:
    """Return the profile that was measured for the store of this address, None if there is none that can be read."""
    known = find_known(address)
    return None if known is None else known.profile


def find_known(address: str) -> Known | None:
    """The same, with what was learned and the probes."""
    return _read(_path_of(address), address)


def save_profile(
    address: str,
    profile: Profile,
    *,
    points: Sequence[Point] = (),
    learned: Mapping[str, Any] | None = None,
) -> Path:
    """Keep a profile for the store of this address, in place of an earlier one; return its file."""
    path = _path_of(address)
    values = {
        "version": _VERSION,
        "address": address,
        "profile": profile.to_dict(),
        "learned": learned,
        "points": [list(point) for point in points],
    }
    text = json.dumps(values, indent=1, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside it first, then under its name: whoever reads it meanwhile sees the old one or the new one.
    handle, draft = tempfile.mkstemp(prefix=".profile-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    return path


def save_known(known: Known) -> bool:
    """Keep what was learned beside its profile; False if that is gone, was measured again, or cannot be written to."""
    found = find_known(known.address)
    if found is None or found.profile != known.profile:
        return False
    try:
        save_profile(known.address, known.profile, points=known.points, learned=known.learner.to_dict())
    except OSError as error:
        _warn(_path_of(known.address), error.strerror or str(error))
        return False
    return True


def all_profiles() -> list[Known]:
    """Return all profiles that can be read, by the address of their stores."""
    found = [_read(path, None) for path in sorted(_folder().glob("*.json"))]
    return sorted([each for each in found if each is not None], key=lambda each: each.address)


def _folder() -> Path:
    return home() / "profiles"


def _path_of(address: str) -> Path:
    """Return the file for an address: what a person can recognise, and what tells alike ones apart."""
    words = re.sub(r"[^A-Za-z0-9.-]+", "-", address).strip("-.")[:80]
    return _folder() / f"{words}-{hashlib.sha256(address.encode()).hexdigest()[:12]}.json"


def _read(path: Path, address: str | None) -> Known | None:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(path, error.strerror or str(error))
        return None
    try:
        return _parsed(data, address)
    except (InvalidInputError, ValueError, KeyError, TypeError, RecursionError) as error:
        _warn(path, str(error))
        return None


def _parsed(data: bytes, address: str | None) -> Known:
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it is longer than {_MOST_BYTES:,} bytes")
    values = json.loads(data)
    if not isinstance(values, dict) or values["version"] != _VERSION:
        raise ValueError(f"it is not of version {_VERSION}")
    if not isinstance(values["address"], str) or address not in (None, values["address"]):
        raise ValueError("it is of another store")
    points = tuple([(str(kind), int(n), int(size), float(s)) for kind, n, size, s in values["points"]])
    profile, learned = Profile.from_dict(values["profile"]), values["learned"]
    learner = Learner(profile) if learned is None else Learner.from_dict(profile, learned)
    return Known(values["address"], learner, points)


def _warn(path: Path, why: str) -> None:
    """Say it once for each process: the file is left alone, and typical figures are used."""
    key = (path, os.getpid())
    if key not in _warned:
        _warned.add(key)
        warnings.warn(
            f"the measured profile {path} cannot be used ({why}); measure again, or remove it",
            RuntimeWarning,
            stacklevel=4,
        )
