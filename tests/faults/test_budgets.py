"""Budgets: refused before the first request, held to the last retry, shared by all reads of a session."""

import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import array_at, encode, fast, put, sent
from support.profiles import times
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import BudgetError, InvalidInputError, StoreError
from hyperslab.execute import retry
from hyperslab.execute.ledger import Account, Ledger, Meter
from hyperslab.plan import CostModel
from hyperslab.store import memory

DATA = np.arange(1024, dtype="i4").reshape(32, 32)
CHUNKS = (8, 8)
layouts = pytest.mark.parametrize("layout", ["plain", "zstd", "shards", "shards-zstd"])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_S", 0.002)


@layouts
@pytest.mark.parametrize("limit", ["requests", "bytes", "usd", "seconds"])
def test_refused_before_the_first_request(fake_s3, layout, limit):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        estimate = array.explain[...].plan.estimate
        needed = {"requests": estimate.all_requests, "bytes": estimate.all_bytes}.get(
            limit, getattr(estimate, limit, 0)
        )
        short = hs.Budget(**{limit: needed - 1 if isinstance(needed, int) else needed * 0.99})
        with pytest.raises(BudgetError, match=f"{limit}: .* of at most") as caught:
            array.read(budget=short)
        assert caught.value.plan.estimate == estimate
        assert pickle.loads(pickle.dumps(caught.value)).plan.estimate == estimate
        assert not fake_s3.log
        assert session.metrics.reads == session.metrics.requests == 0
        enough = hs.Budget(**{limit: needed if limit != "seconds" else 60})
        assert np.array_equal(array.read(budget=enough), DATA)


@layouts
def test_a_session_refuses_before_the_first_request(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(budget=hs.Budget(requests=3)) as session:
        array = array_at(fake_s3, "a", session)
        with pytest.raises(BudgetError, match="of at most 3"):
            array[...]
        assert not fake_s3.log
        assert session.account.left().requests == 3


def test_held_during_retries(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(retries=50) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("status", status=503, code="SlowDown", key="c/0/0"))
        with pytest.raises(BudgetError, match="retries included") as caught:
            array.read(np.s_[:8, :8], method="get", budget=hs.Budget(requests=4))
        assert caught.value.plan is not None
        assert len(fake_s3.log) == 4


@pytest.mark.parametrize("concurrency", [1, 64])
@pytest.mark.parametrize("limit", ["requests", "usd"])
def test_an_exact_budget_does_not_hold_a_retry(fake_s3, concurrency, limit):
    """Also when everything else is in flight: what it will bring is counted already."""
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(concurrency=concurrency) as session:
        array = array_at(fake_s3, "a", session)
        estimate = array.explain(method="get").plan.estimate
        exact = hs.Budget(requests=16) if limit == "requests" else hs.Budget(usd=estimate.usd)
        assert np.array_equal(array.read(method="get", budget=exact), DATA)
        fake_s3.rules.append(Rule("status", status=503, code="SlowDown", times=1))
        before = session.metrics.snapshot()
        with pytest.raises(BudgetError):
            array.read(method="get", budget=exact)
        assert session.metrics.requests - before.requests <= 16
        assert session.metrics.usd - before.usd <= estimate.usd


def test_a_session_spends_its_budget_over_many_reads(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(budget=hs.Budget(requests=20)) as session:
        array = array_at(fake_s3, "a", session)
        for left in range(20, 0, -1):
            assert session.account.left().requests == left
            assert array[0, 0] == 0
        with pytest.raises(BudgetError):
            array[0, 0]
        assert sent(fake_s3)[0] == 20


def test_dollars_can_be_spent_to_the_last(fake_s3):
    """Sums of tiny dollars do not refuse the last read for a rounding error."""
    put(fake_s3, "a", DATA, CHUNKS)
    with fast() as session:
        usd = array_at(fake_s3, "a", session).explain[0, 0].plan.estimate.usd
    with fast(budget=hs.Budget(usd=50 * usd)) as session:
        array = array_at(fake_s3, "a", session)
        for _ in range(50):
            array[0, 0]
        with pytest.raises(BudgetError, match="usd"):
            array[0, 0]


@pytest.mark.parametrize("layout", ["zstd", "shards-zstd"])
def test_what_was_not_used_is_given_back(fake_s3, layout):
    put(fake_s3, "a", np.zeros_like(DATA), CHUNKS, layout)
    with fast(budget=hs.Budget(bytes=100_000)) as session:
        array = array_at(fake_s3, "a", session)
        bound = array.explain[...].plan.estimate.all_bytes
        array[...]
        _, nbytes = sent(fake_s3)
        assert nbytes < bound
        assert session.account.left().bytes == 100_000 - nbytes


def test_a_read_that_fails_gives_back_what_it_did_not_use(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(budget=hs.Budget(requests=100), retries=0, concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("status", status=500, skip=2, times=1))
        with pytest.raises(StoreError):
            array.read(method="get")
        assert session.account.left().requests == 100 - 3
        assert len(fake_s3.log) == 3


def test_both_budgets_hold(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(budget=hs.Budget(requests=30)) as session:
        array = array_at(fake_s3, "a", session)
        with pytest.raises(BudgetError, match="at most 2"):
            array.read(method="get", budget=hs.Budget(requests=2))
        assert session.account.left().requests == 30
        array.read(method="get", budget=hs.Budget(requests=16))
        with pytest.raises(BudgetError, match="at most 30"):
            array.read(method="get", budget=hs.Budget(requests=16))
        assert session.account.left().requests == 14


def test_reads_of_several_stores_share_the_budget_of_their_call(fake_s3, tmp_path):
    put(fake_s3, "a", DATA, CHUNKS)
    for key, value in encode(DATA, CHUNKS).items():
        memory("budgets").put(f"a/{key}", value)
    np.save(tmp_path / "a.npy", DATA)
    with fast() as session:
        arrays = [
            array_at(fake_s3, "a", session),
            hs.open("memory://budgets/a", session=session),
            hs.open(tmp_path / "a.npy", session=session),
        ]
        pairs = [(array, np.s_[:8, :8]) for array in arrays]
        with pytest.raises(BudgetError):
            hs.read_many(pairs, budget=hs.Budget(requests=2))
        assert not fake_s3.log
        assert session.metrics.reads == 0
        for found in hs.read_many(pairs, budget=hs.Budget(requests=3)):
            assert np.array_equal(found, DATA[:8, :8])


@pytest.mark.parametrize("layout", ["plain", "zstd"])
def test_local_reads_have_budgets_too(tmp_path, layout):
    for key, value in encode(DATA, CHUNKS, layout).items():
        path = tmp_path / "a" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    prices = hs.Prices("dear", "today", 0.5, 0.0)
    with fast(budget=hs.Budget(requests=20), prices=prices) as session:
        array = hs.open(tmp_path / "a", session=session)
        with pytest.raises(BudgetError, match="requests"):
            array.read(budget=hs.Budget(requests=15))
        with pytest.raises(BudgetError, match="usd"):
            array.read(budget=hs.Budget(usd=7.9))
        before = session.metrics.usd
        assert np.array_equal(array.read(budget=hs.Budget(usd=8.0)), DATA)
        assert session.metrics.usd - before == pytest.approx(8.0)
        assert session.account.left().requests == 4
        with pytest.raises(BudgetError):
            array[...]


def test_metered_but_not_budgeted(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(budget=hs.Budget(requests=0)) as session:
        array = array_at(fake_s3, "a", session)
        assert session.metrics.lookups == 1
        with pytest.raises(BudgetError):
            array[0, 0]


@pytest.mark.parametrize("limits", [{"requests": -1}, {"bytes": -5}, {"usd": float("nan")}, {"seconds": -0.1}])
def test_budgets_that_cannot_be(limits):
    with pytest.raises(InvalidInputError, match="0 or more"):
        hs.Budget(**limits)


# No overspending, whatever happens at once


@pytest.mark.parametrize("layout", ["plain", "shards-zstd"])
def test_threads_do_not_overspend(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    for limit in (10, 57):
        fake_s3.clear()
        with fast(budget=hs.Budget(requests=limit), retries=8) as session:
            array = array_at(fake_s3, "a", session)
            fake_s3.rules.append(Rule("status", status=503, code="SlowDown", skip=5, times=20))
            done = []

            def read(array=array, done=done):
                for _ in range(20):
                    try:
                        assert np.array_equal(array[4:12, 4:12], DATA[4:12, 4:12])
                        done.append(1)
                    except BudgetError:
                        pass

            threads = [threading.Thread(target=read) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            requests, _ = sent(fake_s3)
            counted = session.metrics.requests + session.metrics.lookups - 1  # one was to open
            # A request that is cancelled just when it is sent counts, whether it got there or not.
            assert requests <= counted <= limit
            assert session.account.left().requests == limit - counted
            if limit > 40:
                assert done


@settings(max_examples=times(60))
@given(
    st.integers(0, 50),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=40),
)
def test_an_account_never_gives_more_than_there_is(limit, steps):
    account, taken = Account(hs.Budget(requests=limit, bytes=100 * limit, usd=limit / 10)), []
    for amount, used, give in steps:
        if give and taken:
            held = taken.pop()
            unused = held - min(used, held)
            account.give_back(unused, 100 * unused, unused / 10)
            taken.append(held - unused)
        else:
            over = account.take(amount, 100 * amount, amount / 10)
            if over is None:
                taken.append(amount)
            else:
                assert sum(taken) + amount > limit
        assert sum(taken) <= limit
        left = account.left()
        assert left.requests == limit - sum(taken)
        assert left.bytes == 100 * left.requests
        assert left.usd == pytest.approx(left.requests / 10, abs=1e-9)


def test_what_is_under_way_is_counted():
    """An answer that has not come yet will have to be paid for, too."""
    model = CostModel(hs.Profile.named("s3"), hs.Prices.named("aws"))
    meter = Meter(Ledger(), model, (Account(hs.Budget(bytes=100)),))
    meter.before(60)
    with pytest.raises(BudgetError, match="bytes: 120 of at most 100"):
        meter.before(60)
    meter.after(0, 60)  # it failed
    meter.before(60)
    meter.after(70, 60)  # it was larger than thought
    with pytest.raises(BudgetError):
        meter.before(31)
    meter.before(30)
    meter.after(30, 30)
    meter.settle()
    meter.settle()
    assert meter.accounts[0].left().bytes == 0
    assert meter.ledger.requests == 3


def test_an_account_holds_under_threads():
    account, most = Account(hs.Budget(requests=100)), []
    held = [0] * 8

    def spend(number):
        rng = np.random.default_rng(number)
        for _ in range(300):
            amount = int(rng.integers(1, 30))
            if account.take(amount, 0, 0.0) is None:
                held[number] = amount
                most.append(sum(held))
                held[number] = 0
                account.give_back(amount, 0, 0.0)

    threads = [threading.Thread(target=spend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 100
    assert account.left().requests == 100
