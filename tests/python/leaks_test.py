# SPDX-License-Identifier: BSD-3-Clause
"""What is done a hundred thousand times leaves nothing behind."""

import gc
import os
import tracemalloc
from typing import Any, Callable

import pytest

import pinfold
from doubles import RecordingImporter, RecordingRegistrar
from pinfold import Cache, Error, ImportCache, Monitor, Options

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("PINFOLD_TEST_SANITIZE")), reason="the sanitizer keeps freed memory for a while"
)


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth_of(work: Callable[[], Any], times: int) -> tuple[int, int]:
    """Returns by how much the process, and Python's part of it, have grown."""
    for _ in range(times // 10):
        work()
    gc.collect()
    tracemalloc.start()
    in_python, before = tracemalloc.get_traced_memory()[0], resident()
    tracemalloc.stop()
    for _ in range(times):
        work()
    gc.collect()
    after = resident()
    tracemalloc.start()
    for _ in range(100):
        work()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - in_python
    tracemalloc.stop()
    return after - before, kept


def assert_no_growth(work: Callable[[], Any], times: int) -> None:
    process, python = growth_of(work, times)
    assert process < 2 << 20, f"{process} bytes in {times} rounds"
    assert python < 6_000, f"{python} bytes of Python's in 100 rounds"


def test_acquire_and_release() -> None:
    memory = bytearray(10_000)
    with Cache.mlock() as cache:
        assert_no_growth(lambda: cache.acquire(memory).release(), 100_000)


def test_misses_and_failures() -> None:
    registrar = RecordingRegistrar()
    memory = bytearray(10_000)

    def work() -> None:
        cache.acquire(memory, bypass=True, argument=object()).release()
        registrar.opened.clear()
        registrar.refuse = ValueError("refused")
        try:
            cache.acquire(memory, bypass=True)
        except Error:
            pass
        registrar.refuse = None

    with Cache(registrar, Options(monitor=Monitor.MANUAL)) as cache:
        assert_no_growth(work, 10_000)
    assert not registrar.live


def test_imports_and_views() -> None:
    importer = RecordingImporter()
    handle = importer.handle(4096, 100)
    with ImportCache(importer) as peers:

        def work() -> None:
            with peers.acquire(1, handle, 4096, 100) as lease:
                view = lease.memory
            assert view[0] == 1

        assert_no_growth(work, 50_000)


def test_tensors() -> None:
    array = pinfold.memfd_array(1000, "f4")

    def work() -> None:
        with pinfold.open(pinfold.share(array)) as tensor:
            tensor.numpy()
            tensor.__dlpack__(max_version=(1, 0))

    assert_no_growth(work, 5_000)


def test_caches() -> None:
    def work() -> None:
        with Cache(RecordingRegistrar(), Options(monitor=Monitor.MANUAL, sink=lambda event: None)) as cache:
            cache.acquire(memory).release()

    memory = bytearray(100)
    assert_no_growth(work, 2_000)


def test_buffers() -> None:
    exporter = pinfold.MemfdExporter()
    assert_no_growth(lambda: exporter.array(1000), 5_000)
