# SPDX-License-Identifier: BSD-3-Clause
"""What the collector finds in a callback is ended later: the library refuses to end it there."""

import gc
import threading
from typing import Any, Callable, Iterator

import pytest

import pinfold
from doubles import RecordingRegistrar
from pinfold import Cache, Flag, Monitor, Options

MANUAL = Options(monitor=Monitor.MANUAL)


class Collecting(RecordingRegistrar):
    """Collects garbage in its next callback, if that is `wanted`, once it gets the lock."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = False
        self.lock = threading.Lock()
        self.collected = threading.Event()

    def open(self, request: pinfold.OpenRequest) -> object:
        self._collect()
        return super().open(request)

    def close(self, registration: Any) -> None:
        super().close(registration)
        self._collect()

    def _collect(self) -> None:
        if self.wanted:
            self.wanted = False
            with self.lock:
                gc.collect()
            self.collected.set()


@pytest.fixture(autouse=True)
def _collector_is_off() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def make_garbage(*what: object) -> None:
    cycle: list[object] = [*what]
    cycle.append(cycle)


@pytest.mark.parametrize(
    "begin",
    [
        lambda cache, memory: cache.acquire_chunks(memory, chunk_bytes=1 << 16),
        lambda cache, memory: cache.register_in_background(memory, piece_bytes=1 << 16),
    ],
    ids=["stream", "ticket"],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda cache: cache.flush(),
        lambda cache: cache.acquire(bytearray(1)).release(),
        lambda cache: cache.close(),
    ],
    ids=["flush", "acquire", "close"],
)
def test_next_call_ends_it(begin: Callable[..., Any], call: Callable[[Cache], object]) -> None:
    registrar, memory = Collecting(), bytearray(1 << 18)
    cache = Cache(registrar, MANUAL)
    make_garbage(begin(cache, memory))
    registrar.wanted = True
    cache.acquire(bytearray(1)).release()
    assert registrar.collected.wait(60)
    call(cache)
    memory.append(1)
    cache.close()
    assert not registrar.live


def collected_by_its_reaper() -> Collecting:
    registrar, memory = Collecting(), bytearray(1)
    cache = Cache(registrar, Options(monitor=Monitor.MANUAL, flags=Flag.REAPER | Flag.DEFERRED_CLOSES))
    cache.acquire(memory).release()
    with registrar.lock:
        registrar.wanted = True
        cache.invalidate(*pinfold.range_of(memory))
        make_garbage(cache)
        del cache
    return registrar


def test_next_call_of_another_cache_ends_a_cache() -> None:
    with Cache(RecordingRegistrar(), MANUAL) as other:
        registrar = collected_by_its_reaper()
        assert registrar.collected.wait(60) and not registrar.has_finished.is_set()
        other.flush()
        assert registrar.has_finished.is_set()


def test_end_of_the_process_ends_a_cache(run: Callable[..., str], request: Any) -> None:
    program = """
import gc, sys
sys.path.insert(0, sys.argv[1])
gc.disable()
from collected_test import collected_by_its_reaper
registrar = collected_by_its_reaper()
registrar.finished = lambda: print("finished")
registrar.collected.wait()
print("the end")
"""
    assert run(program, str(request.path.parent)).split("\n") == ["the end", "finished", ""]


def test_cache_ends_after_its_stream() -> None:
    registrar = RecordingRegistrar()
    cache = Cache(registrar, MANUAL)
    make_garbage(cache, cache.acquire_chunks(bytearray(1 << 18), chunk_bytes=1 << 16))
    del cache
    gc.collect()
    assert registrar.has_finished.is_set() and not registrar.live
