"""What every key/value tier does alike: a class of tests that each kind of tier runs."""

import os
import pickle
import threading

import pytest

from hyperslab.errors import InvalidInputError
from hyperslab.store.keyvalue import KeyValue
from support.forking import in_child

__all__ = ["TierConformance", "some_items"]


def some_items(count: int, nbytes: int, name: bytes = b"k") -> dict[bytes, bytes]:
    return {name + b"%05d" % n: os.urandom(nbytes) for n in range(count)}


class TierConformance:
    """Needs a fixture `open_tier`: a function of capacity_bytes that gives a tier in one place, empty at first."""

    @pytest.fixture
    def tier(self, open_tier):
        tier = open_tier(64 << 20)
        yield tier
        tier.close()

    def test_is_a_tier(self, tier):
        assert isinstance(tier, KeyValue)
        assert tier.capacity_bytes == 64 << 20
        assert tier.get_many([]) == []
        assert tier.put_many({}) == []
        tier.delete_many([])
        assert list(tier.keys()) == []

    @pytest.mark.parametrize("nbytes", [0, 1, 16, 100, 2000, 4080, 4096, 8416, 70_000, 3 << 20])
    def test_what_is_put_is_there(self, tier, nbytes):
        items = some_items(5, nbytes)
        assert tier.put_many(items) == list(items)
        asked = [*items, b"none", b"k00000"]
        assert tier.get_many(asked) == [*items.values(), None, items[b"k00000"]]
        assert sorted(tier.keys()) == sorted(items)

    def test_a_value_is_replaced_whole(self, tier):
        tier.put_many({b"k": b"long" * 3000})
        before = tier.used_bytes()
        tier.put_many({b"k": b"short"})
        assert tier.get_many([b"k"]) == [b"short"]
        assert tier.used_bytes() < before

    def test_keys_are_any_bytes(self, tier):
        items = {key: key * 2 for key in (b"\0", b"*", b"\xff" * 256, b"a\r\nb", b"k*", bytes(range(256)))}
        assert tier.put_many(items) == list(items)
        assert tier.get_many(list(items)) == list(items.values())
        assert set(tier.keys()) == set(items)
        tier.delete_many([b"*"])
        assert tier.get_many([b"k*", b"*"]) == [b"k*k*", None]

    def test_more_keys_than_a_request_takes(self, tier):
        items = some_items(2000, 40)
        assert tier.put_many(items) == list(items)
        assert tier.get_many(list(items)) == list(items.values())
        assert len(set(tier.keys())) == 2000
        tier.delete_many(items)
        assert list(tier.keys()) == []
        assert tier.get_many([b"k00000"]) == [None]

    @pytest.mark.parametrize("key", [b"", bytes(257), "text", None])
    def test_wrong_keys(self, tier, key):
        for call in (lambda: tier.get_many([key]), lambda: tier.put_many({key: b""}), lambda: tier.delete_many([key])):
            with pytest.raises(InvalidInputError, match="a key"):
                call()

    def test_what_is_too_large_is_not_kept(self, tier):
        assert tier.put_many({b"huge": bytes((64 << 20) + 1), b"small": b"1"}) == [b"small"]

    @pytest.mark.parametrize("nbytes", [40, 1500, 8416, 30_000])
    def test_capacity_is_never_exceeded_and_nearly_used(self, open_tier, nbytes):
        tier = open_tier(1 << 20)
        items = some_items((2 << 20) // nbytes, nbytes)
        stored = tier.put_many(items)
        kept = set(stored)
        assert stored == [key for key in items if key in kept]
        assert (1 << 20) * 0.8 < tier.used_bytes() <= 1 << 20
        assert 0 < len(stored) < len(items)
        found = dict(zip(items, tier.get_many(list(items)), strict=True))
        assert [key for key in items if found[key] is not None] == stored
        assert all(found[key] == items[key] for key in stored)
        # What is full takes other values once there is room again.
        tier.delete_many(stored)
        fresh = some_items(3, nbytes, b"fresh")
        assert tier.put_many(fresh) == list(fresh)
        tier.close()

    @pytest.mark.parametrize("nbytes", [200, 8416])
    def test_a_price_is_what_a_value_takes(self, tier, nbytes):
        price = tier.price_bytes(6, nbytes)
        before = tier.used_bytes()
        tier.put_many(some_items(1000, nbytes))
        assert 0.5 * price * 1000 < tier.used_bytes() - before <= 1.02 * price * 1000

    def test_the_copy_of_a_pickle_is_the_same_tier(self, tier):
        tier.put_many({b"a": b"1"})
        copy = pickle.loads(pickle.dumps(tier))
        assert copy.get_many([b"a"]) == [b"1"]
        assert (copy.address, copy.capacity_bytes, repr(copy)) == (tier.address, tier.capacity_bytes, repr(tier))
        copy.close()

    def test_closed_it_opens_again(self, tier):
        tier.put_many({b"a": b"1"})
        tier.close()
        tier.close()
        assert tier.get_many([b"a"]) == [b"1"]

    def test_many_threads(self, tier):
        items, failures = some_items(400, 3000), []

        def work(n):
            try:
                mine = dict(list(items.items())[n::4])
                assert tier.put_many(mine) == list(mine)
                for _ in range(20):
                    assert tier.get_many(list(mine)) == list(mine.values())
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert tier.get_many(list(items)) == list(items.values())

    def test_in_forked_children_while_the_parent_goes_on(self, tier):
        items = some_items(50, 5000)
        tier.put_many(items)

        def child():
            assert tier.get_many(list(items)) == list(items.values())
            assert tier.put_many({b"by the child": b"1"}) == [b"by the child"]
            return in_child(lambda: tier.get_many([b"by the child"]))

        assert in_child(child) == [b"1"]
        assert in_child(child) == [b"1"]
        assert tier.get_many([*items, b"by the child"]) == [*items.values(), b"1"]
        assert tier.put_many({b"by the parent": b"2"}) == [b"by the parent"]
        assert in_child(lambda: tier.get_many([b"by the parent"])) == [b"2"]

    def test_writers_in_several_processes_stay_below_the_capacity(self, open_tier):
        from support.forking import Child

        def fill(n):
            return len(open_tier(2 << 20).put_many(some_items(300, 6000, b"%d-" % n)))

        children = [Child(lambda n=n: fill(n)) for n in range(4)]
        stored = sum(child.result(60) for child in children)
        tier = open_tier(2 << 20)
        assert tier.used_bytes() <= 2 << 20
        assert len(list(tier.keys())) == stored > 100
        tier.close()
