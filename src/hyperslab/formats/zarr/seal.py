"""The seal: what we write into `zarr.json` so that damage to it, or a lost object, is seen.

It is an attribute, which other readers leave alone:

    "_hyperslab": {"complete": [4, 4], "hyperslab_crc32c": "1c291ca3"}

`complete` is the shape once every object of it has been written: then one that is gone is lost. `lengths`, of an array
in shards, are those of its chunks as they were all written (see `layout.told`). The checksum is of the whole document,
written in one fixed way, without the checksum itself and without consolidated metadata (whose members are sealed one
by one). The attribute's name and the checksum's each demand the other: damage to one name cannot make
a sealed document look like one of somebody else's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.errors import IntegrityError
from hyperslab.layout.checksums import crc32c

__all__ = ["ATTRIBUTE", "Seal", "check_seal", "seal_of", "sealed", "unsealed_attributes"]

ATTRIBUTE = "_hyperslab"
_CHECKSUM = "hyperslab_crc32c"
_REMEDY = "if another program changed it on purpose, look at it and sign it again with `hyperslab seal URL`"


@dataclass(frozen=True, slots=True)
class Seal:
    """What a sealed document says of itself.

    `claim` names the writer that is changing the array's shape, `copying` what is being copied into it.
    """

    complete: tuple[int, ...] | None = None
    claim: str | None = None
    copying: str | None = None
    lengths: str | None = None

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"complete": None if self.complete is None else list(self.complete)}
        if self.claim is not None:
            found["claim"] = self.claim
        if self.copying is not None:
            found["copying"] = self.copying
        if self.lengths is not None:
            found["lengths"] = self.lengths
        return found


def sealed(document: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    """Return the document with a seal, in place of any that it had.

    >>> signed = sealed({"shape": [4], "attributes": {}}, Seal(complete=(4,)))
    >>> check_seal(signed, "zarr.json").complete
    (4,)
    """
    attributes = {**unsealed_attributes(document), ATTRIBUTE: seal.to_dict()}
    signed = {**document, "attributes": attributes}
    attributes[ATTRIBUTE] = {**seal.to_dict(), _CHECKSUM: _checksum(signed)}
    return signed


def check_seal(document: Mapping[str, Any], key: str) -> Seal | None:
    """Return what the seal says, None where there is none; raise IntegrityError where it does not hold."""
    attributes = document.get("attributes")
    if not isinstance(attributes, dict):
        return None
    found = attributes.get(ATTRIBUTE)
    if found is None and ATTRIBUTE not in attributes:
        for name, value in attributes.items():
            if isinstance(value, dict) and _CHECKSUM in value:
                raise IntegrityError(f"{key!r} is damaged: its seal is under the name {name[:40]!r}; {_REMEDY}")
        return None
    if not isinstance(found, dict) or not isinstance(found.get(_CHECKSUM), str):
        raise IntegrityError(f"{key!r} is damaged: its seal has no checksum; {_REMEDY}")
    expected, stored = _checksum(document), found[_CHECKSUM]
    if stored != expected:
        raise IntegrityError(
            f"{key!r} is not as it was written: its checksum is {expected}, sealed was {stored[:16]}; {_REMEDY}"
        )
    return seal_of(document)


def seal_of(document: Mapping[str, Any]) -> Seal | None:
    """Return what a seal says, whether or not it holds; None where there is none, or what it says makes no sense."""
    attributes = document.get("attributes")
    found = attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None
    if not isinstance(found, dict):
        return None
    complete, claim, copying, lengths = [found.get(name) for name in ("complete", "claim", "copying", "lengths")]
    return Seal(
        tuple(complete) if isinstance(complete, list) else None,
        claim if isinstance(claim, str) else None,
        copying if isinstance(copying, str) else None,
        lengths if isinstance(lengths, str) else None,
    )


def unsealed_attributes(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without the seal."""
    attributes = document.get("attributes")
    if not isinstance(attributes, dict):
        return {}
    return {name: value for name, value in attributes.items() if name != ATTRIBUTE}


def _checksum(document: Mapping[str, Any]) -> str:
    attributes = dict(document["attributes"])
    attributes[ATTRIBUTE] = {name: value for name, value in attributes[ATTRIBUTE].items() if name != _CHECKSUM}
    signed = {name: value for name, value in document.items() if name not in ("attributes", "consolidated_metadata")}
    text = json.dumps({**signed, "attributes": attributes}, sort_keys=True, separators=(",", ":"))
    return f"{crc32c(np.frombuffer(text.encode('ascii'), np.uint8)):08x}"
