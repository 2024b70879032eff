"""One request to a function, whichever provider it came through: checked, read beside the data, answered.

Nothing here raises, and no answer is a 500: whatever goes wrong has a status of its own.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from hyperslab.errors import AccessError, ChunkSizeError, HyperslabError, NotFoundError, StoreError, StoreNotFoundError
from hyperslab.functions.answer import Answer, RefusedError, refusal_of, refuse, reply_answer, where
from hyperslab.functions.config import FunctionConfig, Root
from hyperslab.functions.core import Work, cells_of, work_of
from hyperslab.functions.guard import Memory, Nonces, Share
from hyperslab.functions.joined import Read, reads_of
from hyperslab.store import Reply, Store
from hyperslab.store.call import CallChunk, CallReply, CallRequest, ChunkAnswer
from hyperslab.store.checked import over
from hyperslab.store.signing import verify

__all__ = ["Service", "handle"]

T = TypeVar("T")

_log = logging.getLogger("hyperslab.function")

_MOST_NONCES = 200_000
_PAUSES_S = (0.05, 0.25, 1.0)
# What takes less memory is decoded at once: handing it to a thread would take longer.
_INLINE_BYTES = 256 << 10


class Service:
    """A function that is ready to answer: its settings, its stores, and what is under way. For one event loop.

    `answer` is for programs without a loop; it may be called from any thread.
    """

    def __init__(self, config: FunctionConfig, *, clock: Callable[[], float] = time.time) -> None:
        self.config = config
        self.clock = clock
        self.nonces = Nonces(_MOST_NONCES)
        self.memory = Memory(config.work_bytes)
        self.gets = asyncio.Semaphore(config.gets_at_once)
        self.share = Share(config.held_bytes, config.requests_at_once)
        self.threads = ThreadPoolExecutor(os.cpu_count() or 2, thread_name_prefix="hyperslab-function")
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def answer(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Return the answer to one request, whole: closing it is not needed."""
        future = asyncio.run_coroutine_threadsafe(handle(self, headers, body), self._running_loop())
        answer = future.result()
        whole = Answer(answer.status, answer.headers, [answer.body])
        self._running_loop().call_soon_threadsafe(answer.close)
        return whole

    def close(self) -> None:
        """Stop the threads; what is under way ends first."""
        with self._guard:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None
        self.threads.shutdown(wait=True, cancel_futures=True)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that runs in a thread of its own, started at the first request."""
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="hyperslab-function", daemon=True).start()
            return self._loop


async def handle(service: Service, headers: Mapping[str, str], body: bytes) -> Answer:
    """Return the answer to one request. The names of its headers may be in any case.

    Close the answer when it has been sent.
    """
    started = time.perf_counter()
    call = _Call(service)
    try:
        service.share.enter()
        call.entered = True
        async with asyncio.timeout(service.config.timeout_s):
            answer = await call.answered({name.lower(): value for name, value in headers.items()}, body, started)
    except asyncio.CancelledError:
        call.leave()
        raise
    except Exception as error:  # noqa: BLE001  (whatever it is, a caller gets an answer)
        answer = refuse(refusal_of(error))
        _note(error, answer)
    answer.on_close = call.leave
    _log.info("%d %s %.4f s", answer.status, call.told, time.perf_counter() - started)
    return answer


@dataclass(slots=True)
class _Call:
    """One request on its way through the service."""

    service: Service
    entered: bool = False
    held_bytes: int = 0
    gets: int = 0
    read_bytes: int = 0
    told: str = "-"
    # Nobody wants its cells any more.
    given_up: bool = False

    def leave(self) -> None:
        """Give back what the request held."""
        if self.entered:
            self.entered = False
            self.service.share.leave()
            self.service.share.give(self.held_bytes)

    def hold(self, nbytes: int) -> None:
        self.service.share.take(nbytes)
        self.held_bytes += nbytes

    async def answered(self, headers: Mapping[str, str], body: bytes, started: float) -> Answer:
        config = self.service.config
        if len(body) > config.limits.body_bytes:
            raise over("the request's bytes", len(body), config.limits.body_bytes)
        self.check_caller(headers, body)
        request = CallRequest.unpack(body, config.limits)
        store = self.check_place(request)
        works = work_of(request, config.limits)
        for work in works:
            if work.memory_bytes > config.work_bytes:
                raise over("memory for one chunk", work.memory_bytes, config.work_bytes)
        result_bytes = sum([work.result_bytes for work in works])
        # More than once: they are put together before they are sent, and may be compressed then.
        held_bytes = (3 if request.compress else 2) * result_bytes
        if held_bytes > config.held_bytes:
            raise over("memory for the cells asked for", held_bytes, config.held_bytes)
        self.hold(held_bytes)
        answers = await self.read_all(store, request, works)
        self.told = f"{len(answers)} chunks, {self.gets} gets, {self.read_bytes} bytes read, {result_bytes} sent"
        reply = CallReply(answers, time.perf_counter() - started, self.gets, self.read_bytes)
        if result_bytes < _INLINE_BYTES:
            return reply_answer(reply, request)
        return await self.in_thread(lambda: reply_answer(reply, request))

    def check_caller(self, headers: Mapping[str, str], body: bytes) -> None:
        """Refuse whoever does not have a key, before anything of the request is looked at."""
        service = self.service
        if not service.config.keys:
            return
        now = service.clock()
        try:
            key_id, nonce, expires = verify(service.config.keys, headers, body, now=now)
        except AccessError as error:
            raise RefusedError(401, "not-signed", str(error)) from None
        service.nonces.use(key_id, nonce, expires=expires, now=now)

    def check_place(self, request: CallRequest) -> Store:
        """Return the store of a request all of whose keys may be read."""
        roots = self.service.config.roots_of(request.store)
        if not roots or not all([_held(roots, chunk.key) for chunk in request.chunks]):
            raise RefusedError(403, "not-allowed", "the function does not read from there; add it to its roots")
        return roots[0].store

    async def read_all(self, store: Store, request: CallRequest, works: list[Work]) -> list[ChunkAnswer]:
        """Return the cells of all chunks: near ones are read together, and several reads go on at once."""
        config = self.service.config
        answers: list[ChunkAnswer | None] = [None] * len(works)
        reads = reads_of(request, works, config.limits, config.work_bytes)
        left = iter(reads)

        async def some() -> None:
            for read in left:
                async with self.service.memory.taken(read.memory_bytes):
                    found = await self.read_chunks(store, request, works, read)
                for number, answer in zip(read.numbers, found, strict=True):
                    answers[number] = answer

        if len(reads) == 1:
            await some()
        else:
            await _all([some for _ in range(min(config.chunks_at_once, len(reads)))])
        return [answer for answer in answers if answer is not None]

    async def read_chunks(self, store: Store, request: CallRequest, works: list[Work], read: Read) -> list[ChunkAnswer]:
        """Return the cells of the chunks that one GET brings, in its order."""
        chunks = [request.chunks[number] for number in read.numbers]
        try:
            reply = await self.fetch(store, chunks[0], read.span, read.read_bytes)
        except StoreNotFoundError:
            raise
        except NotFoundError:
            return [ChunkAnswer(None) for _ in chunks]
        for chunk in chunks:
            layout = request.layouts[chunk.layout]
            if not layout.codecs and chunk.start is None and reply.object_nbytes != layout.nbytes:
                raise ChunkSizeError(chunk.key, reply.object_nbytes, layout.nbytes)
        if sum([works[number].memory_bytes for number in read.numbers]) < _INLINE_BYTES:
            cells = self.cells_in(request, works, read, reply.data)
        else:
            cells = await self.in_thread(lambda: self.cells_in(request, works, read, reply.data))
        return [ChunkAnswer(data, reply.etag, reply.object_nbytes) for data in cells]

    def cells_in(self, request: CallRequest, works: list[Work], read: Read, data: memoryview) -> list[memoryview]:
        """Return the cells of each chunk of a read, from the bytes read; no more of them once the call is given up."""
        found = list[memoryview]()
        for number in read.numbers:
            if self.given_up:
                break
            chunk, work = request.chunks[number], works[number]
            part = read.part(data, chunk, work)
            found.append(cells_of(request.layouts[chunk.layout], chunk, part, work.low, len(data)))
        return found

    async def fetch(self, store: Store, chunk: CallChunk, span: tuple[int, int] | None, limit_bytes: int) -> Reply:
        """Return bytes of a chunk's object; failures that may be over a moment later are tried again."""
        config = self.service.config
        pauses = iter(_PAUSES_S[: config.retries])
        # So that one that hangs can be sent again.
        timeout_s = config.timeout_s / 2
        while True:
            self.gets += 1
            try:
                async with self.service.gets:
                    reply = await store.aget(
                        chunk.key, span, if_match=chunk.etag, timeout_s=timeout_s, limit_bytes=limit_bytes
                    )
            except StoreError as error:
                pause_s = next(pauses, None) if error.transient else None
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
            else:
                self.read_bytes += len(reply.data)
                return reply

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what `work` returns. If nobody wants it any more, it still ends before its memory is given back."""
        future = self.service.threads.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.given_up = True
            if not future.cancel():
                await asyncio.wait([asyncio.wrap_future(future)])
            raise


async def _all(tasks: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run all of them; the first error ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _held(roots: list[Root], key: str) -> bool:
    return any([root.holds(key) for root in roots])


def _note(error: Exception, answer: Answer) -> None:
    """Put into the log what an operator must look at: what we did not foresee, and stores that fail."""
    if not isinstance(error, HyperslabError | TimeoutError):
        _log.error("%d %s at %s", answer.status, type(error).__name__, where(error))
    elif answer.status == 502:
        _log.warning("%d %s", answer.status, error)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_end_all())
    finally:
        loop.close()


async def _end_all() -> None:
    """Cancel what still runs in this loop, and wait for its end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
