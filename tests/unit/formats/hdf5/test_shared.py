"""Messages stored once for many objects: committed types, and files that share all messages they can."""

import ctypes

import h5py
import numpy as np
import pytest
from support.hdf5_files import LIBVERS, file_bytes, libhdf5, opened, read_run, special_bytes

from hyperslab.errors import MetadataError

PAIR = np.dtype([("n", "<i4"), ("v", "<f8")])
# Dataspaces, datatypes, fill values, filters and attributes.
ALL_MESSAGES = 1 << 1 | 1 << 3 | 1 << 5 | 1 << 11 | 1 << 12


@pytest.mark.parametrize("libver", LIBVERS, ids="-".join)
def test_committed_types(libver: tuple[str, str]) -> None:
    def fill(file: h5py.File) -> None:
        file["kinds/pair"] = PAIR
        file.create_dataset("x", data=np.array([(1, 2.5)], PAIR), dtype=file["kinds/pair"])
        file.attrs.create("a", np.array((3, 4.5), PAIR), dtype=file["kinds/pair"])

    file = opened(data := file_bytes(fill, libver=libver))
    assert file.find("kinds/pair").datatype.dtype == file.find("x").datatype.dtype == PAIR
    assert read_run(file.find("x"), data).tolist() == [(1, 2.5)]
    assert file.root.attrs()["a"].tolist() == (3, 4.5)


@pytest.mark.parametrize("libver", [("earliest", "v108"), ("latest", "latest")], ids=["old", "new"])
@pytest.mark.parametrize("objects", [3, 200], ids=["list", "tree"])
def test_shared_message_tables(objects: int, libver: tuple[str, str]) -> None:
    if (library := libhdf5()) is None:
        pytest.skip("h5py's C library is not where wheels have it")

    def change(plist: h5py.h5p.PropFCID) -> None:
        number = ctypes.c_int64(plist.id)
        assert library.H5Pset_shared_mesg_nindexes(number, ctypes.c_uint(1)) >= 0
        assert (
            library.H5Pset_shared_mesg_index(number, ctypes.c_uint(0), ctypes.c_uint(ALL_MESSAGES), ctypes.c_uint(4))
            >= 0
        )

    def fill(file: h5py.File) -> None:
        for number in range(objects):
            data = file.create_dataset(f"x{number}", data=np.full((2, 3), number, ">i4"), fillvalue=7, chunks=None)
            data.attrs["same"] = "some text"
            data.attrs["own"] = np.arange(number % 20)
        for number in range(20):
            file.attrs[f"a{number}"] = np.arange(5)

    data = special_bytes(fill, change, libver)
    file = opened(data)
    for number in range(objects):
        found = file.find(f"x{number}")
        assert (found.shape, found.datatype.dtype, found.fill) == ((2, 3), np.dtype(">i4"), 7)
        assert (read_run(found, data) == number).all()
        attrs = found.attrs()
        assert (attrs["same"], attrs["own"].tolist()) == ("some text", list(range(number % 20)))
    assert all(value.tolist() == [0, 1, 2, 3, 4] for value in file.root.attrs().values())
    assert len(file.root.attrs()) == 20


def test_shared_message_that_leads_to_something_else() -> None:
    def fill(file: h5py.File) -> None:
        file["kind"] = PAIR
        file.create_dataset("x", (2,), dtype=file["kind"])
        file.create_group("other")

    data = file_bytes(fill, libver=("earliest", "v108"))
    file = opened(data)
    here, there = (file.find(name).address.to_bytes(8, "little") for name in ("kind", "other"))
    assert data.count(b"\x02\x02" + here) + data.count(b"\x02\x00" + here) == 1
    wrong = data.replace(b"\x02\x02" + here, b"\x02\x02" + there).replace(b"\x02\x00" + here, b"\x02\x00" + there)
    with pytest.raises(MetadataError, match="should hold a message of type 3"):
        opened(wrong).find("x")
