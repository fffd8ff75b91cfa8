# SPDX-License-Identifier: BSD-3-Clause
"""Tensors between processes that multiprocessing starts in each of its ways, and caches in a child of fork."""

import gc
import multiprocessing
import os
import threading
from typing import Any

import numpy
import pytest

import pinfold
from doubles import RecordingImporter, RecordingRegistrar
from pinfold import Cache, Code, Error, Handle, ImportCache, Monitor, Options

METHODS = ["fork", "spawn", "forkserver"]


def sum_of(handle: Handle, answers: Any) -> None:
    """In the other process."""
    with pinfold.open(handle) as tensor:
        answers.put((os.getpid() != handle.peer, tensor.shape, float(tensor.numpy().sum())))
    with Cache(RecordingRegistrar()) as cache:
        cache.acquire(bytearray(10)).release()


@pytest.mark.parametrize("method", METHODS)
def test_other_process_reads_the_tensor(method: str) -> None:
    array = pinfold.memfd_array((100, 1000), "f4")
    array[:] = numpy.arange(1000)
    context: Any = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    with Cache.mlock() as cache, cache.acquire(array):
        child = context.Process(target=sum_of, args=(pinfold.share(array), answers), daemon=True)
        child.start()
        assert answers.get() == (True, (100, 1000), 100 * 999 * 500.0)
        child.join(300)
    assert child.exitcode == 0


def exports(handles: Any, checked: Any) -> None:
    """In the other process."""
    array = pinfold.memfd_array(1000, "i8")
    array[:] = 42
    handles.put(pinfold.share(array))
    checked.get()


@pytest.mark.parametrize("method", METHODS)
def test_child_exports_too(method: str) -> None:
    pinfold.memfd_array(10)  # so that a forked child inherits an exporter
    context: Any = multiprocessing.get_context(method)
    handles, checked = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=exports, args=(handles, checked), daemon=True)
    child.start()
    handle = handles.get()
    assert handle.peer == child.pid
    with pinfold.open(handle) as tensor:
        assert (tensor.numpy() == 42).all()
    checked.put(True)
    child.join(300)
    assert child.exitcode == 0
    with ImportCache.memfd() as fresh, pytest.raises(Error) as caught:
        pinfold.open(handle, cache=fresh)
    assert caught.value.code is Code.PEER_GONE


def in_child(function: Any) -> None:
    """Runs the function in a forked child, which ends as an interpreter does."""
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def code_of(call: Any, *given: Any) -> Code:
    with pytest.raises(Error) as caught:
        call(*given)
    return caught.value.code


def test_child_of_fork_leaves_its_parents_objects_alone() -> None:  # R37
    registrar, importer = RecordingRegistrar(), RecordingImporter()
    cache, peers = Cache(registrar, Options(monitor=Monitor.MANUAL)), ImportCache(importer)
    memory = bytearray(100)
    lease, copy = cache.acquire(memory), cache.acquire(memory)
    imported = peers.acquire(1, importer.handle(4096, 100), 4096, 100)
    view = imported.memory
    exporter = pinfold.MemfdExporter(serve=True)
    buffer = exporter.allocate(4096)
    stream = cache.acquire_chunks(bytearray(1 << 20), chunk_bytes=1 << 16)
    leases = cache.statistics()["leases_now"]

    def child() -> None:
        nonlocal view, imported, buffer, copy
        for call in (cache.flush, cache.statistics, lambda: cache.acquire(memory), lambda: peers.drop_peer(1)):
            assert code_of(call) is Code.CLOSED
        lease.release()
        assert bytes(view) == bytes([1]) * 100
        del view, imported, copy
        assert code_of(exporter.allocate, 10) is Code.UNSUPPORTED
        buffer.memory[0] = 7
        del buffer
        assert code_of(list, stream) is Code.CLOSED
        stream.close()
        assert list(stream) == []
        cache.close()
        peers.close()
        gc.collect()
        assert cache.closed and not registrar.has_finished.is_set()
        with Cache(RecordingRegistrar()) as own, own.acquire(memory):
            assert own.statistics()["leases_now"] == 1
        assert pinfold.memfd_array(10).size == 10

    in_child(child)
    assert len(registrar.live) and cache.statistics()["leases_now"] >= leases >= 2
    assert buffer.memory[0] == 7, "one memory"
    with ImportCache.memfd() as other:
        other.acquire(1, buffer.handle, buffer.address, 10).release()
    pieces = list(stream)
    assert sum(piece.nbytes for piece in pieces) == 1 << 20
    stream.close()
    for one in (lease, copy, imported, *pieces):
        one.release()
    del view
    cache.close()
    peers.close()
    assert not registrar.live and not importer.live


def test_child_of_fork_ends_as_an_interpreter_does(run: Any, request: Any) -> None:
    program = """
import os, sys, pinfold
sys.path.insert(0, sys.argv[1])
from doubles import RecordingRegistrar
registrar = RecordingRegistrar()
cache = pinfold.Cache(registrar)
lease = cache.acquire(bytearray(10))
array = pinfold.memfd_array(10)
if os.fork() == 0:
    sys.exit(0)
assert os.wait()[1] == 0 and len(registrar.live) == 1
lease.release()
print("done")
"""
    assert run(program, str(request.path.parent)) == "done\n"


def test_fork_while_other_threads_use_the_cache() -> None:  # R37
    registrar = RecordingRegistrar()
    stop = threading.Event()
    with Cache(registrar, Options(monitor=Monitor.MANUAL, max_count=4)) as cache:
        memories = [bytearray(8192) for _ in range(16)]

        def work() -> None:
            while not stop.is_set():
                for memory in memories:
                    with cache.acquire(memory):
                        pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()

        def child() -> None:
            assert code_of(cache.acquire, memories[0]) is Code.CLOSED
            cache.close()
            with Cache.mlock() as own:
                own.acquire(memories[0]).release()
            array = pinfold.memfd_array(10)
            with pinfold.open(pinfold.share(array)) as tensor:
                assert tensor.numpy().size == 10

        try:
            for _ in range(3 if os.environ.get("PINFOLD_TEST_SANITIZE") else 20):
                in_child(child)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert cache.statistics()["leases_now"] == 0
    assert not registrar.live
