"""Sealed metadata: every flipped bit is seen, a lost object is an error, and other tools are told what to do."""

import json
import random
import shutil

import numpy as np
import pytest
import zarr
from support.profiles import times

import hyperslab as hs
from hyperslab.errors import HyperslabError, IntegrityError
from hyperslab.formats.zarr.seal import ATTRIBUTE, Seal, check_seal, sealed

DOCUMENT = {"zarr_format": 3, "node_type": "group", "attributes": {"a": [1, {"b": None}], "ü": 0.5}}


@pytest.fixture
def array(tmp_path):
    values = np.arange(30 * 20, dtype="i4").reshape(30, 20)
    return hs.save(
        tmp_path / "a", values, chunks=(8, 8), shards=(16, 16), attrs={"title": "x", "n": [1, 2]}, dims=["y", "x"]
    )


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def looks_right(url, values: np.ndarray, attrs: dict) -> bool:
    """Whether what is stored reads as before; an error of ours is the other thing that may happen."""
    try:
        with hs.Session(cache_bytes=0) as session:
            found = hs.open(str(url), session=session)
            cells = found[...]
    except HyperslabError:
        return True
    same = cells.dtype == values.dtype and cells.shape == values.shape and (cells == values).all()
    return bool(same) and dict(found.attrs) == attrs and found.dims == ("y", "x")


def test_seal_holds_until_anything_changes():
    signed = sealed(DOCUMENT, Seal(complete=(3, 4), claim="me", copying="that"))
    assert check_seal(signed, "zarr.json") == Seal((3, 4), "me", "that")
    assert check_seal(json.loads(json.dumps(signed, indent=4)), "zarr.json") == Seal((3, 4), "me", "that")
    for changed in (
        {**signed, "node_type": "array"},
        {**signed, "more": None},
        {**signed, "attributes": {**signed["attributes"], "a": [1, {"b": 0}]}},
        {**signed, "attributes": {**signed["attributes"], "c": 1}},
        {
            **signed,
            "attributes": {**signed["attributes"], ATTRIBUTE: {**signed["attributes"][ATTRIBUTE], "complete": None}},
        },
        {**signed, "attributes": {**signed["attributes"], ATTRIBUTE: None}},
        {**signed, "attributes": {"_hyperslac": signed["attributes"][ATTRIBUTE]}},
    ):
        with pytest.raises(IntegrityError, match="hyperslab seal"):
            check_seal(changed, "zarr.json")


def test_documents_of_others_have_no_seal():
    assert check_seal(DOCUMENT, "zarr.json") is None
    assert check_seal({"zarr_format": 3}, "zarr.json") is None


def test_consolidated_metadata_may_be_added(tmp_path):
    group = hs.create_group(tmp_path / "g", attrs={"t": 1})
    group.save("a", np.arange(6))
    group.create_group("inner").save("b", np.arange(4.0))
    zarr.consolidate_metadata(str(tmp_path / "g"))
    again = hs.open(tmp_path / "g")
    assert again.source.members is not None
    assert again["a"][...].tolist() == list(range(6))
    assert again["inner/b"].source.layout.complete
    with pytest.raises(hs.errors.UnsupportedError, match="consolidated"):
        hs.open(tmp_path / "g", mode="r+").create("c", (1,), "i4")


def test_seal_is_not_among_the_attributes(array):
    assert dict(array.attrs) == {"title": "x", "n": [1, 2]}
    assert ATTRIBUTE in zarr.open_array(array.url).attrs
    with pytest.raises(hs.errors.InvalidInputError, match="seal"):
        array.attrs[ATTRIBUTE] = 1


def test_every_single_bit_of_metadata_counts(array):
    """Exhaustively: whichever bit flips in `zarr.json`, reading gives the same or an error."""
    path = f"{array.url}/zarr.json"
    with open(path, "rb") as file:
        good = file.read()
    document = json.loads(good)
    silent, caught = [], 0
    from hyperslab.formats.source import parse_document
    from hyperslab.formats.zarr.v3 import parse_node

    reference = parse_node(document, "u", "a")
    for bit in range(8 * len(good)):
        try:
            found = parse_node(parse_document(flipped(good, bit), "zarr.json"), "u", "a")
        except HyperslabError:
            caught += 1
            continue
        # Nothing was raised: then the document must say the same, seal and all.
        if json.loads(flipped(good, bit)) != document or found.attrs != reference.attrs or not found.layout.complete:
            silent.append(bit)
    assert silent == []
    assert caught > 7 * len(good)


def test_every_single_bit_of_a_groups_metadata_counts(tmp_path):
    hs.create_group(tmp_path / "g", attrs={"t": 1, "_": {"hyper": 2}})
    good = (tmp_path / "g" / "zarr.json").read_bytes()
    for bit in range(8 * len(good)):
        changed = flipped(good, bit)
        (tmp_path / "g" / "zarr.json").write_bytes(changed)
        try:
            assert dict(hs.open(tmp_path / "g").attrs) == {"t": 1, "_": {"hyper": 2}}, bit
        except HyperslabError:
            continue


def test_flips_and_truncations_anywhere_are_never_silent(array, tmp_path):
    values = array[...]
    attrs = dict(array.attrs)
    files = sorted(path for path in (tmp_path / "a").rglob("*") if path.is_file())
    sizes = np.array([path.stat().st_size for path in files])
    rng = random.Random(5)
    silent = []
    for n in range(times(400, 4000)):
        # Each byte of the array as likely as any other; but metadata is small, so half of them there.
        path = files[rng.choices(range(len(files)), sizes)[0]] if n % 2 else tmp_path / "a" / "zarr.json"
        good = path.read_bytes()
        cut = n % 4 == 3
        path.write_bytes(good[: rng.randrange(len(good))] if cut else flipped(good, rng.randrange(8 * len(good))))
        if not looks_right(tmp_path / "a", values, attrs):
            silent.append((path.name, n))
        path.write_bytes(good)
    assert silent == []
    assert looks_right(tmp_path / "a", values, attrs)


def test_lost_and_emptied_objects(array, tmp_path):
    first, second = tmp_path / "a/c/0/0", tmp_path / "a/c/0/1"
    keep = second.read_bytes()
    second.unlink()
    with pytest.raises(IntegrityError, match="c/0/1"):
        array[0, 17]
    with pytest.raises(IntegrityError, match="c/0/1"):
        array[0, 17] = 1
    assert array[0, 0] == 0
    array[:16, 16:20] = 5  # all cells of the lost object
    assert array[0, 17] == 5
    second.write_bytes(keep)
    first.write_bytes(b"")
    with pytest.raises(IntegrityError):
        array[0, 0]
    with pytest.raises(IntegrityError):
        array[0, 0] = 1
    second.write_bytes(keep[:-1])
    array[...] = 3  # also an object at the edge, of which damaged cells outside of the shape would have been kept
    assert (array.refresh()[...] == 3).all()


def test_other_tool_changes_metadata(array):
    zarr.open_array(array.url).attrs["more"] = 3
    with pytest.raises(IntegrityError, match="hyperslab seal"):
        hs.open(array.url)
    with pytest.raises(IntegrityError, match="hyperslab seal"):
        array.attrs["x"] = 1
    again = hs.seal(array.url)
    assert dict(again.attrs) == {"title": "x", "n": [1, 2], "more": 3}
    assert hs.open(array.url).source.layout.complete


def test_sealing_writes_what_is_missing(tmp_path):
    array = hs.create(tmp_path / "a", (30, 20), "i2", chunks=(4, 4), shards=(8, 8), fill_value=7)
    array[3, 3] = 1
    assert not array.source.layout.complete
    array.seal()
    assert array.source.layout.complete
    assert len(list((tmp_path / "a/c").rglob("*/*"))) == 12
    wanted = np.full((30, 20), 7, "i2")
    wanted[3, 3] = 1
    assert (hs.open(tmp_path / "a")[...] == wanted).all()
    (tmp_path / "a/c/3/2").unlink()
    with pytest.raises(IntegrityError):
        hs.open(tmp_path / "a")[...]


@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_sealing_an_array_of_somebody_else(tmp_path, shards):
    theirs = zarr.create_array(
        str(tmp_path / "a"), shape=(20, 20), chunks=(4, 4), shards=shards, dtype="f4", fill_value=1
    )
    theirs[2:6, 3] = 5
    sealed = hs.seal(tmp_path / "a")
    wanted = np.ones((20, 20), "f4")
    wanted[2:6, 3] = 5
    assert sealed.source.layout.complete
    assert (sealed[...] == wanted).all()
    assert (zarr.open_array(str(tmp_path / "a"))[...] == wanted).all()


def test_sealing_groups_seals_all_below(tmp_path):
    group = zarr.create_group(str(tmp_path / "g"), attributes={"t": 1})
    group.create_array("a", shape=(4,), dtype="i4")[...] = 3
    group.create_group("inner").create_array("b", shape=(4,), dtype="i4")
    sealed = hs.seal(tmp_path / "g")
    assert sealed["a"].source.layout.complete
    assert sealed["inner/b"].source.layout.complete
    assert sealed.attrs == {"t": 1}


def test_sealing_nothing_or_version_2(tmp_path):
    with pytest.raises(hs.errors.NotFoundError):
        hs.seal(tmp_path / "nothing")
    zarr.create_array(str(tmp_path / "old"), shape=(4,), dtype="i4", zarr_format=2)
    with pytest.raises(hs.errors.NotFoundError, match="v3"):
        hs.seal(tmp_path / "old")
    shutil.rmtree(tmp_path / "old")
