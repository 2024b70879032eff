"""Members of groups: all three ways in which files keep them, small and large, and the links between them."""

import io

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hdf5_files import LIBVERS, BytesFile, FileOf, file_bytes, opened
from support.profiles import times

from hyperslab.errors import MetadataError, NotFoundError, UnsupportedError
from hyperslab.formats.hdf5.groups import Link
from hyperslab.formats.hdf5.objects import Dataset, Group, NamedType, open_file

libvers = pytest.mark.parametrize("libver", LIBVERS, ids="-".join)
tracked = pytest.mark.parametrize("track_order", [False, True], ids=["by-name", "by-time"])
names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    lambda name: name != "."
)


@libvers
@tracked
@pytest.mark.parametrize("count", [0, 1, 8, 9, 300, 3000])
def test_groups_of_any_size(count: int, libver: tuple[str, str], track_order: bool) -> None:
    def fill(file: h5py.File) -> None:
        first = file.create_group("first")
        # All but the first few lead to the same object: it is the links that count.
        for number in range(count):
            file[f"many/{number} ü"] = first
        file.require_group("many")

    with FileOf(fill, libver=libver, track_order=track_order) as both:
        many = both.ours.find("many")
        assert isinstance(many, Group)
        found = many.members()
        assert list(found) == sorted(both.theirs["many"])
        assert {link.kind for link in found.values()} <= {"hard"}
        first = both.ours.find("first").address
        assert {link.address for link in found.values()} <= {first}
        assert set(many.kinds().values()) <= {"group"}


@libvers
def test_large_group_takes_few_rounds(libver: tuple[str, str]) -> None:
    data = file_bytes(lambda file: [file.create_group(f"g{n}") for n in range(1000)], libver=libver)
    file = BytesFile(data)
    found = open_file(file)
    assert found is not None
    assert len(found.root.members()) == 1000
    assert len(file.rounds) <= 8
    assert found.root.kinds() == {f"g{n}": "group" for n in range(1000)}
    assert len(file.rounds) <= 10


trees = st.recursive(
    st.none(), lambda inner: st.dictionaries(names, inner, max_size=5), max_leaves=times(12)
).filter(lambda tree: tree is not None)  # fmt: skip


@given(trees, st.sampled_from(LIBVERS), st.booleans(), st.sampled_from([0, 512]))
def test_any_tree(tree: dict, libver: tuple[str, str], track_order: bool, userblock: int) -> None:
    def fill(group: h5py.Group, tree: dict) -> None:
        for name, inner in tree.items():
            if inner is None:
                group[name] = 1
            else:
                fill(group.create_group(name), inner)

    def compare(path: str, tree: dict) -> None:
        group = file.find(path)
        assert isinstance(group, Group)
        assert sorted(group.members()) == sorted(tree)
        assert group.kinds() == {name: "array" if inner is None else "group" for name, inner in sorted(tree.items())}
        for name, inner in tree.items():
            if inner is None:
                assert isinstance(file.find(f"{path}/{name}"), Dataset)
            else:
                compare(f"{path}/{name}", inner)

    options = {"libver": libver, "track_order": track_order, "userblock_size": userblock}
    file = opened(file_bytes(lambda root: fill(root, tree), **options))
    compare("", tree)


def linked(file: h5py.File) -> None:
    file["a/data"] = [1, 2]
    file["a/kind"] = np.dtype("i4")
    file["hard"] = file["a/data"]
    file["soft"] = h5py.SoftLink("/a/data")
    file["a/beside"] = h5py.SoftLink("data")
    file["a/below"] = h5py.SoftLink("./kind")
    file["to-group"] = h5py.SoftLink("a")
    file["chain"] = h5py.SoftLink("/to-group/beside")
    file["dangling"] = h5py.SoftLink("/no/such")
    file["ring"] = h5py.SoftLink("/gnir")
    file["gnir"] = h5py.SoftLink("ring")
    file["self"] = h5py.SoftLink("self/self")
    file["elsewhere"] = h5py.ExternalLink("other.h5", "/path/there")
    file["a/loop"] = file["/"]


@libvers
def test_links(libver: tuple[str, str]) -> None:
    file = opened(file_bytes(linked, libver=libver))
    data = file.find("a/data").address
    for path in ("hard", "soft", "/soft", "a/beside", "to-group/data", "chain", "a/loop/a/loop/hard", "//a/./data/"):
        assert file.find(path).address == data, path
    assert isinstance(file.find("a/below"), NamedType)
    assert file.root.members()["elsewhere"] == Link("external", path="/path/there", file="other.h5")
    assert file.root.members()["ring"] == Link("soft", path="/gnir")
    kinds = file.root.kinds()
    assert {name for name, kind in kinds.items() if kind == "link"} == {"dangling", "ring", "gnir", "self", "elsewhere"}
    assert (kinds["to-group"], kinds["chain"], file.find("a").kinds()["below"]) == ("group", "array", "type")


@libvers
@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("nothing", NotFoundError, "'nothing' was not found: where 'nothing' should be there is 'a', 'chain', "),
        ("a/data/more", NotFoundError, "no group"),
        ("a/kind/more", NotFoundError, "no group"),
        ("a/..", NotFoundError, "'..' should be"),
        ("dangling", NotFoundError, "'no' should be"),
        ("ring", MetadataError, "soft links"),
        ("self", MetadataError, "soft links"),
        ("elsewhere", UnsupportedError, "'/path/there' of the file 'other.h5'"),
        ("elsewhere/more", UnsupportedError, "other.h5"),
    ],
    ids=["nothing", "in-data", "in-type", "up", "dangling", "ring", "self", "external", "in-external"],
)
def test_paths_that_lead_nowhere(path: str, error: type, message: str, libver: tuple[str, str]) -> None:
    with pytest.raises(error, match=message):
        opened(file_bytes(linked, libver=libver)).find(path)


@libvers
def test_odd_names_are_names_only(libver: tuple[str, str]) -> None:
    odd = ["..", "...", "%2e%2e", "a\nb", "C:\\x", "~", " ", "-rf", "é" * 100]

    def fill(file: h5py.File) -> None:
        for number, name in enumerate(odd):
            file.create_group(name).attrs["number"] = number

    file = opened(file_bytes(fill, libver=libver))
    assert set(file.root.members()) == set(odd)
    assert [file.find(name).attrs()["number"] for name in odd] == list(range(len(odd)))
    with pytest.raises(NotFoundError):
        file.find("../../etc/passwd")


def test_names_with_slashes_and_zeros_are_listed_and_lead_nowhere() -> None:
    data = file_bytes(lambda file: file.create_group("abcdef"), libver=("earliest", "v108"))
    slashed = opened(data.replace(b"abcdef\0", b"../etc\0"))
    assert list(slashed.root.members()) == ["../etc"]
    with pytest.raises(NotFoundError):
        slashed.find("../etc")
    assert list(opened(data.replace(b"abcdef\0", b"ab\0def\0")).root.members()) == ["ab"]


def test_what_h5py_reads_is_what_is_listed_in_its_order() -> None:
    data = file_bytes(lambda file: [file.create_group(name) for name in "zaZ_9"], libver="latest", track_order=True)
    with h5py.File(io.BytesIO(data)) as theirs:
        assert sorted(opened(data).root.members()) == sorted(theirs)
    orders = {name: link.order for name, link in opened(data).root.members().items()}
    assert orders == {"z": 0, "a": 1, "Z": 2, "_": 3, "9": 4}
