"""Superblocks: every version, behind a user block, with narrow addresses, and damaged ones."""

import ctypes

import h5py
import pytest
from support.hdf5_files import BytesFile, file_bytes, libhdf5, opened, read_everything, special_bytes

from hyperslab.errors import HyperslabError, IntegrityError, MetadataError
from hyperslab.formats.hdf5.objects import open_file
from hyperslab.formats.hdf5.superblock import SIGNATURE, find_superblock

OLD, NEW = ("earliest", "v108"), ("latest", "latest")


def small(file: h5py.File) -> None:
    file["x"] = [1, 2, 3]


@pytest.mark.parametrize(
    ("libver", "version"), [(("earliest", "v108"), 0), (("v108", "v108"), 2), (("latest", "latest"), 3)],
    ids=["0", "2", "3"],
)  # fmt: skip
@pytest.mark.parametrize("userblock", [0, 512, 4096, 1 << 17])
def test_is_found_behind_a_user_block(libver: tuple[str, str], version: int, userblock: int) -> None:
    data = file_bytes(small, libver=libver, userblock_size=userblock)
    file = opened(data)
    assert (file.superblock.version, file.superblock.base) == (version, userblock)
    assert list(file.root.members()) == ["x"]
    assert file.find("x").shape == (3,)
    # Whatever was put before the file does not matter.
    other = bytes(range(256)) * (userblock // 256) + data[userblock:]
    assert list(opened(other).root.members()) == ["x"]


@pytest.mark.parametrize("libver", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("widths", [(2, 2), (4, 4), (8, 4), (4, 8)], ids=str)
def test_narrow_addresses(widths: tuple[int, int], libver: tuple[str, str]) -> None:
    file = opened(special_bytes(small, lambda plist: plist.set_sizes(*widths), libver))
    assert (file.superblock.offset_size, file.superblock.length_size) == widths
    assert file.find("x").shape == (3,)


@pytest.mark.parametrize("libver", [OLD, NEW], ids=["old", "new"])
def test_widths_of_trees(libver: tuple[str, str]) -> None:
    if (library := libhdf5()) is None:
        pytest.skip("h5py's C library is not where wheels have it")

    def change(plist: h5py.h5p.PropFCID) -> None:
        assert library.H5Pset_sym_k(ctypes.c_int64(plist.id), ctypes.c_uint(3), ctypes.c_uint(2)) >= 0
        assert library.H5Pset_istore_k(ctypes.c_int64(plist.id), ctypes.c_uint(5)) >= 0

    def fill(file: h5py.File) -> None:
        small(file)
        for number in range(100):
            file.create_group(f"group {number}")

    superblock = (file := opened(special_bytes(fill, change, libver))).superblock
    assert superblock.version == (1 if libver == OLD else 3)
    assert (superblock.group_internal_k, superblock.group_leaf_k, superblock.chunk_k) == (3, 2, 5)
    assert len(file.root.members()) == 101


def test_paged_file_has_an_extension() -> None:
    data = special_bytes(small, lambda plist: plist.set_file_space_strategy(h5py.h5f.FSPACE_STRATEGY_PAGE, 0, 1), NEW)
    assert opened(data).superblock.extension is not None
    assert opened(data).find("x").shape == (3,)


@pytest.mark.parametrize("data", [b"", b"\x89HDF", b"no HDF5" * 100, SIGNATURE[1:] * 600], ids=["", "4", "text", "odd"])
def test_other_files_are_none(data: bytes) -> None:
    assert open_file(BytesFile(data)) is None


@pytest.mark.parametrize("libver", [OLD, NEW], ids=["old", "new"])
def test_file_that_was_cut_off(libver: tuple[str, str]) -> None:
    data = file_bytes(small, libver=libver)
    for nbytes in range(8, len(data), 7):
        with pytest.raises(HyperslabError):
            read_everything(data[:nbytes])
    with pytest.raises(IntegrityError, match="promises"):
        open_file(BytesFile(data[:-1]))


def test_every_flipped_bit_of_a_guarded_superblock_is_seen() -> None:
    data = file_bytes(small, libver="latest")
    for bit in range(8 * 8, 8 * 48):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(HyperslabError):
            find_superblock(BytesFile(bytes(flipped)))


@pytest.mark.parametrize(
    ("at", "raw", "message"),
    [(8, b"\x09", "version 9"), (13, b"\x03", "addresses of 3"), (16, b"\0\0", "no entries"),
     (40, b"\xff" * 8, "cut off"), (64, b"\xff" * 8, "lacks an address"), (64, b"\xfe" * 8, "points to byte")],
    ids=["version", "widths", "k", "end", "no-root", "far-root"],
)  # fmt: skip
def test_lies_of_an_old_superblock(at: int, raw: bytes, message: str) -> None:
    data = bytearray(file_bytes(small, libver=("earliest", "v108")))
    data[at : at + len(raw)] = raw
    with pytest.raises((MetadataError, IntegrityError), match=message):
        open_file(BytesFile(bytes(data)))


def test_small_file_takes_one_request() -> None:
    file = BytesFile(file_bytes(small))
    found = open_file(file)
    assert found is not None
    assert found.find("x").attrs() == {}
    assert file.rounds == [1]
