# SPDX-License-Identifier: BSD-3-Clause
import gc
import mmap
import sys
import threading
import weakref
from typing import Any

import pytest

from doubles import RecordingRegistrar
from pinfold import Cache, Error, Event, EventKind, Flag, Monitor, Options, Severity, range_of


def test_sink_gets_events() -> None:
    events: list[Event] = []
    registrar = RecordingRegistrar()
    options = Options(
        name="the cache",
        monitor=Monitor.MANUAL,
        flags=Flag.TRACE_REQUESTS | Flag.STATISTICS_AT_EXIT,
        max_count=1,
        sink=events.append,
    )
    with Cache(registrar, options) as cache:
        one, other = mmap.mmap(-1, 4096), mmap.mmap(-1, 4096)
        cache.acquire(one).release()
        cache.acquire(other).release()
    assert [event.kind for event in events] == [
        EventKind.REQUESTED,
        EventKind.EVICTED,
        EventKind.REQUESTED,
        EventKind.STATISTICS,
    ]
    requested, evicted, _, statistics = events
    assert requested.cache == "the cache" and not requested.hit and requested.cause is None
    assert (requested.base, requested.nbytes) == range_of(one) == (evicted.base, evicted.nbytes)
    assert (requested.registered_base, requested.registered_nbytes) == range_of(one)
    assert "opens=2" in statistics.text


def test_event_has_the_cause_of_a_failed_close() -> None:  # R41
    events: list[Event] = []
    registrar = RecordingRegistrar()
    with Cache(registrar, Options(monitor=Monitor.MANUAL, max_count=1, sink=events.append)) as cache:
        one, other = mmap.mmap(-1, 4096), mmap.mmap(-1, 4096)
        cache.acquire(one).release()
        registrar.refuse_close = OSError(5, "broken")
        with pytest.raises(Error):
            cache.acquire(other)
        failed = [event for event in events if event.kind is EventKind.CLOSE_FAILED]
        assert failed and failed[0].level is Severity.FAILURE
        assert isinstance(failed[0].cause, Error) and failed[0].cause.native == 5
        assert failed[0].cause.__cause__ is registrar.refuse_close
        with pytest.raises(Error) as caught:
            cache.flush()
        assert caught.value.__cause__ is registrar.refuse_close, "both the sink and the caller learn of it"
        registrar.refuse_close = None


def test_exception_of_a_sink_stops_nothing() -> None:
    def sink(event: Event) -> None:
        raise ValueError(event.kind)

    told: list[Any] = []
    sys.unraisablehook = told.append
    registrar = RecordingRegistrar()
    with Cache(registrar, Options(monitor=Monitor.MANUAL, flags=Flag.TRACE_REQUESTS, sink=sink)) as cache:
        cache.acquire(bytearray(10)).release()
    assert [type(one.exc_value) for one in told] == [ValueError]


def test_sink_lives_as_long_as_its_cache() -> None:
    class Sink:
        def __call__(self, event: Event) -> None:
            pass

    sink = Sink()
    dead = weakref.ref(sink)
    cache = Cache.mlock(Options(sink=sink))
    del sink
    gc.collect()
    assert dead() is not None
    cache.close()
    gc.collect()
    assert dead() is None


def test_reaper_reports_on_its_own_thread() -> None:  # R60
    told, threads = threading.Event(), []

    class Closing(RecordingRegistrar):
        def close(self, registration: Any) -> None:
            threads.append(threading.get_ident())
            super().close(registration)
            told.set()

    with Cache(Closing(), Options(monitor=Monitor.MANUAL, flags=Flag.REAPER | Flag.DEFERRED_CLOSES)) as cache:
        memory = bytearray(10)
        cache.acquire(memory).release()
        cache.invalidate(*range_of(memory))
        assert told.wait(10)
    assert threads != [threading.get_ident()]
