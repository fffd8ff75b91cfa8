# SPDX-License-Identifier: BSD-3-Clause
import array
import ctypes
import gc
import mmap
import pathlib
import threading
import time
import weakref
from typing import Any, Callable

import numpy
import pytest

import pinfold
from doubles import RecordingImporter, RecordingRegistrar
from pinfold import Access, Cache, Code, Error, Flag, Full, ImportCache, Merge, Monitor, Options
from pinfold._library import lib


def refused(code: Code, call: Callable[..., object], *given: Any, **named: Any) -> Error:
    with pytest.raises(Error) as caught:
        call(*given, **named)
    assert caught.value.code is code, caught.value
    return caught.value


def test_second_acquire_is_a_hit(cache: Cache, registrar: RecordingRegistrar) -> None:  # R20
    memory = bytearray(8192)
    for _ in range(3):
        with cache.acquire(memory) as lease:
            assert (lease.address, lease.nbytes) == pinfold.range_of(memory)
            assert lease.registration == ("registration", 1)
    assert len(registrar.opened) == 1
    assert cache.statistics()["hits"] == 2


@pytest.mark.parametrize(
    "memory",
    [
        bytearray(100),
        array.array("d", range(10)),
        mmap.mmap(-1, 4096),
        memoryview(bytearray(100)).cast("B", (10, 10)),
        numpy.arange(100.0).reshape(5, 20),
        numpy.zeros(3, [("a", "f4"), ("b", "i8")]),
        ctypes.create_string_buffer(10),
    ],
    ids=lambda memory: type(memory).__name__,
)
def test_memory_is_anything_with_a_contiguous_buffer(
    cache: Cache, registrar: RecordingRegistrar, memory: object
) -> None:
    with cache.acquire(memory) as lease:
        assert lease.nbytes == memoryview(memory).nbytes  # type: ignore[arg-type]
    assert registrar.opened[0].access == Access.LOCAL_READ | Access.LOCAL_WRITE


def test_read_only_memory_is_registered_to_be_read(cache: Cache, registrar: RecordingRegistrar) -> None:
    frozen = numpy.zeros(4)
    frozen.flags.writeable = False
    for memory in (b"bytes", memoryview(bytearray(4)).toreadonly(), frozen):
        cache.acquire(memory, bypass=True).release()
        assert registrar.opened[-1].access == Access.LOCAL_READ
        with pytest.raises(BufferError, match="read-only"):
            cache.acquire(memory, Access.LOCAL_READ | Access.LOCAL_WRITE)


def test_memory_that_is_no_range_is_refused(cache: Cache, registrar: RecordingRegistrar) -> None:
    for memory in (numpy.zeros((8, 8))[:, ::2], numpy.zeros((8, 8)).T, memoryview(bytes(8))[::2]):
        with pytest.raises(BufferError, match="not contiguous"):
            cache.acquire(memory)
    for other in (17, None, "text", [1, 2]):
        with pytest.raises(BufferError, match="no buffer; acquire_at takes an address"):
            cache.acquire(other)
    refused(Code.INVALID_RANGE, cache.acquire, b"")
    refused(Code.INVALID_ARGUMENT, cache.acquire, bytearray(1), 1 << 20)
    assert registrar.opened == []


def test_lease_locks_the_buffer_until_its_release(cache: Cache) -> None:
    memory = bytearray(100)
    with cache.acquire(memory) as lease:
        with pytest.raises(BufferError):
            memory.append(1)
    assert lease.released
    memory.append(1)


def test_address_is_taken_too(cache: Cache) -> None:
    memory = bytearray(8192)
    address, nbytes = pinfold.range_of(memory)
    with cache.acquire_at(address + 100, 50, Access.LOCAL_READ) as lease:
        assert lease.address == address + 100
        base, covered = lease.covered
        assert base <= address + 100 and address + 150 <= base + covered
    refused(Code.INVALID_RANGE, cache.acquire_at, (1 << 64) - 10, 20, Access.LOCAL_READ)


def test_find_never_opens(cache: Cache, registrar: RecordingRegistrar) -> None:  # R48
    memory = bytearray(100)
    assert cache.find(memory) is None
    cache.acquire(memory).release()
    found = cache.find(memory)
    assert found is not None
    found.release()
    assert len(registrar.opened) == 1


def test_memory_that_was_replaced_is_never_a_hit(registrar: RecordingRegistrar) -> None:  # R30
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t, *4 * (ctypes.c_long,))
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    anonymous, fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x10
    with Cache(registrar) as cache:
        address = libc.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_WRITE, anonymous, -1, 0)
        for round in range(20):
            cache.acquire_at(address, 4096, Access.LOCAL_READ).release()
            assert len(registrar.opened) == round + 1, "the registration of memory that was unmapped"
            assert libc.munmap(address, 4096) == 0
            assert libc.mmap(address, 4096, mmap.PROT_READ | mmap.PROT_WRITE, anonymous | fixed, -1, 0) == address
        assert libc.munmap(address, 4096) == 0


def test_invalidated_memory_is_stale(cache: Cache, registrar: RecordingRegistrar) -> None:  # R49
    memory = bytearray(100)
    with cache.acquire(memory) as lease:
        assert not lease.stale
        cache.invalidate(*pinfold.range_of(memory))
        assert lease.stale and not lease.closed
    cache.acquire(memory).release()
    pinfold.announce_gone(*pinfold.range_of(memory))
    cache.acquire(memory).release()
    assert len(registrar.opened) == 3
    refused(Code.INVALID_RANGE, cache.invalidate, 0, 0)


def test_budget_is_kept(registrar: RecordingRegistrar) -> None:  # R12, R15
    options = Options(monitor=Monitor.MANUAL, max_bytes=16384, max_count=2, full=Full.FAIL, name="small")
    with Cache(registrar, options) as cache:
        memories = [mmap.mmap(-1, 4096) for _ in range(4)]
        refused(Code.LARGER_THAN_BUDGET, cache.acquire, mmap.mmap(-1, 5 * 4096))
        with cache.acquire(memories[0]), cache.acquire(memories[1]):
            refused(Code.OVER_BUDGET, cache.acquire, memories[2])
        cache.acquire(memories[2]).release()
        assert cache.statistics()["evicted"] == 1
        assert len(registrar.live) == 2
        assert cache.evict(1) == 1
        assert len(registrar.live) == 1


def test_overlapping_requests_are_merged(registrar: RecordingRegistrar) -> None:  # R62
    memory = mmap.mmap(-1, 4 * 4096)
    address, _ = pinfold.range_of(memory)
    options = Options(monitor=Monitor.MANUAL, merge=Merge.OVERLAPS, merge_limit=3 * 4096)
    with Cache(registrar, options) as cache:
        cache.acquire_at(address, 8192, Access.LOCAL_READ).release()
        with cache.acquire_at(address + 4096, 8192, Access.LOCAL_READ) as lease:
            assert lease.covered == (address, 3 * 4096)
        with cache.acquire_at(address + 8192, 8192, Access.LOCAL_READ) as lease:
            assert lease.covered == (address + 8192, 8192), "beyond the limit"


def test_upkeep(cache: Cache, registrar: RecordingRegistrar) -> None:  # R17, R27
    kept, idle = mmap.mmap(-1, 4096), mmap.mmap(-1, 4096)
    cache.acquire(kept, persistent=True).release()
    with cache.acquire(idle):
        refused(Code.IN_USE_CONFLICT, cache.quiesce)
    cache.flush()
    assert len(registrar.live) == 1
    cache.unpersist(*pinfold.range_of(kept))
    cache.quiesce()
    cache.progress()
    assert len(registrar.live) == 0


def test_entries_and_statistics_tell_what_there_is(cache: Cache) -> None:  # R43, R45
    memory = mmap.mmap(-1, 8192)
    with cache.acquire(memory):
        (entry,) = cache.entries()
        assert (entry.base, entry.nbytes) == pinfold.range_of(memory)
        assert (entry.kind, entry.state, entry.leases, entry.bypass) == ("recording", "live", 1, False)
        assert entry.owner == threading.get_native_id()
        now = cache.statistics()
        assert (now["open"], now["bytes_now"], now["leases_now"]) == (1, 8192, 1)
    assert "opens=1" in cache.describe()
    assert cache.monitors() == "manual"


def test_bypass_is_registered_for_one_lease(cache: Cache, registrar: RecordingRegistrar) -> None:  # R27
    memory = bytearray(100)
    with cache.acquire(memory, bypass=True):
        assert len(registrar.live) == 1
    assert len(registrar.live) == 0


def test_file_of_the_memory_may_be_named(tmp_path: Any) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8192) as memory, Cache.mlock() as cache:
        cache.acquire(memory, file=file.fileno()).release()
        assert cache.statistics()["opens"] == 1
        refused(Code.INVALID_ARGUMENT, cache.acquire, bytearray(10), file=-1)


def test_closed_cache_refuses_every_call(registrar: RecordingRegistrar) -> None:
    cache = Cache(registrar)
    cache.acquire(bytearray(10)).release()
    cache.close()
    cache.close()
    assert cache.closed and registrar.has_finished.is_set() and not registrar.live
    for call in (cache.flush, cache.statistics, cache.describe, cache.entries, cache.monitors):
        refused(Code.CLOSED, call)
    refused(Code.CLOSED, cache.acquire, bytearray(10))
    refused(Code.CLOSED, cache.acquire_batch, [bytearray(10)])


def test_lease_outlives_its_cache_harmlessly(registrar: RecordingRegistrar) -> None:  # R42
    cache = Cache(registrar, Options(drain_timeout_ms=1))
    lease = cache.acquire(bytearray(10))
    cache.close()
    assert lease.closed and not registrar.live
    lease.release()


def test_cache_without_a_reference_is_closed(registrar: RecordingRegistrar) -> None:
    cache = Cache(registrar)
    lease = cache.acquire(bytearray(10))
    del cache
    assert not registrar.has_finished.is_set(), "a lease keeps its cache"
    lease.release()
    del lease
    assert registrar.has_finished.wait(60) and not registrar.live


def test_close_waits_for_calls_of_other_threads(registrar: RecordingRegistrar) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(RecordingRegistrar):
        def open(self, request: pinfold.OpenRequest) -> object:
            entered.set()
            assert leave.wait(60)
            return super().open(request)

    slow = Slow()
    cache = Cache(slow)
    acquiring = threading.Thread(target=lambda: cache.acquire(bytearray(10)).release())
    acquiring.start()
    assert entered.wait(60)
    closing = threading.Thread(target=cache.close)
    closing.start()
    while not cache.closed:
        time.sleep(0.001)  # the thread may begin late
    time.sleep(0.05)
    assert closing.is_alive(), "the cache ended under a call"
    refused(Code.CLOSED, cache.flush)
    leave.set()
    acquiring.join(60)
    closing.join(60)
    assert not slow.live and slow.has_finished.is_set()


def test_cache_is_not_destroyed_under_a_call() -> None:
    """C waits for callbacks by itself, but for no other call."""
    entered, leave = threading.Event(), threading.Event()

    def slow(pointer: Any) -> int:
        entered.set()
        assert leave.wait(60)
        return lib.pinfold_flush(pointer)  # type: ignore[no-any-return]

    answers: list[int] = []
    cache = Cache(RecordingRegistrar(), Options(drain_timeout_ms=0))
    calling = threading.Thread(target=lambda: answers.append(cache._call(slow)))
    calling.start()
    assert entered.wait(60)
    closing = threading.Thread(target=cache.close)
    closing.start()
    time.sleep(0.05)
    leave.set()
    calling.join(60)
    closing.join(60)
    assert answers == [0] and cache.closed


def test_options_are_checked_by_the_library() -> None:
    refused(Code.INVALID_ARGUMENT, Cache.mlock, Options(full=7))  # type: ignore[arg-type]
    refused(Code.INVALID_ARGUMENT, Cache.mlock, Options(monitor=Monitor(1024)))
    refused(Code.INVALID_ARGUMENT, Cache.mlock, Options(flags=Flag(1 << 20)))
    with pytest.raises(OverflowError):
        Cache.mlock(Options(max_bytes=-1))
    with pytest.raises(ValueError, match="at most 63 bytes"):
        Cache.mlock(Options(name="x" * 64))
    with pytest.raises(ValueError, match="no 0"):
        Cache.mlock(Options(name="a\0b"))
    with pytest.raises(ValueError, match="has a 0"):
        Cache.mlock(Options(text="PINFOLD_MONITOR=manual\0nonsense"))


@pytest.mark.parametrize("cache, serves", [(Cache, RecordingRegistrar), (ImportCache, RecordingImporter)])
def test_cache_that_cannot_be_made_forgets_what_it_was_made_over(cache: Any, serves: Any) -> None:
    what = serves()
    refused(Code.INVALID_ARGUMENT, cache, what, Options(flags=Flag(1 << 20)))
    left = weakref.ref(what)
    del what
    gc.collect()
    assert left() is None


def test_options_as_text(registrar: RecordingRegistrar) -> None:
    text = "PINFOLD_MAX_COUNT=1\nPINFOLD_MONITOR=manual"
    with Cache(registrar, Options(text=text)) as cache:
        for memory in [mmap.mmap(-1, 4096) for _ in range(3)]:
            cache.acquire(memory).release()
        assert cache.statistics()["evicted"] == 2 and cache.monitors() == "manual"
    with Cache(registrar, Options(text=text, max_count=pinfold.UNLIMITED)) as cache:
        for memory in [mmap.mmap(-1, 4096) for _ in range(3)]:
            cache.acquire(memory).release()
        assert cache.statistics()["evicted"] == 0, "a member takes precedence"
    failure = refused(Code.INVALID_ARGUMENT, Cache, registrar, Options(text="PINFOLD_NONSENSE=1"))
    assert "PINFOLD_NONSENSE" in str(failure) or "unknown setting" in str(failure)


def test_options_of_the_environment(run: Callable[..., str]) -> None:
    program = "import pinfold; print(pinfold.Cache.mlock(pinfold.Options(environment=True)).monitors())"
    assert run(program, PINFOLD_MONITOR="manual") == "manual\n"
    assert "unknown setting" in run(program, status=1, PINFOLD_NONSENSE="1")


def test_io_uring() -> None:
    try:
        uring = ctypes.CDLL("liburing.so.2")
    except OSError:
        pytest.skip("liburing is not installed")
    ring = ctypes.create_string_buffer(1024)
    if uring.io_uring_queue_init(8, ring, 0) != 0:
        pytest.skip("io_uring is unavailable")
    with Cache.io_uring(ctypes.addressof(ring), slots=16) as cache:
        with cache.acquire(bytearray(4096)) as one, cache.acquire(mmap.mmap(-1, 4096)) as other:
            assert {one.registration["index"], other.registration["index"]} < set(range(16))
            assert one.registration != other.registration
    uring.io_uring_queue_exit(ring)


def test_caches_of_other_libraries() -> None:
    for make in (lambda: Cache.verbs(0), lambda: Cache.libfabric(0, 0)):
        try:
            refused(Code.INVALID_ARGUMENT, make)
        except OSError as reason:
            assert "libpinfold-" in str(reason), "the library was not built"


def test_mlock_locks() -> None:
    def locked() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmLck"))

    memory = mmap.mmap(-1, 1 << 20)
    with Cache.mlock() as cache:
        before = locked()
        with cache.acquire(memory):
            assert locked() >= before + 1024
        cache.flush()
        assert locked() == before


def test_restore_registers_again_what_quiesce_closed(cache: Cache, registrar: RecordingRegistrar) -> None:
    memory = [mmap.mmap(-1, 8192) for _ in range(4)]  # on pages of their own
    for one in memory:
        cache.acquire(one).release()
    cache.quiesce()
    assert not registrar.live
    cache.invalidate(*pinfold.range_of(memory[0]))
    with cache.restore(workers=2) as restoration:
        assert restoration.wait()
        now = restoration.progress()
        assert (now.total, now.restored, now.skipped, now.failed) == (3, 3, 0, 0) and now.nbytes >= 3 * 8192
        assert restoration.failure() is None
    before = len(registrar.opened)
    for one in memory[1:]:
        cache.acquire(one).release()
    assert len(registrar.opened) == before
    refused(Code.CLOSED, restoration.progress)


def test_restoration_may_be_closed_while_other_threads_use_it() -> None:
    begun, go = threading.Event(), threading.Event()
    memory = [bytearray(8192) for _ in range(8)]
    seen: list[object] = []

    class Slow(RecordingRegistrar):
        def open(self, request: pinfold.OpenRequest) -> object:
            if restoring:
                begun.set()
                go.wait()
            return super().open(request)

    def ends(call: Callable[[], object]) -> None:
        try:
            while True:
                call()
        except Error as failure:
            seen.append(failure.code)

    def closes() -> None:
        restoration.close()
        seen.append("closed")

    restoring = False
    with Cache(Slow(), Options(monitor=Monitor.MANUAL)) as cache:
        for one in memory:
            cache.acquire(one).release()
        cache.quiesce()
        restoring = True
        restoration = cache.restore(workers=1)
        begun.wait()
        calls: list[Callable[[], None]] = [
            lambda: ends(restoration.progress),
            lambda: ends(lambda: restoration.wait(1)),
            closes,
            closes,
        ]
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads[:2]:
            thread.start()
        time.sleep(0.02)
        for thread in threads[2:]:
            thread.start()
        time.sleep(0.02)
        go.set()
        for thread in threads:
            thread.join()
    assert sorted(map(str, seen)) == sorted(map(str, [Code.CLOSED, Code.CLOSED, "closed", "closed"]))


def test_a_signal_dumps_the_entries(run: Callable[..., str], tmp_path: pathlib.Path) -> None:
    program = """
import os, signal, sys
import pinfold
pinfold.dump_on_signal(signal.SIGUSR2, sys.argv[1])
options = pinfold.Options(monitor=pinfold.Monitor.MANUAL, name="of Python")
with pinfold.Cache.mlock(options) as cache, cache.acquire(bytearray(4096)):
    os.kill(os.getpid(), signal.SIGUSR2)
signal.signal(signal.SIGUSR1, lambda number, frame: print("handled"))
for chain in False, True:
    try:
        pinfold.dump_on_signal(signal.SIGUSR1, sys.argv[1], chain=chain)
    except pinfold.Error as failure:
        print(failure.code.name)
os.kill(os.getpid(), signal.SIGUSR1)
"""
    assert run(program, str(tmp_path)).splitlines() == ["IN_USE_CONFLICT", "handled"]
    (file,) = tmp_path.glob("pinfold.*.dump")
    text = file.read_text()
    assert text.count("dump_end outcome=done") == 2
    assert text.count('cache name="of Python" registrar="mlock"') == 1 and text.count(" leases=1 ") == 1


@pytest.mark.parametrize("end", ["pass", "close(cache)", "del cache; gc.collect()"])
def test_end_of_the_process_waits_for_a_thread_in_the_registrar(run: Any, request: Any, end: str) -> None:
    program = f"""
import contextlib, gc, sys, threading, time, pinfold
sys.path.insert(0, sys.argv[1])
from doubles import RecordingRegistrar

class Slow(RecordingRegistrar):
    def close(self, registration):
        begun.set()
        time.sleep(1.5)
        super().close(registration)

    def finished(self):
        print("finished", flush=True)

def close(cache):
    with contextlib.suppress(pinfold.Error):
        cache.close()  # TIMED_OUT

begun = threading.Event()
flags = pinfold.Flag.REAPER | pinfold.Flag.DEFERRED_CLOSES
options = pinfold.Options(monitor=pinfold.Monitor.MANUAL, flags=flags, drain_timeout_ms=0, sink=lambda event: None)
cache = pinfold.Cache(Slow(), options)
memory = bytearray(10)
cache.acquire(memory).release()
cache.invalidate(*pinfold.range_of(memory))
begun.wait()
{end}
print("the end", flush=True)
"""
    assert run(program, str(request.path.parent)).split("\n") == ["the end", "finished", ""]
