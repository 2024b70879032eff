"""Compressors by the names that a user gives them, and as Zarr's codecs."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.layout.compression import DEFAULT, BloscInner, Compression, Shuffling

__all__ = [
    "SAME", "Chain", "as_now", "bytes_chain", "compression_of", "parse_compressor", "shuffled", "written_anew",
    "zarr_codec",
]  # fmt: skip

# As the array has it that is written anew.
SAME = "same"
# By name: the lowest and the highest level, the one by default, and the name inside of Blosc.
_LEVELS: dict[str, tuple[int, int, int, BloscInner]] = {
    "zstd": (1, 22, DEFAULT.level, "zstd"),
    "gzip": (1, 9, 5, "zlib"),
    "lz4": (1, 9, 5, "lz4"),
    "blosc": (1, 9, 5, "zstd"),
}
_BLOSC_LEVELS = (1, 9)
_KNOWN = "'zstd', 'lz4', 'gzip', 'blosc', with a level as in 'zstd:3', or None"

Chain = Sequence[tuple[str, Mapping[str, Any]]]


def parse_compressor(compressor: Any, shuffle: Any, dtype: np.dtype[Any]) -> Compression | None:
    """Return how cells of a type are compressed that a user wants so; None: not at all.

    Zarr has no LZ4 and no shuffling of its own that all readers know: both are Blosc's.

    >>> parse_compressor("zstd:3", None, np.dtype("i4"))
    Compression(name='zstd', level=3, inner='zstd', shuffle='noshuffle', typesize=1, blocksize=0)
    >>> parse_compressor("zstd", True, np.dtype("i4"))
    Compression(name='blosc', level=1, inner='zstd', shuffle='shuffle', typesize=4, blocksize=0)
    """
    if shuffle not in (None, True, False):
        raise InvalidInputError(f"shuffle is True or False, not {shuffle!r:.80}")
    if isinstance(compressor, Compression):
        return compressor
    if compressor is None:
        if shuffle:
            raise InvalidInputError("shuffle only helps a compressor; name one as well, such as compressor='zstd'")
        return None
    name, level = _named(compressor)
    # Blosc is made for it; of the others it is asked for.
    typesize = _typesize(dtype) if (name == "blosc" if shuffle is None else shuffle) else 1
    if typesize == 1 and name in ("zstd", "gzip"):
        return Compression("zstd" if name == "zstd" else "gzip", level)
    if not _BLOSC_LEVELS[0] <= level <= _BLOSC_LEVELS[1]:
        raise InvalidInputError(f"with shuffle=True a level is Blosc's, 1 to 9, not {level}")
    return Compression("blosc", level, _LEVELS[name][3], "shuffle" if typesize > 1 else "noshuffle", typesize)


def shuffled(compression: Compression, dtype: np.dtype[Any]) -> Compression | None:
    """Return the same way to compress, of shuffled cells; None where there is none, or nothing to shuffle.

    >>> shuffled(Compression("zstd", 1), np.dtype("i4"))
    Compression(name='blosc', level=1, inner='zstd', shuffle='shuffle', typesize=4, blocksize=0)
    """
    typesize, level = _typesize(dtype), compression.level
    if compression.name != "zstd" or typesize == 1 or not _BLOSC_LEVELS[0] <= level <= _BLOSC_LEVELS[1]:
        return None
    return Compression("blosc", level, "zstd", "shuffle", typesize)


def as_now(settings: Mapping[str, Any], compression: Compression | None) -> dict[str, Any]:
    """Return the settings of an array that is written anew: compressed as it is now, if they say "same"."""
    if settings.get("compressor") != SAME:
        return dict(settings)
    plain = settings.get("layout") == "plain"
    if settings.get("shuffle") is not None:
        raise InvalidInputError("shuffle goes with a compressor; name that as well, such as compressor='zstd'")
    return {**settings, "compressor": None if plain else compression}


def _named(compressor: Any) -> tuple[str, int]:
    """Return the name and the level of a compressor."""
    name, colon, text = compressor.partition(":") if isinstance(compressor, str) else ("", "", "")
    if name not in _LEVELS:
        raise InvalidInputError(f"a compressor is {_KNOWN}; not {compressor!r:.80}")
    low, high, level, _ = _LEVELS[name]
    if colon:
        if not (text.isascii() and text.isdecimal() and len(text) < 4 and low <= int(text) <= high):
            raise InvalidInputError(f"the level of {name} is a whole number from {low} to {high}, not {text!r:.80}")
        level = int(text)
    return name, level


def _typesize(dtype: np.dtype[Any]) -> int:
    """Return how far apart bytes lie that are alike; 1 where there is nothing to shuffle."""
    size = 4 if dtype.kind == "U" else 1 if dtype.kind == "S" else dtype.itemsize
    return size if size <= 255 else 1


def zarr_codec(compression: Compression) -> Any:
    """Return the codec of zarr-python."""
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    if compression.name == "zstd":
        return ZstdCodec(level=compression.level)
    if compression.name == "gzip":
        return GzipCodec(level=compression.level)
    return BloscCodec(
        typesize=compression.typesize, cname=compression.inner, clevel=compression.level,
        shuffle=compression.shuffle, blocksize=compression.blocksize,
    )  # fmt: skip


def written_anew(document: Mapping[str, Any]) -> Compression | None:
    """Return how an array of Zarr v3 is compressed if it is written anew: as it is now, where that is known.

    Plain arrays, and those of codecs that are not written here, get the default.
    """
    chain = bytes_chain(document)
    found = None if chain is None else compression_of(chain)
    return DEFAULT if found is None or found == (None, False) else found[0]


def bytes_chain(document: Mapping[str, Any]) -> Chain | None:
    """Return an array's codecs that work on bytes; None if there are others than transposing before them."""
    codecs = _with_names(document["codecs"])
    if codecs[0][0] == "sharding_indexed":
        codecs = _with_names(codecs[0][1]["codecs"])
    while codecs and codecs[0][0] == "transpose":
        codecs = codecs[1:]
    return codecs[1:] if codecs and codecs[0][0] == "bytes" else None


def _with_names(codecs: Sequence[Any]) -> Chain:
    return [(each, {}) if isinstance(each, str) else (each["name"], each.get("configuration") or {}) for each in codecs]


def compression_of(chain: Chain) -> tuple[Compression | None, bool] | None:
    """Return how codecs of Zarr v3, those that work on bytes, compress, and whether a crc32c follows.

    None if they are others than what this writes: zarr-python encodes then.
    """
    codecs = list(chain)
    checksum = bool(codecs) and codecs[-1][0] == "crc32c"
    if checksum and codecs.pop()[1].get("location", "end") != "end":
        return None
    if not codecs:
        return None, checksum
    found = _compression(*codecs[0]) if len(codecs) == 1 else None
    return None if found is None else (found, checksum)


def _compression(name: str, config: Mapping[str, Any]) -> Compression | None:
    level = config.get("clevel" if name == "blosc" else "level", 0)
    if type(level) is not int:
        return None
    if name == "zstd" and not config.get("checksum") and -131072 <= level <= 22:
        return Compression("zstd", level)
    if name == "gzip" and 0 <= level <= 9:
        return Compression("gzip", level)
    if name != "blosc" or not 0 <= level <= 9:
        return None
    inner: Any = config.get("cname")
    shuffle: Any = config.get("shuffle")
    typesize, blocksize = config.get("typesize", 1), config.get("blocksize", 0)
    whole = type(typesize) is int and type(blocksize) is int and 1 <= typesize <= 255 and 0 <= blocksize < 1 << 31
    if not whole or inner not in get_args(BloscInner) or shuffle not in get_args(Shuffling):
        return None
    return Compression("blosc", level, inner, shuffle, typesize, blocksize)
