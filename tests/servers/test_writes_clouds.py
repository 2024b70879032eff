"""Writing to every cloud by one suite: SeaweedFS for S3, Azurite for Azure, for Google a fake of its XML API."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import zarr
from support.fake_gcs import FakeGcs
from support.forking import Child
from support.s3proxy import S3Proxy
from zarr.buffer import cpu
from zarr.storage import MemoryStore, ObjectStore

import hyperslab as hs
from hyperslab.errors import AccessError, HyperslabError, IntegrityError, InvalidInputError

CLOUDS = ["azure", "google", "seaweed"]


@dataclass
class Cloud:
    """A place on a server; `zarr_store` gives what is stored there to zarr-python, without our code."""

    root: str
    options: dict[str, Any]
    zarr_store: Callable[[], Any]
    delete: Callable[[str], object]

    def made(self, session: hs.Session | None = None) -> dict[str, Any]:
        return {"storage_options": self.options, "session": session}

    def reopened(self, name: str) -> Any:
        """Open it as another program would: nothing is known of what was written."""
        return hs.open(f"{self.root}/{name}", **self.made(hs.Session()))

    def by_zarr(self, name: str) -> Any:
        path = f"{self.prefix}/{name}"
        return zarr.open_array(self.zarr_store(), path=path, mode="r")[...]

    @property
    def prefix(self) -> str:
        return self.root.split("/", 3)[3]


@pytest.fixture
def google():
    with S3Proxy(fake=FakeGcs()) as proxy:
        yield proxy


def _google_cloud(proxy: S3Proxy, prefix: str) -> Cloud:
    fake = proxy.fake

    def objects() -> MemoryStore:
        held = {key.removeprefix("bucket/"): cpu.Buffer.from_bytes(data) for key, (data, _) in fake.objects.items()}
        return MemoryStore(held, read_only=True)

    options = {"endpoint": proxy.endpoint, "token": "hush-token"}
    return Cloud(f"gs://bucket/{prefix}", options, objects, lambda key: fake.objects.pop(f"bucket/{key}"))


@pytest.fixture(params=CLOUDS)
def cloud(request):
    prefix = f"writes/{uuid.uuid4().hex}"
    if request.param == "google":
        return _google_cloud(request.getfixturevalue("google"), prefix)
    server = request.getfixturevalue("azurite" if request.param == "azure" else "s3")
    client = server.client()
    return Cloud(server.url(prefix), server.storage_options, lambda: ObjectStore(client, read_only=True), client.delete)


def check(cloud: Cloud, name: str, expected: np.ndarray, *, complete: bool = True) -> None:
    found = cloud.reopened(name)
    assert found.shape == expected.shape
    assert (found[...] == expected).all()
    assert found.source.layout.complete is complete
    assert (cloud.by_zarr(name) == expected).all()


def test_cells_shape_and_attributes(cloud):
    values = np.arange(90 * 70, dtype="i4").reshape(90, 70)
    with hs.Session() as session:
        array = hs.save(
            f"{cloud.root}/a", values, chunks=(10, 10), shards=(40, 40), attrs={"a": 1}, **cloud.made(session)
        )
        check(cloud, "a", values)
        array[5:50, ::-3] = -1
        array.points[[0, 89], [0, 69]] = 7
        values[5:50, ::-3] = -1
        values[[0, 89], [0, 69]] = 7
        check(cloud, "a", values)
        array.append(values[:15])
        values = np.concatenate([values, values[:15]])
        check(cloud, "a", values)
        array.resize((60, 75))
        values = np.pad(values[:60], ((0, 0), (0, 5)))
        check(cloud, "a", values)
        assert {key.partition("/c/")[2] for key, _ in array.store.keys(array.source.path + "/c")} == {
            "0/0", "0/1", "1/0", "1/1",
        }  # fmt: skip
        array.attrs["b"] = [1, None, "ü"]
        del array.attrs["a"]
        assert cloud.reopened("a").attrs == {"b": [1, None, "ü"]}
        assert session.metrics.puts > 10
        assert session.metrics.retries == 0


def test_plain_layout_and_no_axes(cloud):
    hs.save(f"{cloud.root}/plain", np.arange(100.0), layout="plain", chunks=(30,), **cloud.made())[95:] = 0
    check(cloud, "plain", np.where(np.arange(100) < 95, np.arange(100.0), 0))
    hs.save(f"{cloud.root}/one", np.float32(2.5), **cloud.made())
    check(cloud, "one", np.array(2.5, "f4"))


def test_groups_copies_and_overwriting(cloud):
    group = hs.create_group(f"{cloud.root}/g", attrs={"title": "t"}, **cloud.made())
    group.save("in/a", np.arange(50), chunks=(5,), shards=(20,), attrs={"k": "v"})
    group.create("b", (4,), "f4", fill_value=np.nan)
    for name in ("..", "a/../../x", "%2e%2e", "zarr.json", "in/a/x"):
        with pytest.raises(InvalidInputError):
            group.create(name, (1,), "i1")
    copied = hs.copy(group, f"{cloud.root}/copy", **cloud.made())
    assert copied.attrs == {"title": "t"}
    assert sorted(cloud.reopened("copy")) == ["b", "in"]
    assert np.isnan(cloud.reopened("copy/b")[...]).all()
    check(cloud, "copy/in/a", np.arange(50))
    assert cloud.reopened("copy/in/a").attrs == {"k": "v"}
    with pytest.raises(InvalidInputError, match="overwrite=True"):
        hs.save(f"{cloud.root}/copy", np.arange(3), **cloud.made())
    hs.save(f"{cloud.root}/copy", np.arange(3), overwrite=True, **cloud.made())
    check(cloud, "copy", np.arange(3))
    assert not [key for key, _ in group.store.keys(cloud.prefix + "/copy") if "in/" in key]


def test_lost_objects_and_seals(cloud):
    array = hs.create(f"{cloud.root}/a", (40,), "i2", chunks=(10,), shards=(10,), **cloud.made())
    array[5:15] = 3
    expected = np.where((np.arange(40) > 4) & (np.arange(40) < 15), 3, 0)
    check(cloud, "a", expected, complete=False)
    hs.seal(f"{cloud.root}/a", **cloud.made())
    check(cloud, "a", expected)
    cloud.delete(array.source.path + "/c/2")
    with pytest.raises(IntegrityError, match="c/2"):
        cloud.reopened("a")[...]
    sealed = hs.open(f"{cloud.root}/a", mode="r+", **cloud.made())
    with pytest.raises(IntegrityError, match="c/2"):
        sealed[25] = 1
    sealed[20:30] = 4
    assert (cloud.reopened("a")[20:30] == 4).all()


def test_metadata_changed_by_others_is_named(cloud):
    array = hs.save(f"{cloud.root}/a", np.arange(10), attrs={"n": 1}, **cloud.made())
    key = array.source.path + "/zarr.json"
    text = bytes(array.store.get(key).data)
    array.store.put(key, text.replace(b'"n": 1', b'"n": 2'))
    with pytest.raises(IntegrityError, match="seal"):
        cloud.reopened("a")
    assert hs.seal(f"{cloud.root}/a", **cloud.made()).attrs == {"n": 2}
    check(cloud, "a", np.arange(10))


def test_chunks_that_an_interrupted_deletion_left_are_not_read(cloud):
    array = hs.save(f"{cloud.root}/a", np.arange(40), chunks=(10,), shards=(10,), **cloud.made())
    array.store.delete(array.source.path + "/zarr.json")
    settings = {"chunks": (10,), "shards": (10,)}
    with pytest.raises(InvalidInputError, match="overwrite=True"):
        hs.create(f"{cloud.root}/a", (40,), "i8", **settings, **cloud.made())
    hs.create(f"{cloud.root}/a", (40,), "i8", overwrite=True, **settings, **cloud.made())
    check(cloud, "a", np.zeros(40, "i8"), complete=False)


def increment(cloud: Cloud, cell: int, rounds: int) -> None:
    with hs.Session() as session:
        array = hs.open(f"{cloud.root}/a", mode="r+", **cloud.made(session))
        for _ in range(rounds):
            array[cell] = array.refresh()[cell] + 1


@pytest.mark.parametrize("cloud", ["azure", "seaweed"], indirect=True)
def test_two_processes_increment_cells_of_one_chunk(cloud):
    hs.save(f"{cloud.root}/a", np.zeros(4, "i8"), **cloud.made())
    children = [Child(lambda n=n: increment(cloud, n, 6)) for n in (0, 2)]
    for child in children:
        child.result(60)
    assert cloud.reopened("a")[...].tolist() == [6, 0, 6, 0]


@pytest.mark.parametrize("cloud", ["azure", "seaweed"], indirect=True)
def test_readers_see_the_old_cells_or_the_new(cloud):
    hs.save(f"{cloud.root}/a", np.zeros((8, 8), "i8"), chunks=(2, 8), shards=(8, 8), **cloud.made())

    def write() -> None:
        with hs.Session() as session:
            array = hs.open(f"{cloud.root}/a", mode="r+", **cloud.made(session))
            for n in range(1, 12):
                array[...] = n

    child, last = Child(write), 0
    started = time.monotonic()
    with hs.Session() as session:
        while last < 11:
            assert time.monotonic() - started < 100
            cells = hs.open(f"{cloud.root}/a", **cloud.made(session))[...]
            assert len(np.unique(cells)) == 1
            assert cells[0, 0] >= last
            last = cells[0, 0]
    child.result(60)


def test_refused_writes_are_named(google):
    cloud = _google_cloud(google, "nowhere")
    with pytest.raises(HyperslabError) as caught:
        hs.save("gs://no-such-bucket/a", np.arange(3), **cloud.made())
    assert isinstance(caught.value, hs.errors.NotFoundError | AccessError)
    assert "hush-token" not in str(caught.value)
