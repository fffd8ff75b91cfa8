# SPDX-License-Identifier: BSD-3-Clause
"""Memory that is freed by agreement with an importer in another process."""

import gc
import multiprocessing
import os
import threading
import time
from typing import Any, Iterator

import pytest

import pinfold
from pinfold import Code, Error, ImportCache, MemfdExporter, ReleaseAnswer, RetireState

spawn = multiprocessing.get_context("spawn")
SIZE = 16384
AMPLE = 60  # seconds, for what another process does on a busy machine


def imports(handle: bytes, address: int, orders: Any, answers: Any) -> None:
    """In the other process."""
    with ImportCache.memfd(releasing=True) as peers:
        lease: Any = None
        for order in iter(orders.get, "end"):
            if order == "lease":
                lease = peers.acquire(1, handle, address, SIZE)
                answers.put(bytes(lease.memory[:2]))
            elif order == "release":
                lease.release()
                lease = None
                answers.put(None)
            elif order == "find":
                found = peers.find(1, handle, address, SIZE)
                answers.put(found is not None)
                if found is not None:
                    found.release()
            else:
                try:
                    peers.acquire(1, handle, address, SIZE).release()
                    answers.put(None)
                except Error as refused:
                    answers.put(refused.code)


class Peer:
    """An importer in another process, which obeys the test."""

    def __init__(self, buffer: pinfold.MemfdBuffer) -> None:
        self.orders, self.answers = spawn.SimpleQueue(), spawn.SimpleQueue()
        given = (buffer.handle, buffer.address, self.orders, self.answers)
        self.process = spawn.Process(target=imports, args=given, daemon=True)
        self.process.start()

    def __call__(self, order: str) -> Any:
        self.orders.put(order)
        return self.answers.get()

    def end(self) -> None:
        self.orders.put("end")
        self.process.join(300)
        assert self.process.exitcode == 0


@pytest.fixture
def exporter() -> MemfdExporter:
    return MemfdExporter(release=True)


@pytest.fixture
def buffer(exporter: MemfdExporter) -> pinfold.MemfdBuffer:
    made = exporter.allocate(SIZE)
    made.memory[:2] = b"ok"
    return made


@pytest.fixture
def peer(buffer: pinfold.MemfdBuffer) -> Iterator[Peer]:
    made = Peer(buffer)
    yield made
    made.process.kill()
    made.process.join()


def test_idle_importer_lets_go_before_its_next_hit(
    exporter: MemfdExporter, buffer: pinfold.MemfdBuffer, peer: Peer
) -> None:  # R66
    assert peer("lease") == b"ok"
    peer("release")
    assert peer("find") is True
    report = exporter.retire(buffer, AMPLE)
    assert report.all_let_go and report.state is RetireState.FREED
    assert (report.let_go, report.died, report.holders, report.failure) == (1, 0, (), None)
    assert peer("find") is False
    assert peer("acquire") is Code.STALE_HANDLE
    assert exporter.retirements()["freed"] == 1
    peer.end()


def test_lease_is_reported_and_keeps_the_memory(
    exporter: MemfdExporter, buffer: pinfold.MemfdBuffer, peer: Peer
) -> None:  # R66
    peer("lease")
    ticket = exporter.begin_retire(buffer, 0.05)
    report = ticket.wait(0.05)
    end = time.monotonic() + AMPLE
    while [one.answer for one in report.holders] == [ReleaseAnswer.SILENT] and time.monotonic() < end:
        report = ticket.wait(0.01)
    assert report.state is RetireState.LIMBO and not report.all_let_go
    assert [(one.pid, one.answer, one.lost) for one in report.holders] == [
        (peer.process.pid, ReleaseAnswer.LEASED, False)
    ]
    assert exporter.retirements()["limbo_bytes"] == SIZE
    peer("release")
    assert ticket.wait(AMPLE).all_let_go and ticket.report().all_let_go
    peer.end()


def test_killed_importer_counts_as_gone(
    exporter: MemfdExporter, buffer: pinfold.MemfdBuffer, peer: Peer
) -> None:  # R66
    peer("lease")
    ticket = exporter.begin_retire(buffer, AMPLE)
    peer.process.kill()
    report = ticket.wait(AMPLE)
    assert report.all_let_go and report.died == 1


def test_interrupt_while_a_buffer_is_taken_frees_it_once(exporter: MemfdExporter, monkeypatch: Any) -> None:
    buffer = exporter.allocate(SIZE)

    def interrupted(code: int) -> None:
        assert code == 0
        raise KeyboardInterrupt  # as a handler of Ctrl-C does, between C's return and the next line

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(pinfold.exporters, "check", interrupted)
        exporter.begin_retire(buffer, AMPLE)
    with pytest.raises(ValueError):
        exporter.begin_retire(buffer, AMPLE)  # it was taken
    buffer.release()
    del buffer
    gc.collect()
    end = time.monotonic() + AMPLE
    while exporter.retirements()["freed"] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert exporter.retirements()["freed"] == 1


def test_no_limbo_frees_at_the_deadline() -> None:
    exporter = MemfdExporter(release=True, limbo_bytes=0)
    buffer = exporter.allocate(SIZE)
    with ImportCache.memfd(releasing=True) as peers, peers.acquire(1, buffer.handle, buffer.address, SIZE) as lease:
        ticket = exporter.begin_retire(buffer, 0)
        assert ticket.wait(AMPLE).state is RetireState.OVER_BUDGET
        assert bytes(lease.memory) == bytes(SIZE), "a mapping keeps its pages"


def test_retired_buffer_is_released(exporter: MemfdExporter) -> None:
    buffer = exporter.allocate(SIZE)
    assert exporter.retire(buffer, AMPLE).all_let_go
    with pytest.raises(ValueError, match="was released"):
        exporter.retire(buffer, AMPLE)
    with pytest.raises(ValueError, match="was released"):
        buffer.memory
    buffer.release()


def test_views_of_the_buffer_keep_it(exporter: MemfdExporter) -> None:
    buffer = exporter.allocate(SIZE)
    view = buffer.memory
    with pytest.raises(BufferError):
        exporter.retire(buffer, AMPLE)
    view[0] = 1
    del view
    assert exporter.retirements()["retirements"] == 0
    assert exporter.retire(buffer, AMPLE).all_let_go


def test_refused_retirement_leaves_the_buffer(exporter: MemfdExporter) -> None:
    buffer = exporter.allocate(SIZE)
    for other, code in ((MemfdExporter(), Code.UNSUPPORTED), (MemfdExporter(release=True), Code.INVALID_ARGUMENT)):
        with pytest.raises(Error) as caught:
            other.retire(buffer, AMPLE)
        assert caught.value.code is code
    buffer.memory[0] = 1
    assert exporter.retire(buffer, AMPLE).all_let_go
    with pytest.raises(ValueError):
        MemfdExporter(release=True, limbo_bytes=-1)


def test_importer_needs_an_exporter_with_release() -> None:
    buffer = MemfdExporter().allocate(SIZE)
    with ImportCache.memfd(releasing=True) as peers, pytest.raises(Error) as caught:
        peers.acquire(1, buffer.handle, buffer.address, SIZE)
    assert caught.value.code is Code.UNSUPPORTED


def test_ticket_keeps_its_exporter() -> None:
    exporter = MemfdExporter(release=True)
    buffer = exporter.allocate(SIZE)
    with ImportCache.memfd(releasing=True) as peers, peers.acquire(1, buffer.handle, buffer.address, SIZE):
        ticket = exporter.begin_retire(buffer, 0)
        del exporter
        gc.collect()
        assert ticket.report().state is RetireState.LIMBO


def test_caches_are_closed_while_exporters_ask() -> None:
    exporter = MemfdExporter(release=True)
    for _ in range(20):
        buffer = exporter.allocate(SIZE)
        with ImportCache.memfd(releasing=True) as peers:
            peers.acquire(os.getpid(), buffer.handle, buffer.address, SIZE).release()
            asks = threading.Thread(target=exporter.retire, args=(buffer, AMPLE))
            asks.start()
        asks.join()
    assert exporter.retirements()["freed"] == 20
