"""What TensorStore writes, read by our own code: a second writer, with habits of its own."""

import numpy as np
import pytest
from support.whole_reads import DirectoryReader, read_whole

from hyperslab.formats import ArraySource, open_source

tensorstore = pytest.importorskip("tensorstore")

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
CRC = {"name": "crc32c"}
INDEX = [BYTES, CRC]


def sharding(codecs, location="end", index=INDEX):
    config = {"chunk_shape": [2, 3], "codecs": codecs, "index_codecs": index, "index_location": location}
    return [{"name": "sharding_indexed", "configuration": config}]


def transpose(*order):
    return {"name": "transpose", "configuration": {"order": list(order)}}


def codec(name, **config):
    return {"name": name, "configuration": config}


def check(tmp_path, driver, metadata, dtype="int32"):
    data = np.arange(9 * 7, dtype=dtype).reshape(9, 7)
    kvstore = {"driver": "file", "path": str(tmp_path / "a") + "/"}
    spec = {"driver": driver, "kvstore": kvstore, "metadata": metadata, "create": True}
    tensorstore.open(spec).result()[:5] = data[:5]
    reader = DirectoryReader(tmp_path)
    source = open_source(reader, "file:///a", "a")
    assert isinstance(source, ArraySource)
    expected = data.copy()
    expected[5:] = 3
    np.testing.assert_array_equal(read_whole(reader, source), expected)
    return source


@pytest.mark.parametrize(
    "codecs",
    [
        [BYTES],
        [BIG],
        [transpose(1, 0), BIG],
        [transpose(1, 0), transpose(1, 0), BYTES],
        [BYTES, codec("gzip", level=5)],
        [BYTES, codec("zstd", level=1)],
        [BYTES, codec("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=4, blocksize=0)],
        [BYTES, codec("blosc", cname="zstd", clevel=5, shuffle="bitshuffle", typesize=4, blocksize=0)],
        [BYTES, codec("gzip", level=1), CRC],
        [BYTES, CRC, codec("zstd", level=1)],
        sharding([BYTES]),
        sharding([BYTES], "start"),
        sharding([transpose(1, 0), BIG], "start", [BYTES]),
        sharding([BYTES, codec("zstd", level=3), CRC]),
    ],
    ids=str,
)
def test_v3(tmp_path, codecs):
    metadata = {
        "shape": [9, 7],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 6]}},
        "codecs": codecs,
        "fill_value": 3,
    }
    check(tmp_path, "zarr3", metadata)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "compressor",
    [
        None,
        {"id": "zlib", "level": 1},
        {"id": "gzip", "level": 1},
        {"id": "bz2", "level": 1},
        {"id": "zstd", "level": 1},
        {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    ],
    ids=str,
)
def test_v2(tmp_path, order, compressor):
    metadata = {"shape": [9, 7], "chunks": [4, 3], "dtype": ">i4", "order": order, "compressor": compressor}
    source = check(tmp_path, "zarr", metadata | {"fill_value": 3, "filters": None, "zarr_format": 2})
    assert source.layout.plain == (compressor is None)
