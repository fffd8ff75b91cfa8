# SPDX-License-Identifier: BSD-3-Clause
import sys

import pytest

import pinfold
from doubles import RecordingImporter
from pinfold import Code, Error, ImportCache, Options

BASE = 1 << 20


def test_handle_is_opened_once(peers: ImportCache, importer: RecordingImporter) -> None:  # R1
    handle = importer.handle(BASE, 8192)
    argument = object()
    with peers.acquire(5, handle, BASE + 100, 50, argument=argument) as lease:
        assert bytes(lease.memory) == bytes(lease.__buffer__(0)) == bytes([5]) * 50
        if sys.version_info >= (3, 12):
            assert memoryview(lease) == lease.memory
        assert lease.covered == (BASE, 8192)
        assert lease.registration == lease.address - 100
        with peers.acquire(5, handle, BASE, 8192) as whole:
            assert whole.address == lease.address - 100
    assert importer.opened == [(5, handle, argument)]
    assert peers.handle_bytes == 16


def test_writes_reach_the_memory(peers: ImportCache, importer: RecordingImporter) -> None:
    with peers.acquire(5, importer.handle(BASE, 100), BASE, 100) as lease:
        lease.memory[:3] = b"abc"
        assert next(iter(importer.live.values())).raw[:3] == b"abc"
        importer.writable = False


def test_memory_is_read_only_where_it_is_imported_so() -> None:
    importer = RecordingImporter()
    importer.writable = False
    with ImportCache(importer) as peers, peers.acquire(5, importer.handle(BASE, 100), BASE, 100) as lease:
        with pytest.raises(TypeError, match="read-only"):
            lease.memory[0] = 1


def test_memory_elsewhere_has_no_view() -> None:
    class Device(RecordingImporter):
        host_memory = False

    importer = Device()
    with ImportCache(importer) as peers, peers.acquire(5, importer.handle(BASE, 100), BASE, 100) as lease:
        with pytest.raises(BufferError, match="not host memory"):
            lease.memory
        with pytest.raises(BufferError, match="no number for the place"):
            with lease.tensor() as tensor:
                tensor.__dlpack_device__()


def test_other_handle_replaces_the_memory(peers: ImportCache, importer: RecordingImporter) -> None:  # R4, R5
    with peers.acquire(5, importer.handle(BASE, 8192), BASE, 100) as old:
        with peers.acquire(5, importer.handle(BASE, 4096), BASE, 100) as new:
            assert old.stale and not new.stale
            assert old.address != new.address


def test_wrong_input_is_refused(peers: ImportCache, importer: RecordingImporter) -> None:
    handle = importer.handle(BASE, 100)
    for code, arguments in (
        (Code.INVALID_HANDLE, (5, b"short", BASE, 10)),
        (Code.INVALID_HANDLE, (5, importer.handle(BASE, 0), BASE, 10)),
        (Code.INVALID_RANGE, (5, handle, BASE + 60, 50)),
        (Code.INVALID_RANGE, (5, handle, BASE, 0)),
    ):
        with pytest.raises(Error) as caught:
            peers.acquire(*arguments)
        assert caught.value.code is code
    with pytest.raises(TypeError, match="a handle is bytes"):
        peers.acquire(5, "text", BASE, 10)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        peers.acquire(-5, handle, BASE, 10)
    assert importer.opened == []


def test_exceptions_reach_the_caller(peers: ImportCache, importer: RecordingImporter) -> None:
    handle = importer.handle(BASE, 100)
    importer.refuse_check = ValueError("not mine")
    with pytest.raises(Error) as caught:
        peers.acquire(5, handle, BASE, 10)
    assert caught.value.__cause__ is importer.refuse_check
    importer.refuse_check, importer.refuse = None, Error(Code.STALE_HANDLE, "it is gone")
    with pytest.raises(Error, match="it is gone") as caught:
        peers.acquire(5, handle, BASE, 10)
    assert caught.value.code is Code.STALE_HANDLE and caught.value.__cause__ is importer.refuse


def test_impossible_result_is_closed_again(peers: ImportCache, importer: RecordingImporter) -> None:  # R10
    handle = importer.handle(BASE, 100)
    for base, nbytes in ((-1, 100), (BASE, 10)):
        importer.result = pinfold.Imported(base, nbytes, 4096, registration=base)
        with pytest.raises(Error):
            peers.acquire(5, handle, BASE, 10)
    assert importer.closed == [-1, BASE]
    assert peers.statistics()["open"] == 0


def test_closed_cache_gives_no_view_of_its_memory(importer: RecordingImporter) -> None:  # R42
    peers = ImportCache(importer, Options(drain_timeout_ms=0))
    with peers.acquire(5, importer.handle(BASE, 100), BASE, 100) as lease:
        peers.close()
        assert lease.closed
        with pytest.raises(ValueError, match="was closed"):
            lease.memory


def test_find_and_drop_and_invalidate(peers: ImportCache, importer: RecordingImporter) -> None:  # R3, R48
    handle = importer.handle(BASE, 100)
    assert peers.find(5, handle, BASE, 10) is None
    peers.acquire(5, handle, BASE, 10).release()
    found = peers.find(5, handle, BASE, 10)
    assert found is not None
    with found:
        peers.invalidate(5, BASE, 100)
        assert found.stale
    peers.acquire(5, handle, BASE, 10).release()
    peers.drop_peer(5)
    assert not importer.live and peers.find(5, handle, BASE, 10) is None


def test_caches_do_not_have_each_others_calls(peers: ImportCache) -> None:
    assert not hasattr(peers, "acquire_batch") and not hasattr(pinfold.Cache, "drop_peer")


def test_importer_has_to_name_the_length_of_handles() -> None:
    for length in (0, 897):
        importer = RecordingImporter()
        importer.handle_bytes = length
        with pytest.raises(Error) as caught:
            ImportCache(importer)
        assert caught.value.code is Code.INVALID_ARGUMENT
