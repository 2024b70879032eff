"""What zarr-python writes, read by our own code."""

import warnings
from itertools import count

import numpy as np
import pytest
import zarr
from numcodecs import (
    BZ2,
    CRC32,
    CRC32C,
    LZ4,
    LZMA,
    Adler32,
    AsType,
    BitRound,
    Blosc,
    Delta,
    FixedScaleOffset,
    Fletcher32,
    GZip,
    JenkinsLookup3,
    PackBits,
    Quantize,
    Shuffle,
    Zlib,
    Zstd,
)
from support.whole_reads import DirectoryReader, read_whole
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as v3_numcodecs

from hyperslab.formats import ArraySource, open_source

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
    "float64", "complex64", "complex128", ">i4", ">f8", ">c8", "M8[ns]", "M8[10s]", "m8[ms]", ">M8[D]",
    "U5", ">U3",
    "S7", "V6", [("a", "<i4"), ("b", "<f8"), ("s", "S3")],
]  # fmt: skip


def cells(dtype: object, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return cells of any type, without the NaNs that would hide in a comparison."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 100, shape)
    if dtype.fields is not None:
        out = np.zeros(shape, dtype)
        for name, (inner, *_) in dtype.fields.items():
            out[name] = cells(inner, shape, seed + 1)
        return out
    if dtype.kind == "V":
        return rng.integers(0, 256, (*shape, dtype.itemsize), "u1").view(dtype).reshape(shape)
    if dtype.kind in "SU":
        return numbers.astype(dtype)
    if dtype.kind in "mM":
        return numbers.astype("i8").astype(dtype)
    return (numbers * (1 + 0.5j) if dtype.kind == "c" else numbers % 2 if dtype.kind == "b" else numbers).astype(dtype)


@pytest.fixture
def check(tmp_path):
    """Write an array with zarr, read it with both, compare."""
    numbers = count()

    def run(data: np.ndarray, *, fill=None, partly=True, **options) -> ArraySource:
        path = tmp_path / str(next(numbers))
        if data.dtype.fields is not None and fill is None:
            fill = np.zeros((), data.dtype)[()]  # zarr's own default has b"0" in strings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            written = zarr.create_array(str(path), shape=data.shape, dtype=data.dtype, fill_value=fill, **options)
            if partly and data.ndim and data.shape[0] > 3:
                written[:3] = data[:3]  # the rest stays away: fill values
            else:
                written[...] = data
            oracle = zarr.open_array(str(path), mode="r")
            expected = oracle[...]
        reader = DirectoryReader(tmp_path)
        source = open_source(reader, "file:///x", path.name)
        assert isinstance(source, ArraySource)
        assert source.layout.shape == oracle.shape
        assert source.layout.dtype == oracle.dtype
        assert source.layout.chunks == oracle.chunks
        found = read_whole(reader, source)
        assert found.dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(found, expected)
        return source

    return run


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(check, dtype, zarr_format):
    data = cells(dtype, (7, 5))
    plain = check(data, chunks=(3, 2), compressors=None, zarr_format=zarr_format)
    assert plain.layout.plain
    order = {"order": "F"} if zarr_format == 2 else {"filters": TransposeCodec(order=(1, 0))}
    if zarr_format == 3:
        order["serializer"] = BytesCodec(endian="big")
    packed = check(data, chunks=(3, 2), zarr_format=zarr_format, **order)
    assert packed.layout.order == (1, 0)
    assert not packed.layout.plain


# zarr-python cannot write shards of the other types.
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if np.dtype(dtype).kind != "V"], ids=str)
@pytest.mark.parametrize("index_location", ["start", "end"])
def test_shards_of_every_dtype(check, dtype, index_location):
    sharding = ShardingCodec(chunk_shape=(2, 3), codecs=[BytesCodec(), ZstdCodec()], index_location=index_location)
    source = check(cells(dtype, (9, 7)), chunks=(4, 6), serializer=sharding, filters=None, compressors=None)
    assert source.layout.object_shape == (4, 6)
    assert source.layout.index.count == 4


@pytest.mark.parametrize("index_location", ["start", "end"])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize(
    "inner",
    [
        [BytesCodec()],
        [TransposeCodec(order=(1, 0)), BytesCodec(endian="big")],
        [BytesCodec(), Crc32cCodec()],
        [BytesCodec(), GzipCodec(), Crc32cCodec()],
        [TransposeCodec(order=(1, 0)), BytesCodec(), BloscCodec()],
    ],
    ids=lambda inner: "+".join(type(codec).__name__ for codec in inner),
)
def test_shards(check, inner, checksum, index_location):
    sharding = ShardingCodec(
        chunk_shape=(2, 3),
        codecs=inner,
        index_codecs=[BytesCodec(), Crc32cCodec()] if checksum else [BytesCodec()],
        index_location=index_location,
    )
    source = check(cells("i4", (9, 7)), chunks=(4, 6), serializer=sharding, filters=None, compressors=None)
    assert source.layout.plain == all(isinstance(codec, TransposeCodec | BytesCodec) for codec in inner)
    assert source.layout.index.checksum == checksum


def test_shards_that_are_plain_and_partly_empty(check):
    sharding = ShardingCodec(chunk_shape=(1,), codecs=[BytesCodec()])
    data = np.arange(40, dtype="f8")
    check(data, fill=-1.0, chunks=(10,), serializer=sharding, filters=None, compressors=None)


V2_COMPRESSORS = [
    Zlib(), GZip(), BZ2(), LZMA(), LZ4(), Zstd(), Zstd(checksum=True), None,
    LZMA(format=2), LZMA(format=3, filters=[{"id": 33, "preset": 1}]),
    *(Blosc(cname, shuffle=shuffle) for cname in ("lz4", "zstd", "zlib", "blosclz",
    "lz4hc") for shuffle in (0, 1, 2)),
]  # fmt: skip
V2_FILTERS = [
    [Delta("<i4")],
    [Delta("<i4", astype="<i8"), Shuffle(8)],
    [FixedScaleOffset(3, 2, "<i4", "<i2")],
    [AsType("<i8", "<i4")],
    [CRC32()],
    [CRC32C()],
    [CRC32C(location="start")],
    [Adler32()],
    [Fletcher32()],
    [JenkinsLookup3()],
    [Shuffle(4), Zlib(), CRC32()],
    [Zlib(), BZ2(), Zstd()],
]


@pytest.mark.parametrize("compressor", V2_COMPRESSORS, ids=str)
def test_v2_compressors(check, compressor):
    check(cells("<i4", (50, 41)), chunks=(23, 40), compressors=compressor, zarr_format=2)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("filters", V2_FILTERS, ids=str)
def test_v2_filters(check, filters, order):
    data = cells("<i4", (8, 5))
    check(data, chunks=(3, 2), filters=filters, compressors=Zstd(), order=order, zarr_format=2)
    check(data, chunks=(3, 2), filters=filters, compressors=None, order=order, zarr_format=2)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_filters_of_floats_and_booleans(check, zarr_format):
    floats, flags = cells("f4", (8, 5)) / 7, cells("?", (8, 5))
    for filters, data in [
        ([Quantize(2, "<f4")], floats),
        ([BitRound(5)], floats),
        ([FixedScaleOffset(3, 10.5, "<f4", "u1")], floats),
        ([PackBits()], flags),
        ([Delta("<i8")], cells("M8[s]", (8, 5))) if zarr_format == 2 else ([BitRound(3)], floats),
    ]:
        if zarr_format == 3:
            filters = [_v3(each) for each in filters]
        check(data, chunks=(3, 3), filters=filters, zarr_format=zarr_format)


def _v3(codec):
    config = codec.get_config()
    classes = {cls.codec_name: cls for cls in vars(v3_numcodecs).values() if hasattr(cls, "codec_name")}
    return classes["numcodecs." + config.pop("id")](**config)


@pytest.mark.parametrize(
    "codecs",
    [
        [GzipCodec()], [ZstdCodec()], [ZstdCodec(checksum=True)], [BloscCodec()], [BloscCodec(cname="lz4")],
        [BloscCodec(cname="zlib", shuffle="bitshuffle")], [Crc32cCodec()], [GzipCodec(), Crc32cCodec()],
        [Crc32cCodec(), ZstdCodec()], [GzipCodec(), ZstdCodec(), BloscCodec()],
        *([_v3(each)] for each in (Zlib(), GZip(), BZ2(), LZMA(), LZ4(), Zstd(), Blosc())),
        *([_v3(each)] for each in (CRC32(), CRC32C(), Adler32(), Fletcher32(), JenkinsLookup3())),
        [_v3(Shuffle(4)), _v3(Zlib())],
    ],
    ids=lambda codecs: "+".join(type(codec).__name__ for codec in codecs),
)  # fmt: skip
@pytest.mark.parametrize("endian", ["little", "big"])
def test_v3_codecs(check, codecs, endian):
    data = cells("<i4", (50, 41))
    check(data, chunks=(23, 40), compressors=codecs, serializer=BytesCodec(endian=endian))


@pytest.mark.parametrize(
    "filters",
    [
        [TransposeCodec(order=(2, 0, 1))],
        [TransposeCodec(order=(2, 0, 1)), TransposeCodec(order=(0, 2, 1))],
        [v3_numcodecs.Delta(dtype="<i4", astype="<i8")],
        [v3_numcodecs.FixedScaleOffset(offset=3, scale=2, astype="<i2")],
        [v3_numcodecs.AsType(encode_dtype="<i8", decode_dtype="<i4"), TransposeCodec(order=(1, 2, 0))],
    ],
    ids=str,
)
def test_v3_filters(check, filters):
    check(cells("<i4", (5, 4, 6)), chunks=(3, 2, 4), filters=filters, partly=False)


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("shape", [(), (0,), (4, 0), (7,), (1, 1, 1), (3, 4, 5)])
@pytest.mark.parametrize(("zarr_format", "name"), [(2, "v2"), (3, "v2"), (3, "default")])
def test_shapes_and_keys(check, shape, name, separator, zarr_format):
    data = cells("i4", shape)
    chunks = tuple(max(1, n // 2) for n in shape)
    encoding = {"name": name, "separator": separator}
    check(data, chunks=chunks, chunk_key_encoding=encoding, zarr_format=zarr_format)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("f4", np.nan), ("f8", np.inf), ("f2", -np.inf), ("f8", 0.1), ("c8", complex(1, np.nan)),
        ("c16", 2 - 1j),
        ("i8", -(2**63)), ("u8", 2**64 - 1), ("?", True), ("M8[s]", np.datetime64("2020-01-01")),
        ("m8[D]", 5),
        ("M8[ns]", np.datetime64("NaT")), ("U4", "añb"), (">U4", "xy"), ("S4", b"ab"), ("V3", b"abc"),
        ([("a", "<i4"), ("b", "<f8")], (3, 4.5)),
    ],
    ids=str,
)  # fmt: skip
def test_fill_values(check, dtype, fill, zarr_format):
    dtype = np.dtype(dtype)
    fill = np.array(fill, dtype)[()] if dtype.kind in "V" else fill
    source = check(np.zeros((8,), dtype), fill=fill, chunks=(2,), zarr_format=zarr_format)
    assert source.layout.fill.shape == ()
    assert source.layout.fill.dtype == source.layout.dtype


def test_attributes_and_names_of_axes(tmp_path):
    zarr.create_array(str(tmp_path / "a"), shape=(2, 3), dtype="i4", dimension_names=["x", None], attributes={"k": [1]})
    old = zarr.create_array(str(tmp_path / "b"), shape=(2, 3), dtype="i4", zarr_format=2)
    old.attrs.update({"_ARRAY_DIMENSIONS": ["y", "x"], "k": "v"})
    new_source = open_source(DirectoryReader(tmp_path), "file:///s/a", "a")
    old_source = open_source(DirectoryReader(tmp_path), "file:///s/b", "b")
    assert (new_source.dimension_names, dict(new_source.attrs)) == (("x", None), {"k": [1]})
    assert (old_source.dimension_names, old_source.attrs["k"]) == (("y", "x"), "v")
    assert (new_source.format, old_source.format) == ("zarr3", "zarr2")


def test_layouts_pickle(check):
    import pickle

    source = check(cells("i4", (5, 5)), chunks=(2, 2), compressors=[GzipCodec(), Crc32cCodec()])
    again = pickle.loads(pickle.dumps(source))
    assert again.layout.decoder == source.layout.decoder
