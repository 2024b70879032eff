import itertools

import pytest
from support.conformance import Place, StoreConformance

from hyperslab.store import locate, memory

_names = (f"conformance-{number}" for number in itertools.count())


class TestLocal(StoreConformance):
    @pytest.fixture
    def place(self, tmp_path):
        def put(key, data):
            path = tmp_path / key
            path.parent.mkdir(parents=True, exist_ok=True)
            # Replaced as a careful writer would: two writes in place within a clock tick look alike.
            beside = path.with_name(path.name + ".partial")
            beside.write_bytes(data)
            beside.replace(path)

        return Place(locate(tmp_path)[0], put)


class TestMemory(StoreConformance):
    @pytest.fixture
    def place(self):
        name = next(_names)
        return Place(locate(f"memory://{name}")[0], lambda key, data: memory(name).put(key, data))
