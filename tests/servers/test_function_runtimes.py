"""The built bundles in the providers' own runtimes, beside a real S3 server: the cells, the refusals, the limits."""

import asyncio
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.functions_framework import FunctionsFramework, has_framework
from support.lambda_rie import FunctionUrl, LambdaEmulator, find_rie
from support.missing import not_installed

from hyperslab.errors import FunctionError, HyperslabError
from hyperslab.functions.build import build_bundle
from hyperslab.layout.compressors import Zstd
from hyperslab.store.call import CallChunk, CallLayout, CallReply, CallRequest, Points
from hyperslab.store.function import Function, FunctionClient
from hyperslab.store.signing import SigningKey

pytestmark = pytest.mark.timeout(300)

KEY = SigningKey("tests", bytes(range(32)))
RNG = np.random.default_rng(7)
PLAIN = RNG.integers(0, 1 << 30, (1024, 1024)).astype("<i4")
SMALL = RNG.integers(0, 9, (64, 32, 8)).astype("<f8")
# 16 MB, for the times.
LARGE = np.arange(4 << 20, dtype="<i4").reshape(1024, 4096)


def compressed(data: bytes) -> bytes:
    from numcodecs.zstd import compress

    return compress(data, 1)


@pytest.fixture(scope="module")
def stored(s3):
    """Chunks in a bucket, and a secret beside them that no function may read."""
    s3.put("fn/plain", PLAIN.tobytes())
    s3.put("fn/small", compressed(SMALL.tobytes()))
    s3.put("fn/large", LARGE.tobytes())
    s3.put("secret/c", b"1234")
    return s3


@pytest.fixture(scope="module")
def variables(stored) -> dict[str, str]:
    return {
        "HYPERSLAB_FUNCTION_ROOTS": stored.url("fn"),
        "HYPERSLAB_FUNCTION_KEYS": KEY.text,
        "HYPERSLAB_FUNCTION_STORAGE_OPTIONS": json.dumps({**stored.storage_options, "region": "us-east-1"}),
    }


@pytest.fixture(scope="module")
def aws_bundle(tmp_path_factory) -> Path:
    """The bundle as AWS unpacks it."""
    folder = tmp_path_factory.mktemp("aws")
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    machine = "arm64" if os.uname().machine == "aarch64" else "x86_64"
    try:
        bundle = build_bundle("aws", folder, python=own, architecture=machine)
    except HyperslabError as error:
        not_installed(f"no bundle can be built here: {error}")
    sys.stdout.write(f"bundle for AWS: {bundle.zip_nbytes:,} bytes, {bundle.nbytes:,} unpacked\n")
    unpacked = tmp_path_factory.mktemp("task")
    with zipfile.ZipFile(folder / "function.zip") as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.fixture(scope="module")
def aws(aws_bundle: Path, variables: dict[str, str]) -> Iterator[str]:
    if find_rie() is None:
        not_installed("AWS's emulator is not installed: `make test` fetches it")
    emulator = LambdaEmulator(aws_bundle, variables)
    with FunctionUrl(emulator) as front:
        yield front.url
    emulator.stop()


@pytest.fixture(scope="module")
def google(tmp_path_factory, variables: dict[str, str]) -> Iterator[str]:
    if not has_framework():
        not_installed("Google's framework is not installed: pip install functions-framework")
    folder = tmp_path_factory.mktemp("gcp")
    build_bundle("gcp", folder)
    server = FunctionsFramework(folder / "function", variables)
    yield server.url
    server.stop()


@pytest.fixture(params=["aws", "google"])
def url(request) -> str:
    return request.getfixturevalue(request.param)


def call(url: str, request: CallRequest, *, key: SigningKey | None = KEY, times: int = 1) -> tuple[CallReply, int]:
    async def send() -> tuple[CallReply, int]:
        client = FunctionClient(Function(url, key=key))
        try:
            for _ in range(times):
                started = time.perf_counter()
                answer = await client.acall(request, timeout_s=60, limit_bytes=1 << 30)
                took_ms = (time.perf_counter() - started) * 1e3
                sys.stdout.write(f"{took_ms:.1f} ms, {answer[1]:,} bytes\n")
            return answer
        finally:
            await client.aclose()

    return asyncio.run(send())


def request_of(bucket: str, *chunks: CallChunk, compress: bool = False) -> CallRequest:
    layouts = (
        CallLayout(PLAIN.shape, PLAIN.dtype, (0, 1)),
        CallLayout(SMALL.shape, SMALL.dtype, (0, 1, 2), (Zstd(),)),
        CallLayout(LARGE.shape, LARGE.dtype, (0, 1)),
    )
    return CallRequest(f"s3://{bucket}", layouts, chunks, compress)


def test_cells_are_right(url: str, stored) -> None:
    rows = np.array([3, 60, 3])
    request = request_of(
        stored.bucket,
        CallChunk("fn/plain", 0, ((10, 20, 3), (5, 7, 1))),
        CallChunk("fn/small", 1, (rows, (0, 32, 1), (7, 1, 1))),
        CallChunk("fn/small", 1, Points((np.array([0, 63]), np.array([1, 2]), np.array([3, 4])))),
        CallChunk("fn/never-written", 0, ((0, 1, 1), (0, 1, 1))),
    )
    reply, nbytes = call(url, request)
    plain, small, points, absent = reply.answers
    np.testing.assert_array_equal(np.frombuffer(plain.data, "<i4").reshape(20, 7), PLAIN[10:70:3, 5:12])
    np.testing.assert_array_equal(np.frombuffer(small.data, "<f8").reshape(3, 32, 1), SMALL[rows, :, 7:8])
    np.testing.assert_array_equal(np.frombuffer(points.data, "<f8"), SMALL[[0, 63], [1, 2], [3, 4]])
    assert absent.data is None
    assert reply.gets == 4
    assert nbytes < 20 * 7 * 4 + 3 * 32 * 8 + 2 * 8 + 1500


def test_compressed_cells_are_right(url: str, stored) -> None:
    request = request_of(stored.bucket, CallChunk("fn/small", 1, ((0, 64, 1), (0, 32, 1), (0, 8, 1))), compress=True)
    reply, nbytes = call(url, request)
    np.testing.assert_array_equal(np.frombuffer(reply.answers[0].data, "<f8").reshape(SMALL.shape), SMALL)
    assert nbytes < SMALL.nbytes / 2


@pytest.mark.parametrize("key", [None, SigningKey("tests", bytes(32)), SigningKey("others", bytes(range(32)))])
def test_others_are_turned_away(url: str, stored, key: SigningKey | None) -> None:
    with pytest.raises(FunctionError) as failure:
        call(url, request_of(stored.bucket, CallChunk("fn/plain", 0, ((0, 1, 1), (0, 1, 1)))), key=key)
    assert failure.value.status == 401
    assert failure.value.nbytes > 0
    assert not failure.value.transient


def test_nothing_is_read_elsewhere(url: str, stored) -> None:
    chunk = CallChunk("secret/c", 0, ((0, 1, 1), (0, 1, 1)))
    for request in (request_of(stored.bucket, chunk), request_of("other", replace(chunk, key="fn/plain"))):
        with pytest.raises(FunctionError, match="does not read from there") as failure:
            call(url, request)
        assert failure.value.status == 403


def test_a_damaged_chunk_is_said(url: str, stored) -> None:
    stored.put("fn/damaged", b"\x00" * 100)
    with pytest.raises(FunctionError) as failure:
        call(url, request_of(stored.bucket, CallChunk("fn/damaged", 1, ((0, 1, 1), (0, 1, 1), (0, 1, 1)))))
    assert failure.value.status == 422


def test_lambda_passes_on_what_aws_does(aws: str, stored) -> None:
    """4.7 MB of cells are the most: in base64 they are 6 MB."""
    rows = 4_690_000 // (LARGE.shape[1] * 4)
    reply, _ = call(aws, request_of(stored.bucket, CallChunk("fn/large", 2, ((0, rows, 1), (0, 4096, 1)))))
    np.testing.assert_array_equal(np.frombuffer(reply.answers[0].data, "<i4"), LARGE[:rows].ravel())
    with pytest.raises(FunctionError, match="4,700,000 are allowed") as failure:
        call(aws, request_of(stored.bucket, CallChunk("fn/large", 2, ((0, rows + 1, 1), (0, 4096, 1)))))
    assert failure.value.status == 413


def test_google_passes_on_a_large_reply(google: str, stored) -> None:
    reply, _ = call(google, request_of(stored.bucket, CallChunk("fn/large", 2, ((0, 1024, 1), (0, 4096, 1)))))
    np.testing.assert_array_equal(np.frombuffer(reply.answers[0].data, "<i4"), LARGE.ravel())


def test_a_warm_call_works_again_and_again(url: str, stored) -> None:
    request = request_of(stored.bucket, CallChunk("fn/large", 2, ((0, 64, 1), (0, 4096, 1))))
    reply, _ = call(url, request, times=10)
    assert reply.read_bytes <= LARGE.nbytes
    np.testing.assert_array_equal(np.frombuffer(reply.answers[0].data, "<i4"), LARGE[:64].ravel())


def test_bundle_for_aws_needs_nothing_else(aws_bundle: Path) -> None:
    """All that the handler imports, also later on, lies in the bundle, and it does not import what it does not need."""
    program = (
        "import sys, main, obstore.store, numcodecs.zstd, zlib_ng.zlib_ng, google_crc32c; "
        "print(sys.modules['hyperslab'].__file__, 'hyperslab.plan' in sys.modules, 'asyncio' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(aws_bundle)}
    command = [sys.executable, "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == [str(aws_bundle / "hyperslab/__init__.py"), "False", "True"], done.stderr


def test_lambda_that_is_not_set_up_says_so(aws_bundle: Path) -> None:
    if find_rie() is None:
        not_installed("AWS's emulator is not installed")
    emulator = LambdaEmulator(aws_bundle, {})
    try:
        with FunctionUrl(emulator) as front, pytest.raises(FunctionError, match="not set up") as failure:
            call(front.url, request_of("b", CallChunk("fn/plain", 0, ((0, 1, 1), (0, 1, 1)))))
        assert failure.value.status == 503
        assert failure.value.retry_after_s is not None
    finally:
        emulator.stop()
