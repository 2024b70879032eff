"""Finding out what is stored, with how many requests, and staying inside of groups."""

import json

import numpy as np
import pytest
import zarr
from support.whole_reads import DictReader, DirectoryReader

from hyperslab.errors import HyperslabError, InvalidInputError, MetadataError, NotFoundError, UnsupportedError
from hyperslab.formats import ArraySource, GroupSource, member_names, open_member, open_source

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(params=[2, 3])
def zarr_format(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["consolidated", "not"])
def tree(request, tmp_path, zarr_format):
    root = zarr.open_group(str(tmp_path / "root"), mode="w", zarr_format=zarr_format, attributes={"k": 1})
    root.create_array("x", shape=(4,), dtype="i4", attributes={"u": 1})
    deep = root.create_group("s", attributes={"q": 2}).create_group("t")
    deep.create_array("y", shape=(5, 2), dtype="f8")
    root.create_group("empty")
    (tmp_path / "root" / "notes").mkdir()
    (tmp_path / "root" / "notes" / "a.txt").write_text("no array")
    if request.param:
        zarr.consolidate_metadata(str(tmp_path / "root"))
    return DirectoryReader(tmp_path), request.param


def test_groups(tree, zarr_format):
    reader, consolidated = tree
    root = open_source(reader, "file:///d/root", "root")
    assert isinstance(root, GroupSource)
    assert (root.format, dict(root.attrs), root.members is not None) == (
        f"zarr{zarr_format}",
        {"k": 1},
        consolidated,
    )
    reader.asked.clear()
    assert member_names(reader, root) == ["empty", "s", "x"]
    array = open_member(reader, root, "x")
    assert isinstance(array, ArraySource)
    assert (array.url, array.path, array.layout.shape, array.attrs["u"]) == (
        "file:///d/root/x",
        "root/x",
        (4,),
        1,
    )
    group = open_member(reader, root, "s")
    assert (group.attrs, member_names(reader, group)) == ({"q": 2}, ["t"])
    for found in (open_member(reader, group, "t/y"), open_member(reader, root, "s/t/y")):
        assert (found.path, found.layout.shape, found.url) == ("root/s/t/y", (5, 2), "file:///d/root/s/t/y")
        assert found.layout.keys.key((0, 1)).startswith("root/s/t/y/")
    assert member_names(reader, open_member(reader, root, "empty")) == []
    assert not (consolidated and reader.asked)


def test_missing_members(tree):
    reader, _ = tree
    root = open_source(reader, "file:///d/root", "root")
    for name in ("nope", "s/nope", "x/y", "notes", "zarr.json"):
        with pytest.raises(NotFoundError, match=name):
            open_member(reader, root, name)


@pytest.mark.parametrize(
    "name",
    ["..", "../x", "a/../../x", "/x", "//", "", "a//b", "a/", ".", "a/./b", "a\0b", "a\\b", "..\\x",
    "%2e%2e/x", "%2E.",
     ".%2e/x", "%252e%252e/x", "%25252e%25252e", "a%2f..%2fb", "a%00b", "%2fx", "a%5cb", 3, None, b"x"],
)  # fmt: skip
def test_names_never_leave_the_group(tree, name):
    reader, _ = tree
    root = open_source(reader, "file:///d/root", "root")
    reader.asked.clear()
    with pytest.raises((InvalidInputError, NotFoundError)):
        open_member(reader, root, name)
    assert reader.asked == []


def test_consolidated_names_never_leave_the_group():
    array = {"zarr_format": 3, "node_type": "group"}
    for name in ("../x", "/x", "a//b", "%2e%2e"):
        inline = {"kind": "inline", "must_understand": False, "metadata": {name: array}}
        v3 = {"zarr_format": 3, "node_type": "group", "consolidated_metadata": inline}
        with pytest.raises(MetadataError):
            open_source(DictReader({"zarr.json": json.dumps(v3).encode()}), "memory:///", "")
        v2 = {"zarr_consolidated_format": 1, "metadata": {f"{name}/.zgroup": {"zarr_format": 2}}}
        objects = {".zgroup": b'{"zarr_format": 2}', ".zmetadata": json.dumps(v2).encode()}
        with pytest.raises(MetadataError):
            open_source(DictReader(objects), "memory:///", "")


@pytest.mark.parametrize(
    "broken",
    [{"zarr_consolidated_format": 2}, {"zarr_consolidated_format": 1},
    {"zarr_consolidated_format": 1, "metadata": []},
     {"zarr_consolidated_format": 1, "metadata": {"a/.zarray": 1}},
     {"zarr_consolidated_format": 1, "metadata": {"a": {}}}],
    ids=str,
)  # fmt: skip
def test_broken_consolidated_metadata_of_v2(broken):
    objects = {".zgroup": b'{"zarr_format": 2}', ".zmetadata": json.dumps(broken).encode()}
    with pytest.raises(HyperslabError):
        open_source(DictReader(objects), "memory:///", "")


@pytest.mark.parametrize("broken", [7, {"metadata": []}, {"metadata": {"a": 1}}], ids=str)
def test_broken_consolidated_metadata_of_v3(broken):
    document = {"zarr_format": 3, "node_type": "group", "consolidated_metadata": broken}
    with pytest.raises(MetadataError):
        open_source(DictReader({"zarr.json": json.dumps(document).encode()}), "memory:///", "")


def test_few_requests(tmp_path):
    zarr.create_array(str(tmp_path / "v3"), shape=(2,), dtype="i4")
    zarr.create_array(str(tmp_path / "v2"), shape=(2,), dtype="i4", zarr_format=2)
    zarr.open_group(str(tmp_path / "g2"), mode="w", zarr_format=2)
    np.save(tmp_path / "a.npy", np.zeros(3))
    for path, asked in [
        ("v3", ["v3/zarr.json"]),
        ("/v3/", ["v3/zarr.json"]),
        ("v2", ["v2/zarr.json", "v2/.zarray", "v2/.zattrs"]),
        ("g2", ["g2/zarr.json", "g2/.zarray", "g2/.zgroup", "g2/.zmetadata", "g2/.zattrs"]),
        ("a.npy", ["a.npy"]),
    ]:
        reader = DirectoryReader(tmp_path)
        open_source(reader, "file:///", path)
        assert reader.asked == asked


def test_an_array_at_the_root():
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [], "data_type": "int8", "fill_value": 0,
        "codecs": ["bytes"],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}},
        "chunk_key_encoding": "default",
    }  # fmt: skip
    source = open_source(DictReader({"zarr.json": json.dumps(document).encode()}), "memory:///", "")
    assert source.layout.keys.key(()) == "c"
    assert source.layout.plain


def test_nothing_there_says_what_was_looked_for():
    with pytest.raises(NotFoundError, match=r"memory:///d/a.*d/a/zarr\.json.*d/a/\.zarray.*d/a/\.zgroup"):
        open_source(DictReader({}), "memory:///d/a", "d/a")
    with pytest.raises(NotFoundError, match=r"looked for zarr\.json"):
        open_source(DictReader({}), "memory:///", "")
    for path in ("x.npy", "x.h5", "x.parquet"):
        with pytest.raises(NotFoundError):
            open_source(DictReader({}), f"memory:///{path}", path)


@pytest.mark.parametrize(
    ("path", "data", "named"),
    [
        ("a.h5", b"", "called like an HDF5 file"),
        ("a", b"CDF\x01....", "NetCDF 3"), ("a.nc", b"??", "NetCDF"), ("t.parquet", b"PAR1", "Parquet"),
        ("t", b"PAR1....", "Parquet"), ("s.zip", b"PK\x03\x04", "ZIP"), ("a.tif", b"II*\x00", "TIFF"),
        ("a.txt", b"hello", "no known format"), ("a.npy", b"hello", "no known format"),
        ("a", b"", "no known format"),
    ],
)  # fmt: skip
def test_other_formats_are_named(path, data, named):
    with pytest.raises(UnsupportedError, match=named):
        open_source(DictReader({path: data}), f"memory:///{path}", path)


def test_a_directory_with_the_name_of_a_file(tmp_path):
    zarr.create_array(str(tmp_path / "a.npy"), shape=(2,), dtype="i4")
    zarr.create_array(str(tmp_path / "a.nc"), shape=(2,), dtype="i4")
    for name in ("a.npy", "a.nc"):
        assert open_source(DirectoryReader(tmp_path), "file:///", name).format == "zarr3"


@pytest.mark.parametrize("path", ["a.nc", "a"])
def test_a_damaged_hdf5_file_is_no_other_format(path):
    with pytest.raises(MetadataError, match="the superblock at byte 8 has version 46"):
        open_source(DictReader({path: b"\x89HDF\r\n\x1a\n...."}), f"memory:///{path}", path)
