# SPDX-License-Identifier: BSD-3-Clause
import gc
import mmap
import sys
import threading
import warnings
from typing import Any, Callable

import pytest

import pinfold
from doubles import RecordingImporter, RecordingRegistrar
from pinfold import Cache, Code, Error, ImportCache, Options


def test_lease_is_released_once(cache: Cache) -> None:
    memory = bytearray(10)
    lease, other = cache.acquire(memory), cache.acquire(memory)
    lease.release()
    lease.release()
    assert lease.released and not other.released
    assert cache.statistics()["leases_now"] == 1
    other.release()


def test_released_lease_cannot_be_used(cache: Cache) -> None:
    lease = cache.acquire(bytearray(10))
    lease.release()
    for use in ("stale", "closed", "covered", "registration"):
        with pytest.raises(ValueError, match="was released"):
            getattr(lease, use)
    with pytest.raises(ValueError, match="was released"):
        lease.share()


def test_shared_lease_is_another_one(cache: Cache) -> None:  # R21
    memory = bytearray(10)
    with cache.acquire(memory) as lease:
        copies = [lease.share() for _ in range(3)]
    assert cache.statistics()["leases_now"] == 3
    with pytest.raises(BufferError):
        memory.append(1)
    assert {copy.registration for copy in copies} == {("registration", 1)}
    for copy in copies:
        copy.release()
    memory.append(1)


def test_forgotten_lease_is_released_with_a_warning(cache: Cache) -> None:
    lease = cache.acquire(bytearray(10))
    with pytest.warns(ResourceWarning, match="was never released"):
        del lease
    assert cache.statistics()["leases_now"] == 0


def test_lease_in_a_cycle_is_released_with_a_warning(cache: Cache) -> None:
    cycle: list[Any] = [cache.acquire(bytearray(10))]
    cycle.append(cycle)
    with pytest.warns(ResourceWarning, match="was never released"):
        del cycle
        gc.collect()
    assert cache.statistics()["leases_now"] == 0


def test_released_lease_gives_no_warning(cache: Cache) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with cache.acquire(bytearray(10)):
            pass
        gc.collect()


def test_release_returns_what_the_close_raised() -> None:  # R41, R47
    registrar = RecordingRegistrar()
    with Cache(registrar, Options(flags=pinfold.Flag.NO_RETAIN)) as cache:
        lease = cache.acquire(bytearray(10))
        registrar.refuse_close = OSError(5, "no")
        with pytest.raises(Error) as caught:
            lease.release()
        assert caught.value.code is Code.DRIVER_ERROR
        assert caught.value.__cause__ is registrar.refuse_close
        assert cache.statistics()["quarantined"] == 1
        registrar.refuse_close = None
        cache.flush()
        assert not registrar.live


def test_error_in_a_finalizer_is_told() -> None:
    told: list[Any] = []
    registrar = RecordingRegistrar()
    with Cache(registrar, Options(flags=pinfold.Flag.NO_RETAIN)) as cache:
        lease = cache.acquire(bytearray(10))
        registrar.refuse_close = OSError(5, "no")
        sys.unraisablehook = told.append
        with pytest.warns(ResourceWarning):
            del lease
        registrar.refuse_close = None
    assert len(told) == 1 and isinstance(told[0].exc_value, Error)


def test_lease_may_be_released_on_any_thread(cache: Cache) -> None:  # R46
    leases = [cache.acquire(mmap.mmap(-1, 4096)) for _ in range(20)]
    threads = [threading.Thread(target=lease.release) for lease in leases for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.statistics()["leases_now"] == 0


def test_views_keep_imported_memory(peers: ImportCache, importer: RecordingImporter) -> None:  # R52
    handle = importer.handle(1 << 20, 4096)
    with peers.acquire(7, handle, 1 << 20, 100) as lease:
        view = lease.memory
        part = view[10:20]
    del view, lease
    peers.flush()
    assert peers.statistics()["leases_now"] == 1 and len(importer.live) == 1
    assert bytes(part) == bytes([7]) * 10
    with pytest.raises(BufferError, match="views of imported memory"):
        peers.close()
    assert not peers.closed
    del part
    peers.quiesce()
    assert len(importer.live) == 0


def test_lease_with_views_gives_no_warning(peers: ImportCache, importer: RecordingImporter) -> None:
    view = peers.acquire(1, importer.handle(4096, 100), 4096, 100).memory
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del view
    assert peers.statistics()["leases_now"] == 0


def test_released_lease_makes_no_new_views(peers: ImportCache, importer: RecordingImporter) -> None:
    lease = peers.acquire(1, importer.handle(4096, 100), 4096, 100)
    view = lease.memory
    lease.release()
    with pytest.raises(ValueError, match="was released"):
        lease.memory
    assert view[0] == 1
    view.release()
    assert peers.statistics()["leases_now"] == 0


def test_view_that_dies_while_an_exception_is_raised(peers: ImportCache, importer: RecordingImporter) -> None:
    lease = peers.acquire(1, importer.handle(4096, 100), 4096, 100)
    with pytest.raises(ZeroDivisionError):
        [lease.memory, 1 // 0]
    lease.release()
    assert peers.statistics()["leases_now"] == 0


def test_cache_with_views_is_closed_when_they_are_gone(importer: RecordingImporter) -> None:
    with pytest.raises(ZeroDivisionError):
        with ImportCache(importer) as peers, peers.acquire(1, importer.handle(4096, 100), 4096, 100) as lease:
            view = lease.memory
            1 // 0
    assert not importer.has_finished.is_set()
    assert view[0] == 1
    del peers, lease, view
    gc.collect()
    assert importer.has_finished.wait(60)


EXIT = """
import atexit, sys, threading, pinfold
sys.path.insert(0, sys.argv[1])
from doubles import RecordingRegistrar
registrar = RecordingRegistrar()
cache = pinfold.Cache(registrar, pinfold.Options(flags=pinfold.Flag.REAPER, sink=lambda event: print(event.kind.name)))
lease = cache.acquire(bytearray(10))
stream = cache.acquire_chunks(bytearray(1 << 20), chunk_bytes=1 << 16)
next(stream).release()
atexit.register(lambda: print("still live:", bool(registrar.live)))
{how}
"""


@pytest.mark.parametrize(
    "how",
    [
        "",
        "sys.exit(0)",
        "threading.Thread(target=lambda: lease.release(), daemon=True).start()",
        "cycle = [cache, lease]; cycle.append(cycle); del cache, lease",
    ],
)
def test_process_ends_with_leases_out(run: Callable[..., str], request: Any, how: str) -> None:  # R42
    said = run(EXIT.format(how=how), str(request.path.parent))
    assert "still live: True" in said
    assert "Traceback" not in said and "LEASES_OUTLIVE_CACHE" not in said


def test_process_ends_with_a_thread_in_a_callback(run: Callable[..., str], request: Any) -> None:
    program = """
import sys, threading, time, pinfold
sys.path.insert(0, sys.argv[1])
from doubles import RecordingRegistrar
class Slow(RecordingRegistrar):
    def open(self, request):
        entered.set()
        time.sleep(0.3)
        return super().open(request)
entered = threading.Event()
registrar = Slow()
cache = pinfold.Cache(registrar)
threading.Thread(target=lambda: cache.acquire(bytearray(10)), daemon=True).start()
entered.wait()
"""
    assert "Traceback" not in run(program, str(request.path.parent))


def test_process_ends_with_arrays_in_use(run: Callable[..., str]) -> None:
    program = """
import atexit, numpy
atexit.register(lambda: print(int(array.sum())))  # runs after pinfold's end
import pinfold
peers = pinfold.ImportCache.memfd()
buffer = pinfold.MemfdExporter().allocate(4096)
buffer.memory[:10] = bytes(range(10))
lease = peers.acquire(1, buffer.handle, buffer.address, 10)
array = numpy.frombuffer(lease.memory, "u1")
atexit.register(print, "the end")
"""
    assert run(program) == "the end\n45\n"


@pytest.mark.parametrize(
    ("options", "mapped"),
    [
        ("", True),
        ("flags=pinfold.Flag.REAPER", False),
        ("text='PINFOLD_REAPER=1'", False),
        ("sink=lambda event: None", False),
    ],
)
def test_views_keep_imported_memory_until_the_end(run: Any, request: Any, options: str, mapped: bool) -> None:  # R52
    """Unless a thread of the library could call Python when the interpreter has ended."""
    program = f"""
import atexit, sys
atexit.register(lambda: print("unmapped" if importer.closed else list(view)))
sys.path.insert(0, sys.argv[1])
import pinfold
from doubles import RecordingImporter
importer = RecordingImporter()
view = pinfold.ImportCache(importer, pinfold.Options({options})).acquire(7, importer.handle(4096, 2), 4096, 2).memory
"""
    assert run(program, str(request.path.parent)) == ("[7, 7]\n" if mapped else "unmapped\n")
