# SPDX-License-Identifier: BSD-3-Clause
import gc
import os
import weakref
from typing import Any

import numpy
import pytest

import pinfold
from pinfold import Code, Error, ImportCache, MemfdExporter
from pinfold.exporters import _exported


def test_buffer_is_imported_by_its_handle() -> None:  # R1
    buffer = MemfdExporter().allocate(5000)
    buffer.memory[4990:5000] = b"0123456789"
    assert buffer.nbytes == 8192 and len(buffer.handle) == pinfold.MEMFD_HANDLE_BYTES
    with ImportCache.memfd() as peers:
        with peers.acquire(os.getpid(), buffer.handle, buffer.address + 4990, 10) as lease:
            assert bytes(lease.memory) == b"0123456789"
            assert lease.address != buffer.address + 4990
            with pytest.raises(TypeError, match="read-only"):
                lease.memory[0] = 1
            buffer.memory[4990] = ord("x")
            assert lease.memory[0] == ord("x")
        with peers.acquire(os.getpid(), buffer.handle, buffer.address, 100):
            pass
        assert peers.statistics()["opens"] == 1


def test_memory_is_writable_only_where_the_exporter_grants_it() -> None:
    open_to_all, closed = MemfdExporter(peers_write=True).allocate(4096), MemfdExporter().allocate(4096)
    with ImportCache.memfd(writable=True) as peers:
        with peers.acquire(1, open_to_all.handle, open_to_all.address, 10) as lease:
            lease.memory[:2] = b"hi"
        assert bytes(open_to_all.memory[:2]) == b"hi"
        with pytest.raises(Error) as caught:
            peers.acquire(2, closed.handle, closed.address, 10)
        assert caught.value.code is Code.NOT_PERMITTED


def test_exporter_may_serve_descriptors() -> None:
    buffer = MemfdExporter(serve=True).allocate(4096)
    with ImportCache.memfd(populate=True) as peers:
        peers.acquire(1, buffer.handle, buffer.address, 4096).release()


def test_freed_buffer_is_stale_for_new_peers() -> None:
    exporter = MemfdExporter()
    buffer = exporter.allocate(4096)
    handle, address = buffer.handle, buffer.address
    with ImportCache.memfd() as first, ImportCache.memfd() as second:
        lease = first.acquire(1, handle, address, 10)
        buffer.release()
        assert bytes(lease.memory) == bytes(10), "a peer keeps what it has mapped"
        lease.release()
        with pytest.raises(Error) as caught:
            second.acquire(1, handle, address, 10)
        assert caught.value.code is Code.STALE_HANDLE


def test_buffer_lives_as_long_as_arrays_of_it() -> None:
    buffer = MemfdExporter().allocate(4096)
    dead, address = weakref.ref(buffer), buffer.address
    array = numpy.frombuffer(buffer.memory, "u1")
    buffer.release()
    buffer.release()
    with pytest.raises(ValueError, match="was released"):
        buffer.memory
    part = array[5:10].reshape(5, 1)
    del buffer, array
    gc.collect()
    part[:] = 3
    assert part.sum() == 15 and dead() is not None and address in _exported
    del part
    gc.collect()
    assert dead() is None and address not in _exported


def test_buffer_is_freed_when_it_is_collected() -> None:
    exporter = MemfdExporter()
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        exporter.array(10)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files


def test_array_is_zeroed_and_of_any_type() -> None:
    forms: list[tuple[Any, Any, int]] = [(7, "f4", 7), ((2, 3), "i8", 6), ((), "u1", 1), ([4], complex, 4)]
    for shape, dtype, count in forms:
        array = pinfold.memfd_array(shape, dtype)
        assert array.size == count and array.dtype == numpy.dtype(dtype) and not array.any()
        array[...] = 1
        assert array.sum() == count


def test_nothing_and_too_much_are_refused() -> None:
    for nbytes, code in ((0, Code.INVALID_RANGE), ((1 << 64) - 1, Code.INVALID_RANGE), (1 << 50, None)):
        with pytest.raises(Error) as caught:
            MemfdExporter().allocate(nbytes)
        assert code in (None, caught.value.code)
    with pytest.raises(Error):
        pinfold.memfd_array((0, 5))


def test_damaged_handle_is_refused() -> None:
    buffer = MemfdExporter().allocate(4096)
    with ImportCache.memfd() as peers:
        for at in (0, 8, 40, 71):
            handle = bytearray(buffer.handle)
            handle[at] ^= 1
            with pytest.raises(Error) as caught:
                peers.acquire(1, bytes(handle), buffer.address, 10)
            assert caught.value.code is Code.INVALID_HANDLE
