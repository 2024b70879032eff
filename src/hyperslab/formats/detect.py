"""What an object that is no Zarr array might be, so that an error can name it."""

from hyperslab.errors import UnsupportedError
from hyperslab.formats.source import MetadataReader
from hyperslab.store.url import REFERENCE_FOLDERS

__all__ = ["FILE_SUFFIXES", "HDF5_SUFFIXES", "REFERENCE_FOLDERS", "REFERENCE_SUFFIXES", "name_file", "refuse_file"]

_MAGIC = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"CDF\x01": "NetCDF 3",
    b"CDF\x02": "NetCDF 3",
    b"CDF\x05": "NetCDF 3",
    b"PAR1": "Parquet",
    b"PK\x03\x04": "ZIP (.npz or a zipped Zarr store)",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"GRIB": "GRIB",
}
FILE_SUFFIXES = {
    ".nc": "NetCDF",
    ".npz": "ZIP (.npz)",
    ".parquet": "Parquet",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".zip": "ZIP",
}
# What HDF5 files, NetCDF 4 ones among them, are usually called.
HDF5_SUFFIXES = (".h5", ".hdf5", ".he5", ".hdf", ".nc", ".nc4", ".h5ad", ".loom", ".mat")
# What files of references are called.
REFERENCE_SUFFIXES = (".json",)


def name_file(head: bytes, path: str) -> str | None:
    """Return the format of a file by its first bytes or, failing that, its name.

    >>> name_file(b"PAR1....", "table")
    'Parquet'
    """
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    suffix = "." + path.rpartition(".")[2].lower()
    return FILE_SUFFIXES.get(suffix)


def refuse_file(reader: MetadataReader, path: str) -> None:
    """Raise UnsupportedError, with the format's name, if there is an object at `path`."""
    head = reader.get_range(path, 0, 8) if path else None
    if head is None:
        return
    found = name_file(head, path)
    if found is None and path.lower().endswith(HDF5_SUFFIXES):
        found = "called like an HDF5 file but is none"
    raise UnsupportedError(
        f"{path!r} is {found or 'of no known format'}, which is not supported; use Zarr, HDF5, NetCDF 4, .npy, or "
        "references to it"
    )
