# SPDX-License-Identifier: BSD-3-Clause
import gc
import mmap
import threading
import traceback
import weakref
from typing import Any, Callable, Sequence

import pytest

import pinfold
from doubles import RecordingRegistrar
from pinfold import Access, Cache, Code, Error, Monitor, NativeKind, OpenRequest, Options

MANUAL = Options(monitor=Monitor.MANUAL)


def test_registrar_gets_the_request() -> None:
    class Exact(RecordingRegistrar):
        granularity = 1
        max_bytes = 5000
        access = Access.LOCAL_READ | Access.REMOTE_READ

    registrar = Exact()
    with Cache(registrar, MANUAL) as cache:
        memory = bytearray(100)
        argument = object()
        cache.acquire(memory, Access.REMOTE_READ, argument=argument).release()
        (request,) = registrar.opened
        assert (request.address, request.nbytes) == pinfold.range_of(memory)
        assert request.access == Access.REMOTE_READ and request.argument is argument
        for code, size, access in (
            (Code.TOO_LARGE, 6000, Access.LOCAL_READ),
            (Code.UNSUPPORTED, 10, Access.LOCAL_WRITE),
        ):
            with pytest.raises(Error) as caught:
                cache.acquire(bytearray(size), access)
            assert caught.value.code is code


def test_exception_of_open_reaches_the_caller(cache: Cache, registrar: RecordingRegistrar) -> None:
    registrar.refuse = ValueError("the whole story")
    with pytest.raises(Error, match="recording: open raised ValueError") as caught:
        cache.acquire(bytearray(10))
    assert caught.value.code is Code.DRIVER_ERROR
    assert caught.value.__cause__ is registrar.refuse
    assert "the whole story" in "".join(traceback.format_exception(caught.value))
    registrar.refuse = None
    cache.acquire(bytearray(10)).release()


@pytest.mark.parametrize(
    ("raised", "code", "kind", "native"),
    [
        (Error(Code.NOT_PERMITTED, "no right"), Code.NOT_PERMITTED, NativeKind.NONE, 0),
        (Error(Code.DRIVER_ERROR, "", NativeKind.CUDA, 999), Code.DRIVER_ERROR, NativeKind.CUDA, 999),
        (Error(0, "no code"), Code.DRIVER_ERROR, NativeKind.NONE, 0),
        (Error(-999, "unknown code"), Code.DRIVER_ERROR, NativeKind.NONE, 0),
        (OSError(13, "denied"), Code.DRIVER_ERROR, NativeKind.POSIX, 13),
        (MemoryError(), Code.OUT_OF_RESOURCES, NativeKind.NONE, 0),
        (AssertionError("x"), Code.DRIVER_ERROR, NativeKind.NONE, 0),
    ],
    ids=lambda value: repr(value),
)
def test_exception_has_a_code(
    cache: Cache, registrar: RecordingRegistrar, raised: Exception, code: Code, kind: NativeKind, native: int
) -> None:
    registrar.refuse = raised
    with pytest.raises(Error) as caught:
        cache.acquire(bytearray(10))
    assert (caught.value.code, caught.value.native_kind, caught.value.native) == (code, kind, native)
    assert caught.value.__cause__ is raised


def test_interrupt_in_a_callback_interrupts_the_caller(cache: Cache, registrar: RecordingRegistrar) -> None:
    for interrupt in (KeyboardInterrupt(), SystemExit(3)):
        registrar.refuse = interrupt
        with pytest.raises(type(interrupt)) as caught:
            cache.acquire(bytearray(10))
        assert caught.value is interrupt


def test_earlier_exception_is_not_blamed(cache: Cache, registrar: RecordingRegistrar) -> None:
    cache.acquire(bytearray(10)).release()
    registrar.refuse_close = ValueError("told to no call")
    assert cache.evict(1) == 1
    with pytest.raises(Error) as caught:
        cache.acquire(b"")
    assert caught.value.__cause__ is None
    registrar.refuse_close = None


def test_out_of_resources_makes_the_cache_close_something() -> None:  # R28
    class Two(RecordingRegistrar):
        def open(self, request: OpenRequest) -> object:
            if len(self.live) == 2:
                raise Error(Code.OUT_OF_RESOURCES, "two are enough")
            return super().open(request)

    registrar = Two()
    with Cache(registrar, MANUAL) as cache:
        for memory in [mmap.mmap(-1, 4096) for _ in range(5)]:
            cache.acquire(memory).release()
        assert len(registrar.live) == 2


def test_messages_are_bounded_in_number(run: Callable[..., str], request: Any) -> None:
    program = """
import sys, pinfold
sys.path.insert(0, sys.argv[1])
from doubles import RecordingRegistrar
from pinfold import errors
registrar = RecordingRegistrar()
with pinfold.Cache(registrar) as cache:
    for number in range(1000):
        registrar.refuse = pinfold.Error(pinfold.Code.DRIVER_ERROR, f"message {number} " + "x" * 1000)
        try:
            cache.acquire(bytearray(10))
        except pinfold.Error as error:
            assert error.message == registrar.refuse.message and error.__cause__ is registrar.refuse
print(len(errors._messages) - errors._MOST_MESSAGES)
"""
    assert run(program, str(request.path.parent)) == "0\n"


def test_failed_close_is_retried(cache: Cache, registrar: RecordingRegistrar) -> None:  # R41
    cache.acquire(bytearray(10)).release()
    registrar.refuse_close = ValueError("not now")
    with pytest.raises(Error) as caught:
        cache.flush()
    assert caught.value.__cause__ is registrar.refuse_close
    assert cache.statistics()["quarantined"] == 1 and registrar.live
    registrar.refuse_close = None
    cache.progress()
    assert not registrar.live


def test_registrar_lives_until_it_has_finished() -> None:
    registrar = RecordingRegistrar()
    dead, finished = weakref.ref(registrar), registrar.has_finished
    cache = Cache(registrar, MANUAL)
    cache.acquire(bytearray(10)).release()
    del registrar
    gc.collect()
    assert dead() is not None and not finished.is_set()
    cache.close()
    gc.collect()
    assert finished.is_set() and dead() is None


def test_refused_registrar_is_let_go() -> None:
    class Wrong(RecordingRegistrar):
        granularity = 3

    registrar = Wrong()
    dead = weakref.ref(registrar)
    with pytest.raises(Error) as caught:
        Cache(registrar, Options(sink=print))
    assert caught.value.code is Code.INVALID_ARGUMENT and not registrar.has_finished.is_set()
    del registrar, caught
    gc.collect()
    assert dead() is None


def test_cache_refuses_waits_from_a_callback() -> None:
    codes: list[Code] = []

    class Curious(RecordingRegistrar):
        def open(self, request: OpenRequest) -> object:
            calls: list[Callable[[], object]] = [cache.flush, cache.close, lambda: cache.acquire(bytearray(8192))]
            for call in calls:
                try:
                    call()
                except Error as refused:
                    codes.append(refused.code)
            cache.statistics()
            cache.invalidate(1 << 30, 4096)
            held.pop().release()
            return super().open(request)

    registrar = Curious()
    held: list[Any] = []
    with Cache(registrar, MANUAL) as cache:
        with Cache(RecordingRegistrar(), MANUAL) as other:
            held.append(other.acquire(bytearray(10)))
            cache.acquire(mmap.mmap(-1, 4096)).release()
    assert codes == 3 * [Code.IN_USE_CONFLICT]


def test_close_in_a_callback_on_a_thread_of_the_library() -> None:
    """It must not wait for the call that waits for this thread."""
    main = threading.get_ident()
    refused: dict[str, Code] = {}
    helped = threading.Event()
    closing = threading.Lock()
    ended = False

    def close(where: str) -> None:
        if threading.get_ident() == main:
            return
        with closing:
            if ended:  # a worker may report its last event as the cache ends
                return
            with pytest.raises(Error) as caught:
                cache.close()
        refused[where] = caught.value.code
        if refused.keys() >= {"registrar", "sink"}:
            helped.set()

    class Closing(RecordingRegistrar):
        def open(self, request: pinfold.OpenRequest) -> object:
            close("registrar")
            if threading.get_ident() == main and len(self.opened) >= 64:
                helped.wait(60)
            return super().open(request)

    def progress(done: int, total: int) -> None:
        close("progress")

    options = Options(monitor=Monitor.MANUAL, max_count=64, sink=lambda event: close("sink"))
    with Cache(Closing(), options) as cache:
        for _ in range(64):
            cache.acquire(mmap.mmap(-1, 4096)).release()
        cache.acquire_batch([mmap.mmap(-1, 4096) for _ in range(64)], workers=4).release()
        memory = mmap.mmap(-1, 64 * 4096)
        cache.acquire_large(memory, piece_bytes=4096, workers=4, progress=progress).release()
        assert not cache.closed
        with closing:
            ended = True
    assert refused.keys() >= {"registrar", "sink"} and set(refused.values()) == {Code.IN_USE_CONFLICT}


class Grouping(RecordingRegistrar):
    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []
        self.threads: set[int] = set()

    def open_many(self, requests: Sequence[OpenRequest]) -> Sequence[object]:
        self.groups.append(len(requests))
        self.threads.add(threading.get_ident())
        return [self.one(request) for request in requests]

    def one(self, request: OpenRequest) -> object:
        try:
            return self.open(request)
        except ValueError as refused:
            return refused


def apart(count: int) -> list[mmap.mmap]:
    """Buffers that do not touch."""
    return [mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE) for _ in range(2 * count)][::2]


def test_batch_opens_groups_on_several_threads() -> None:  # R26
    registrar = Grouping()
    with Cache(registrar, MANUAL) as cache:
        memories = [bytearray(200_000) for _ in range(200)]
        argument = object()
        with cache.acquire_batch(memories, workers=4, argument=argument) as batch:
            assert [(one.address, one.nbytes) for one in batch] == [pinfold.range_of(memory) for memory in memories]
            assert len(batch) == 200 and batch[3] is list(batch)[3]
            batch[5].release()
        assert {request.argument for request in registrar.opened} == {argument}
        assert sum(registrar.groups) == len(registrar.opened)
        assert cache.statistics()["leases_now"] == 0


def test_batch_is_all_or_nothing() -> None:  # R26
    registrar = Grouping()
    with Cache(registrar, MANUAL) as cache:
        registrar.refuse = ValueError("refused on a thread of the library")
        for workers in (1, 4):
            with pytest.raises(Error) as caught:
                cache.acquire_batch([bytearray(200_000) for _ in range(50)], workers=workers)
            assert caught.value.__cause__ is registrar.refuse
        assert cache.statistics()["leases_now"] == 0 and not registrar.live
        registrar.refuse = None
        with pytest.raises(BufferError):
            cache.acquire_batch([bytearray(10), 5])
        with pytest.raises(BufferError):
            cache.acquire_batch([bytearray(10), b"10"], Access.LOCAL_WRITE)
        with cache.acquire_batch([bytearray(10), b"10"]):
            assert registrar.opened[-1].access == Access.LOCAL_READ


def test_wrong_answer_of_open_many() -> None:
    class Short(Grouping):
        def open_many(self, requests: Sequence[OpenRequest]) -> Sequence[object]:
            return []

    with Cache(Short(), MANUAL) as cache:
        with pytest.raises(Error, match="open_many raised ValueError") as caught:
            cache.acquire_batch([bytearray(200_000) for _ in range(20)])
        assert "0 results" in str(caught.value.__cause__)


def test_registrar_that_identifies_memory() -> None:
    class Identifying(RecordingRegistrar):
        identity = 1

        def open(self, request: OpenRequest) -> object:
            super().open(request)
            self.live.add(self.identity)
            return self.identity

        def still_is(self, registration: Any, address: int, nbytes: int) -> bool:
            asked.append((registration, address, nbytes))
            if self.refuse:
                raise self.refuse
            return bool(registration == self.identity)

    asked: list[Any] = []
    registrar = Identifying()
    memory = bytearray(100)
    with Cache(registrar) as cache:
        cache.acquire(memory).release()
        cache.acquire(memory).release()
        assert len(registrar.opened) == 1 and asked[-1] == (1, *pinfold.range_of(memory))
        registrar.identity = 2
        with cache.acquire(memory) as lease:
            assert lease.registration == 2
        assert len(registrar.opened) == 2 and registrar.live == {("registration", 2), ("registration", 1), 2}
        registrar.live = {2}


def test_chunks_come_in_order() -> None:  # R25
    class Small(RecordingRegistrar):
        max_bytes = 65536

    registrar = Small()
    memory = bytearray(1_000_000)
    with Cache(registrar, MANUAL) as cache:
        at, end = pinfold.range_of(memory)[0], pinfold.range_of(memory)[0] + len(memory)
        with cache.acquire_chunks(memory, chunk_bytes=65536, depth=3, workers=2, argument="argument") as chunks:
            for lease in chunks:
                with lease:
                    assert lease.address == at
                    at += lease.nbytes
                    with pytest.raises(BufferError):
                        memory.append(1)
            assert list(chunks) == []
        assert at == end
        assert {request.argument for request in registrar.opened} == {"argument"}
        del chunks
        memory.append(1)


def test_stream_of_chunks_ends_early() -> None:
    registrar = RecordingRegistrar()
    with Cache(registrar, MANUAL) as cache:
        chunks = cache.acquire_chunks(bytearray(1_000_000), chunk_bytes=65536)
        first = next(chunks)
        with pytest.raises(Error) as caught:
            cache.close()
        assert caught.value.code is Code.IN_USE_CONFLICT and not cache.closed
        chunks.close()
        chunks.close()
        assert list(chunks) == [] and not first.closed
        first.release()
        del chunks
        cache.acquire_chunks(bytearray(1_000_000))
        gc.collect()  # a stream that is forgotten ends


def test_failure_of_a_chunk_reaches_the_reader(cache: Cache, registrar: RecordingRegistrar) -> None:
    registrar.refuse = ValueError("no chunk")
    with cache.acquire_chunks(bytearray(1_000_000), chunk_bytes=65536) as chunks:
        with pytest.raises(Error) as caught:
            next(chunks)
        assert caught.value.__cause__ is registrar.refuse
        assert list(chunks) == []


def test_stream_of_chunks_that_is_not_complete_raises() -> None:
    class Closed(RecordingRegistrar):
        def open(self, request: OpenRequest) -> object:
            if len(self.opened) == 5:
                raise Error(Code.CLOSED, "the device was closed")
            return super().open(request)

    with Cache(Closed(), MANUAL) as cache, cache.acquire_chunks(bytearray(1 << 20), chunk_bytes=1 << 16) as chunks:
        with pytest.raises(Error, match="the device was closed") as caught:
            for lease in chunks:
                lease.release()
        assert caught.value.code is Code.CLOSED and list(chunks) == []


def test_registrar_has_to_have_open_and_close() -> None:
    class Half(pinfold.Registrar):
        def open(self, request: OpenRequest) -> object:
            return None

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]
