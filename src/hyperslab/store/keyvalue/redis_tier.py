"""A tier on a server that speaks the Redis protocol: Redis or Valkey.

Values are asked for by MGET, many at once. A key of the tier's own counts what all values take, by the server's own
MEMORY USAGE. It is changed in one transaction with them, so that several writers together stay below the capacity, and
it is lost together with them; if it alone is lost, it is counted anew.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from hyperslab.errors import AccessError, InvalidInputError, StoreError
from hyperslab.store.keyvalue.base import batches, check_capacity, check_items, check_keys
from hyperslab.store.keyvalue.limits import Limits, limited
from hyperslab.store.keyvalue.redis_settings import RedisSettings, read_settings

__all__ = ["RedisTier"]

T = TypeVar("T")

_MISSING = "a tier on Redis or Valkey needs redis; install it with: pip install 'hyperslab[collections]'"
_KEYS_AT_ONCE = 512
# Several MiB are stored at once, and no reader waits for that.
_WRITE_S = 30.0
# Another writer was faster: so often it is tried again.
_ATTEMPTS = 64
_NONE = type(None)
_Pairs = list[tuple[bytes, bytes]]


class RedisTier:
    """Values on a server, under keys that start with the tier's namespace; see `KeyValue`.

    namespace      what tells the keys of this tier from others on the server
    password       not shown anywhere; pickled if it was given, else each process takes it from REDISCLI_AUTH
    ca_file        certificates to trust with TLS, if those of the machine are not meant
    timeout_s      how long values are waited for
    keys_at_once   how many of them one MGET asks for
    """

    def __init__(
        self,
        url: str,
        *,
        capacity_bytes: int,
        namespace: str = "default",
        username: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 1.0,
        keys_at_once: int = _KEYS_AT_ONCE,
    ) -> None:
        self._settings = read_settings(url, namespace=namespace, username=username, password=password, ca_file=ca_file)
        self._capacity_bytes = check_capacity(capacity_bytes)
        if not timeout_s > 0 or keys_at_once < 1:
            raise InvalidInputError("timeout_s is more than 0, and keys_at_once 1 or more")
        self._timeout_s, self._keys_at_once = float(timeout_s), keys_at_once
        self._start()

    def _start(self) -> None:
        self._prefix = f"hs:{self._settings.namespace}:k:".encode()
        self._counter = f"hs:{self._settings.namespace}:used".encode()
        # What values took so far, by the lengths of key and value.
        self._seen: dict[tuple[int, int], int] = {}
        self._client: Any = None
        self._lock, self._pid, self._limits = threading.Lock(), os.getpid(), Limits()

    @property
    def address(self) -> str:
        return self._settings.address

    @property
    def capacity_bytes(self) -> int:
        return self._capacity_bytes

    def get_many(
        self, keys: Sequence[bytes], *, timeout_s: float | None = None, limit_bytes: int | None = None
    ) -> list[bytes | None]:
        prefix, step = self._prefix, self._keys_at_once
        full = [prefix + key for key in check_keys(keys)]
        wait_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)

        def ask(client: Any) -> list[bytes | None]:
            values: list[bytes | None] = []
            for n in range(0, len(full), step):
                values += self._values(client.mget(full[n : n + step]), len(full[n : n + step]))
            return values

        return self._run(ask, wait_s, limit_bytes) if full else []

    def put_many(self, items: Mapping[bytes, bytes], *, timeout_s: float | None = None) -> list[bytes]:
        left, stored = check_items(items), set[bytes]()
        wait_s = _WRITE_S if timeout_s is None else min(timeout_s, _WRITE_S)
        # What is said of a size before one is stored is too much: what had no room by that may have it by the next.
        while left:
            asked = [self._price(len(key), len(value)) for key, value in left]
            for batch in batches(left):
                stored.update(self._run(partial(self._put, batch), wait_s))
            left = [
                (key, value)
                for (key, value), price in zip(left, asked, strict=True)
                if key not in stored and self._price(len(key), len(value)) < price
            ]
        return [key for key in items if key in stored]

    def delete_many(self, keys: Iterable[bytes]) -> None:
        full = [self._prefix + key for key in check_keys(keys)]
        for n in range(0, len(full), _KEYS_AT_ONCE):
            self._run(partial(self._delete, full[n : n + _KEYS_AT_ONCE]))

    def keys(self) -> Iterator[bytes]:
        cursor, start = 0, len(self._prefix)
        while True:
            cursor, found = self._run(partial(self._scan, cursor))
            yield from [key[start:] for key in found]
            if not cursor:
                return

    def used_bytes(self) -> int:
        used: Any = self._run(lambda client: client.get(self._counter))
        return self.recount() if used is None else self._number(used)

    def recount(self) -> int:
        """Ask the server anew what the values take, for instance after it has evicted some; return that."""
        return self._run(self._recount)

    def price_bytes(self, key_nbytes: int, value_nbytes: int) -> int:
        """Return what the server counts for such a value. One is stored to see that, if there is room."""
        seen = self._seen.get((key_nbytes, value_nbytes))
        if seen is not None:
            return seen
        probe = {os.urandom(key_nbytes): bytes(value_nbytes)}
        self.put_many(probe)
        self.delete_many(probe)
        return self._price(key_nbytes, value_nbytes)

    def close(self) -> None:
        with self._guarded():
            client, self._client = self._client, None
        if client is not None:
            client.connection_pool.disconnect()

    def __repr__(self) -> str:
        return f"RedisTier({self.address!r}, capacity_bytes={self._capacity_bytes})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_settings", "_capacity_bytes", "_timeout_s", "_keys_at_once")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def _put(self, pairs: _Pairs, client: Any) -> list[bytes]:
        """Store those of the pairs that there is room for, and return their keys."""
        full = [self._prefix + key for key, _ in pairs]
        stored, correction = self._transaction(client, full, partial(self._store, pairs))
        # Were this lost, too much would be counted, not too little.
        client.incrby(self._counter, correction)
        return stored

    def _store(self, pairs: _Pairs, pipe: Any, used: int, before: list[int]) -> tuple[list[bytes], int]:
        """Store the pairs that fit, by what they take at most; return their keys, and what to add to the count."""
        chosen: _Pairs = []
        reserved = 0
        for (key, value), old in zip(pairs, before, strict=True):
            more = self._price(len(key), len(value)) - old
            if used + reserved + more <= self._capacity_bytes:
                chosen.append((key, value))
                reserved += more
        if not chosen:
            return [], 0
        kept = {key for key, _ in chosen}
        replaced = sum([old for (key, _), old in zip(pairs, before, strict=True) if key in kept])
        for key, value in chosen:
            pipe.set(self._prefix + key, value)
        pipe.incrby(self._counter, reserved)
        for key, _ in chosen:
            pipe.memory_usage(self._prefix + key)
        took = [self._number(each) for each in pipe.execute()[len(chosen) + 1 :]]
        for (key, value), nbytes in zip(chosen, took, strict=True):
            lengths = len(key), len(value)
            self._seen[lengths] = max(nbytes, self._seen.get(lengths, 0))
        return [key for key, _ in chosen], sum(took) - replaced - reserved

    def _delete(self, full: list[bytes], client: Any) -> None:
        def drop(pipe: Any, _used: int, before: list[int]) -> None:
            pipe.unlink(*full)
            pipe.decrby(self._counter, sum(before))
            pipe.execute()

        self._transaction(client, full, drop)

    def _transaction(self, client: Any, full: list[bytes], change: Callable[[Any, int, list[int]], T]) -> T:
        """Call `change` with a transaction, what is used, and what each of the keys takes; until nobody interferes."""
        from redis.exceptions import WatchError

        for _ in range(_ATTEMPTS):
            with client.pipeline(transaction=True) as pipe:
                try:
                    pipe.watch(self._counter)
                    used = pipe.get(self._counter)
                    if used is None:
                        pipe.reset()
                        self._recount(client)
                        continue
                    before = self._usage(client, full)
                    pipe.multi()
                    return change(pipe, self._number(used), before)
                except WatchError:
                    continue
        raise StoreError(f"{self.address}: other writers change the tier all the time; try again later")

    def _scan(self, cursor: int, client: Any) -> tuple[int, list[bytes]]:
        answer: tuple[int, list[bytes]] = client.scan(cursor, match=self._prefix + b"*", count=_KEYS_AT_ONCE)
        return answer

    def _usage(self, client: Any, full: Sequence[bytes]) -> list[int]:
        """Return what each key takes, 0 if it is not there."""
        if not full or not client.exists(*full):
            return [0] * len(full)
        with client.pipeline(transaction=False) as pipe:
            for key in full:
                pipe.memory_usage(key)
            return [self._number(each or 0) for each in pipe.execute()]

    def _recount(self, client: Any) -> int:
        """Count what all values take, and keep that unless somebody changed them meanwhile."""
        from redis.exceptions import WatchError

        for _ in range(_ATTEMPTS):
            with client.pipeline(transaction=True) as pipe:
                pipe.watch(self._counter)
                used = cursor = 0
                while True:
                    cursor, found = self._scan(cursor, client)
                    # A key may be seen twice while the server's table grows; at most too much is counted.
                    used += sum(self._usage(client, found))
                    if not cursor:
                        break
                pipe.multi()
                pipe.set(self._counter, used)
                try:
                    pipe.execute()
                except WatchError:
                    continue
                return used
        raise StoreError(f"{self.address}: other writers change the tier all the time; try again later")

    def _price(self, key_nbytes: int, value_nbytes: int) -> int:
        """Return what values of that size took, or else more than any server's allocator takes for one."""
        seen = self._seen.get((key_nbytes, value_nbytes))
        return 512 + (key_nbytes + len(self._prefix) + value_nbytes) * 5 // 4 if seen is None else seen

    def _values(self, answer: Any, count: int) -> list[bytes | None]:
        """Return an answer if it is one: so many values."""
        if type(answer) is not list or len(answer) != count or not {type(each) for each in answer} <= {bytes, _NONE}:
            raise StoreError(f"{self.address} does not answer as Redis does; is it another server?")
        return answer

    def _number(self, value: Any) -> int:
        try:
            return int(value)
        except (TypeError, ValueError):
            raise StoreError(
                f"{self.address}: something else than a tier writes to the keys of {self._settings.namespace!r}; "
                "choose another namespace, or delete them"
            ) from None

    def _run(self, ask: Callable[[Any], T], timeout_s: float = _WRITE_S, limit_bytes: int | None = None) -> T:
        """Return what `ask` gets from the server, in time; redis-py's errors become ours."""
        client = self._connected()
        import redis

        self._limits.start(timeout_s, limit_bytes)
        try:
            return ask(client)
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
            raise AccessError(f"{self.address} refuses the login: {error}; give username and password") from None
        except StoreError:
            raise
        except (redis.RedisError, OSError, ValueError, OverflowError, RecursionError) as error:
            # What is not of the protocol makes redis-py stumble.
            failure = StoreError(f"{self.address}: {str(error) or type(error).__name__}")
            failure.transient = isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError)
            raise failure from None
        finally:
            self._limits.stop()

    def _guarded(self) -> threading.Lock:
        """Return the lock; in a forked child a new one, and nothing of the parent's connections."""
        if self._pid != os.getpid():
            # Dropped, not closed: the parent goes on with them.
            self._client, self._lock, self._pid = None, threading.Lock(), os.getpid()
        return self._lock

    def _connected(self) -> Any:
        with self._guarded():
            if self._client is None:
                self._client = _client(self._settings, self._limits)
            return self._client


def _client(settings: RedisSettings, limits: Limits) -> Any:
    """Return redis-py's client. It connects when it is first used, and anew when a connection is lost."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise InvalidInputError(_MISSING) from None
    username, password = settings.login
    tls: dict[str, Any] = {"ssl_cert_reqs": "required", "ssl_ca_certs": settings.ca_file} if settings.tls else {}
    pool = redis.ConnectionPool(
        connection_class=limited(redis.SSLConnection if settings.tls else redis.Connection, limits),
        host=settings.host,
        port=settings.port,
        db=settings.database,
        username=username,
        password=password,
        protocol=2,
        socket_timeout=_WRITE_S,
        # The server may have closed a connection that was idle: once more, by a new one.
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        **tls,
    )
    return redis.Redis(connection_pool=pool)
