# SPDX-License-Identifier: BSD-3-Clause
import mmap
import os

import pytest

from pinfold import Code, Error, ImportCache, MemfdExporter

PAGE = mmap.PAGESIZE


def test_segments_are_adjacent_in_a_window() -> None:
    memory = MemfdExporter().reserve(8 * PAGE)
    with ImportCache.memfd() as peers:
        first = peers.add_window(memory.window)
        handles = [memory.add(4 * PAGE, PAGE), memory.add(5 * PAGE, 2 * PAGE)]
        memory.memory(5 * PAGE)[:5] = b"grown"
        leases = [
            peers.acquire(os.getpid(), handle, memory.address + offset * PAGE, PAGE)
            for handle, offset in zip(handles, (4, 5))
        ]
        assert [lease.address - first for lease in leases] == [4 * PAGE, 5 * PAGE]
        assert bytes(leases[1].memory[:5]) == b"grown"
        with pytest.raises(Error) as caught:
            peers.remove_window(memory.window)
        assert caught.value.code is Code.IN_USE_CONFLICT
        for lease in leases:
            lease.release()
        peers.flush()
        peers.remove_window(memory.window)


def test_only_the_removed_segment_is_stale() -> None:
    memory = MemfdExporter().reserve(4 * PAGE)
    kept, gone = memory.add(0, PAGE), memory.add(PAGE, PAGE)
    memory.remove(PAGE, PAGE)
    with ImportCache.memfd() as peers:
        peers.acquire(1, kept, memory.address, PAGE).release()
        with pytest.raises(Error) as caught:
            peers.acquire(1, gone, memory.address + PAGE, PAGE)
        assert caught.value.code is Code.STALE_HANDLE


def test_views_keep_segments() -> None:
    memory = MemfdExporter().reserve(PAGE)
    memory.add(0, PAGE)
    view = memory.memory(0)
    with pytest.raises(BufferError):
        memory.remove(0, PAGE)
    memory.release()
    view[0] = 1
    del view
    with pytest.raises(ValueError):
        memory.add(0, PAGE)


def test_can_open_says_why_not() -> None:
    buffer = MemfdExporter().allocate(PAGE)
    with ImportCache.memfd() as peers:
        peers.can_open(buffer.handle)
        assert peers.statistics()["opens"] == 0
        with pytest.raises(Error) as caught:
            peers.can_open(bytes(len(buffer.handle)))
        assert caught.value.code is Code.INVALID_HANDLE
        with pytest.raises(Error) as caught:
            peers.can_open(b"short")
        assert caught.value.code is Code.INVALID_ARGUMENT
