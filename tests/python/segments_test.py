# SPDX-License-Identifier: BSD-3-Clause
import mmap
import os
from typing import Callable

import pytest

from doubles import RecordingImporter
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


def code_of(refused: Callable[[], object]) -> Code:
    with pytest.raises(Error) as caught:
        refused()
    return caught.value.code


def test_handles_of_segments_are_listed() -> None:
    memory = MemfdExporter().reserve(64 * PAGE)
    added = [memory.add(one * PAGE, PAGE) for one in range(40)]
    assert memory.handles(0, 40 * PAGE) == added
    assert memory.handles(PAGE + 1, PAGE) == added[1:3]
    for offset, nbytes in ((39 * PAGE, 2 * PAGE), (64 * PAGE, PAGE), (0, 0), (2**64 - PAGE, PAGE)):
        assert code_of(lambda: memory.handles(offset, nbytes)) is Code.INVALID_RANGE
    memory.release()
    with pytest.raises(ValueError):
        memory.handles(0, PAGE)


def test_all_segments_under_a_range_are_leased() -> None:
    memory = MemfdExporter().reserve(8 * PAGE)
    for offset, nbytes in ((0, PAGE), (PAGE, 2 * PAGE), (3 * PAGE, PAGE)):
        memory.add(offset, nbytes)
        memory.memory(offset)[:1] = bytes([offset // PAGE])
    with ImportCache.memfd() as peers:
        first = peers.add_window(memory.window)
        handles = memory.handles(0, 4 * PAGE)[::-1]
        with peers.acquire_segments(1, handles, memory.address + 1, 3 * PAGE) as segments:
            assert [one.address - memory.address for one in segments] == [1, PAGE, 3 * PAGE]
            assert [one.lease.nbytes for one in segments] == [PAGE - 1, 2 * PAGE, 1]
            assert segments.address == first + 1 and segments.nbytes == 3 * PAGE and not segments.stale
            assert segments.at(memory.address + 2 * PAGE) is segments[1] and len(segments) == 3
            assert [one.lease.memory[0] for one in segments][1:] == [1, 3]
            for outside in (memory.address, memory.address + 3 * PAGE + 1):
                with pytest.raises(ValueError):
                    segments.at(outside)
            peers.invalidate(1, memory.address + PAGE, PAGE)
            assert segments.stale
        assert peers.statistics()["leases_now"] == 0
        memory.remove(PAGE, 2 * PAGE)
        memory.add(PAGE, 2 * PAGE)
        peers.acquire_segments(1, memory.handles(0, 4 * PAGE), memory.address, 4 * PAGE).release()
        assert peers.statistics()["opens"] == 4


def test_segments_that_are_not_adjacent_have_no_address() -> None:
    memory = MemfdExporter().reserve(8 * PAGE)
    memory.add(0, PAGE)
    with ImportCache.memfd() as peers:
        with peers.acquire_segments(1, memory.handles(0, PAGE), memory.address, PAGE):
            between = mmap.mmap(-1, PAGE)  # so that the next mapping may not be where the first one would like it
            memory.add(PAGE, PAGE)
            with peers.acquire_segments(1, memory.handles(0, 2 * PAGE), memory.address, 2 * PAGE) as both:
                adjacent = both[1].lease.address == both[0].lease.address + PAGE
                assert both.address == (both[0].lease.address if adjacent else None)
            between.close()


def test_a_segment_that_fails_leaves_no_lease() -> None:
    memory = MemfdExporter().reserve(4 * PAGE)
    handles = [memory.add(one * PAGE, PAGE) for one in range(3)]
    at = memory.address
    memory.remove(2 * PAGE, PAGE)
    with ImportCache.memfd() as peers:
        assert code_of(lambda: peers.acquire_segments(1, handles, at, 3 * PAGE)) is Code.STALE_HANDLE
        assert code_of(lambda: peers.acquire_segments(1, handles[:1], at, 2 * PAGE)) is Code.INVALID_RANGE
        assert code_of(lambda: peers.acquire_segments(1, [], at, PAGE)) is Code.INVALID_RANGE
        assert code_of(lambda: peers.acquire_segments(1, handles[:1] * 2, at, PAGE)) is Code.INVALID_HANDLE
        assert code_of(lambda: peers.acquire_segments(1, [b"short"], at, PAGE)) is Code.INVALID_HANDLE
        with pytest.raises(ValueError):
            peers.acquire_segments(1, [handles[0], b"short"], at, PAGE)
        with pytest.raises(TypeError):
            peers.acquire_segments(1, [bytearray(handles[0])], at, PAGE)
        assert peers.statistics()["leases_now"] == 0


def test_importers_in_python_have_segments(peers: ImportCache, importer: RecordingImporter) -> None:
    handles = [importer.handle(base, 4096) for base in (4096, 8192)]
    importer.refuse = Error(Code.NOT_PERMITTED, "refused")
    assert code_of(lambda: peers.acquire_segments(5, handles, 4096, 8192)) is Code.NOT_PERMITTED
    importer.refuse = None
    with peers.acquire_segments(5, handles, 4097, 8000) as segments:
        assert [bytes(one.lease.memory[:1]) for one in segments] == [b"\5", b"\5"]
    assert [one for _, one, _ in importer.opened] == [handles[0], *handles]
    importer.refuse_check = Error(Code.INVALID_HANDLE, "refused")
    assert code_of(lambda: peers.acquire_segments(5, handles, 4096, 8192)) is Code.INVALID_HANDLE
