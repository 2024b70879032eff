"""zarr-python's own tests of stores, against ours: on local files, in memory and on S3."""

import asyncio
import functools
import inspect

import pytest
from zarr.core.buffer import Buffer, cpu
from zarr.testing.store import StoreTests

import hyperslab.store
from hyperslab.zarr import HyperslabStore


def in_loop(test):
    """Run a coroutine that pytest knows nothing of."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        return asyncio.run(test(*args, **kwargs))

    return run


class OurStoreTests(StoreTests[HyperslabStore, cpu.Buffer]):
    store_cls = HyperslabStore
    buffer_cls = cpu.Buffer

    async def set(self, store: HyperslabStore, key: str, value: Buffer) -> None:
        place, path = self.place(store)
        await asyncio.to_thread(place.put, path + key, value.to_bytes())

    async def get(self, store: HyperslabStore, key: str) -> Buffer:
        place, path = self.place(store)
        return self.buffer_cls.from_bytes(bytes((await asyncio.to_thread(place.get, path + key)).data))

    def place(self, store):
        """Return where the store keeps its objects, reached by another way than through it."""
        place, path = hyperslab.store.locate(store.url, self.options(), create=True)
        return place, path + "/" if path else ""

    def options(self):
        return None

    @pytest.fixture
    def store(self, open_kwargs):
        store = asyncio.run(self.store_cls.open(**open_kwargs))
        yield store
        store.close()

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        store = self.store_cls(**store_kwargs)
        yield store
        store.close()

    def test_store_repr(self, store):
        assert repr(store) == f"HyperslabStore({store.url!r})"

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing


for name, coroutine in inspect.getmembers(OurStoreTests, inspect.iscoroutinefunction):
    if name.startswith("test_"):
        setattr(OurStoreTests, name, in_loop(coroutine))


class TestLocal(OurStoreTests):
    @pytest.fixture
    def store_kwargs(self, tmp_path):
        return {"url": str(tmp_path / "store.zarr")}


class TestMemory(OurStoreTests):
    @pytest.fixture
    def store_kwargs(self, tmp_path):
        return {"url": f"memory://{tmp_path.name}-{id(self)}/inside/store.zarr"}


class TestS3(OurStoreTests):
    @pytest.fixture
    def store_kwargs(self, fake_s3, tmp_path):
        self.storage_options = {"endpoint": fake_s3.endpoint, "anonymous": True}
        return {"url": f"s3://bucket/{tmp_path.name}", "storage_options": self.storage_options}

    def options(self):
        return self.storage_options
