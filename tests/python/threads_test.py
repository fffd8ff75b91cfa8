# SPDX-License-Identifier: BSD-3-Clause
"""Ten threads on shared caches."""

import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import numpy
import pytest

import pinfold
from doubles import RecordingImporter, RecordingRegistrar
from pinfold import Cache, Code, Error, ImportCache, Monitor, Options, dlpack

THREADS = 10
SECONDS = float(os.environ.get("PINFOLD_TEST_SECONDS", 2))


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def under_load(work: Callable[[random.Random], None], seconds: float = SECONDS, least: int = 1000) -> None:
    """Repeats the work on all threads, at least so often, however little time a loaded machine has for it."""
    seed = int(os.environ.get("PINFOLD_TEST_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    end = time.monotonic() + seconds

    def repeat(number: int) -> None:
        choice, done = random.Random(seed + number), 0
        while time.monotonic() < end or done * THREADS < least:
            work(choice)
            done += 1

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(repeat, range(THREADS)))


def test_local_cache() -> None:  # R46
    class Fickle(RecordingRegistrar):
        def open(self, request: pinfold.OpenRequest) -> object:
            if random.random() < 0.02:
                raise Error(Code.NOT_PERMITTED, "not this time")
            return super().open(request)

    registrar = Fickle()
    memories = [bytearray(random.randrange(1, 20000)) for _ in range(40)]
    with Cache(registrar, Options(monitor=Monitor.MANUAL, max_count=THREADS + 5, sink=lambda event: None)) as cache:

        def work(choice: random.Random) -> None:
            memory = choice.choice(memories)
            try:
                action = choice.randrange(10)
                if action < 6:
                    with cache.acquire(memory) as lease:
                        assert (lease.address, lease.nbytes) == pinfold.range_of(memory)
                        assert lease.registration in registrar.live
                elif action == 6:
                    found = cache.find(memory)
                    if found is not None:
                        found.share().release()
                        found.release()
                elif action == 7:
                    cache.invalidate(*pinfold.range_of(memory))
                elif action == 8:
                    cache.acquire_batch(choice.sample(memories, 2)).release()
                else:
                    choice.choice([cache.flush, cache.progress, cache.entries, cache.statistics, cache.describe])()
            except Error as refused:
                assert refused.code in (Code.NOT_PERMITTED, Code.OVER_BUDGET), refused
                if refused.code is Code.NOT_PERMITTED:
                    assert isinstance(refused.__cause__, (Error, type(None)))

        under_load(work)
        assert cache.statistics()["leases_now"] == 0
    assert not registrar.live


def test_import_cache() -> None:  # R3, R8
    importer = RecordingImporter()
    handles = [(peer, importer.handle(base << 20, 8192), base << 20) for peer in range(1, 5) for base in range(1, 6)]
    with ImportCache(importer, Options(max_count=12)) as peers:

        def work(choice: random.Random) -> None:
            peer, handle, base = choice.choice(handles)
            action = choice.randrange(8)
            try:
                if action < 5:
                    with peers.acquire(peer, handle, base + 100, 1000) as lease:
                        view = lease.memory
                    assert view[choice.randrange(1000)] == peer
                elif action == 5:
                    peers.invalidate(peer, base, 1)
                elif action == 6:
                    peers.drop_peer(peer)
                else:
                    found = peers.find(peer, handle, base, 1)
                    if found is not None:
                        assert bytes(found.memory) == bytes([peer])
                        found.release()
            except Error as refused:
                assert refused.code in (Code.OVER_BUDGET, Code.IN_USE_CONFLICT), refused

        under_load(work)
        assert peers.statistics()["leases_now"] == 0
    assert not importer.live


def test_shared_tensors() -> None:
    arrays = [pinfold.memfd_array(1000, "i4") for _ in range(20)]
    for number, array in enumerate(arrays):
        array[:] = number

    def work(choice: random.Random) -> None:
        number = choice.randrange(20)
        with pinfold.open(bytes(pinfold.share(arrays[number]))) as tensor:
            opened = tensor.numpy()
            capsule = tensor.__dlpack__(max_version=(1, 0))
            assert dlpack._pointer(capsule, b"dltensor_versioned") in dlpack._exports, "let go by another thread"
            del capsule  # which no consumer took
        assert (opened[::100] == number).all()
        if choice.random() < 0.1:
            mine = pinfold.memfd_array(100, "i4")
            mine[:] = 5
            assert numpy.array_equal(pinfold.open(pinfold.share(mine)).numpy(), mine)

    under_load(work, least=500)


def test_one_lease_on_many_threads() -> None:
    """Misuse, which must not corrupt anything: all threads use and release the same leases."""
    importer = RecordingImporter()
    with ImportCache(importer) as peers:
        leases: list[Any] = [None] * 4

        def work(choice: random.Random) -> None:
            at = choice.randrange(4)
            lease = leases[at]
            if lease is None or choice.random() < 0.1:
                leases[at] = peers.acquire(1, importer.handle(4096, 100), 4096, 100)
                lease = lease or leases[at]
            try:
                choice.choice(
                    [lambda: lease.memory[0], lambda: lease.stale, lambda: lease.share().release(), lease.release]
                )()
            except ValueError as refused:
                assert "was released" in str(refused)

        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            under_load(work, SECONDS / 2, least=500)
            leases.clear()
        assert peers.statistics()["leases_now"] == 0


def test_caches_are_closed_while_threads_use_them() -> None:  # R42
    current = [Cache(RecordingRegistrar(), Options(monitor=Monitor.MANUAL, drain_timeout_ms=0))]
    memory = bytearray(100)

    def work(choice: random.Random) -> None:
        cache = current[0]
        try:
            if choice.random() < 0.02:
                current[0] = Cache(RecordingRegistrar(), Options(monitor=Monitor.MANUAL, drain_timeout_ms=0))
                cache.close()
            else:
                with cache.acquire(memory):
                    cache.statistics()
        except Error as refused:
            assert refused.code in (Code.CLOSED, Code.TIMED_OUT), refused

    under_load(work, SECONDS / 2, least=500)
    current[0].close()


def test_foreign_thread_calls_python() -> None:
    """A thread of the library, the reaper, calls registrar and sink while threads of the interpreter work."""
    threads: set[int] = set()

    class Closing(RecordingRegistrar):
        def close(self, registration: Any) -> None:
            threads.add(threading.get_native_id())
            super().close(registration)

    registrar = Closing()
    flags = pinfold.Flag.REAPER | pinfold.Flag.DEFERRED_CLOSES
    with Cache(registrar, Options(monitor=Monitor.MANUAL, flags=flags, sink=lambda event: None)) as cache:
        memories = [bytearray(8192) for _ in range(20)]

        def work(choice: random.Random) -> None:
            memory = choice.choice(memories)
            with cache.acquire(memory):
                pass
            cache.invalidate(*pinfold.range_of(memory))

        under_load(work, SECONDS / 2)
    assert not registrar.live and threads
