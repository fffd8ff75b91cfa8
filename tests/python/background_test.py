# SPDX-License-Identifier: BSD-3-Clause
import gc
import threading
from typing import Any

import pytest

import pinfold
from doubles import RecordingRegistrar
from pinfold import Background, Cache, CancelPolicy, Code, Error, Options, Order, Prefault

MIB = 1 << 20
PIECE = 65536


class SlowRegistrar(RecordingRegistrar):
    """Opens only what the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_open = threading.Semaphore(0)

    def open(self, request: pinfold.OpenRequest) -> object:
        self.may_open.acquire()
        return super().open(request)


def test_large_lease_covers_the_buffer(cache: Cache, registrar: RecordingRegistrar) -> None:  # R65
    memory = bytearray(MIB)
    told: list[tuple[int, int]] = []
    base, nbytes = pinfold.range_of(memory)
    with cache.acquire_large(
        memory,
        piece_bytes=PIECE,
        workers=2,
        progress=lambda done, total: told.append((done, total)),
        argument="argument",
    ) as lease:
        assert told[-1] == (MIB, MIB)
        assert {request.argument for request in registrar.opened} == {"argument"}
        assert lease.nbytes == nbytes and len(lease) == len(registrar.opened) and not lease.stale
        assert lease[0].address == base and lease[-1].address + lease[-1].nbytes == base + nbytes
        assert lease.at(base + nbytes - 1) == lease[-1]
        parts = lease.parts(base + PIECE - 5, PIECE + 10)
        assert sum(part.nbytes for part in parts) == PIECE + 10
        assert all(part.registration in registrar.live for part in parts)
        with pytest.raises(IndexError):
            lease[len(lease)]
        with pytest.raises(Error) as caught:
            lease.at(base - 1)
        assert caught.value.code is Code.INVALID_RANGE
        with pytest.raises(BufferError):
            memory.append(1)
    assert lease.released
    with pytest.raises(ValueError):
        len(lease)
    memory.append(1)


def test_large_lease_above_the_budget_is_refused() -> None:  # R65
    registrar = RecordingRegistrar()
    with Cache(registrar, Options(monitor=pinfold.Monitor.MANUAL, max_count=3)) as cache:
        with pytest.raises(Error) as caught:
            cache.acquire_large(bytearray(MIB), piece_bytes=PIECE)
        assert caught.value.code is Code.LARGER_THAN_BUDGET and not registrar.opened


def test_exception_in_progress_reaches_the_caller(cache: Cache) -> None:
    def progress(done: int, total: int) -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError):
        cache.acquire_large(bytearray(MIB), piece_bytes=PIECE, progress=progress)
    with cache.register_in_background(bytearray(MIB), piece_bytes=PIECE, workers=1, progress=progress) as ticket:
        with pytest.raises(KeyError):
            ticket.wait(60)
        assert not ticket.progress.running


def test_everything_is_registered_and_taken(cache: Cache) -> None:  # R65
    memory = bytearray(MIB)
    told: list[tuple[int, int]] = []
    base, nbytes = pinfold.range_of(memory)
    ticket = cache.register_in_background(
        memory, piece_bytes=PIECE, progress=lambda done, total: told.append((done, total))
    )
    ticket.wait(60)
    now = ticket.progress
    assert (now.bytes_done, now.bytes_total, now.running) == (MIB, MIB, False)
    assert now.pieces_done == now.pieces_total and told[-1] == (MIB, MIB)
    assert ticket.ready_up_to == base + nbytes and ticket.ready(base, nbytes) and not ticket.ready(base, nbytes + 1)
    assert ticket.failure is None and ticket.stale() == []
    lease = ticket.take()
    with pytest.raises(Error) as caught:
        ticket.take()
    assert caught.value.code is Code.CLOSED
    ticket.release()
    ticket.release()
    assert lease.nbytes == nbytes
    lease.release()
    memory.append(1)


def test_part_that_is_ready_can_be_used() -> None:  # R65
    registrar = SlowRegistrar()
    memory = bytearray(MIB)
    base, _ = pinfold.range_of(memory)
    with Cache(registrar, Options(monitor=pinfold.Monitor.MANUAL)) as cache:
        with cache.register_in_background(memory, piece_bytes=PIECE, workers=1) as ticket:
            with pytest.raises(Error) as caught:
                ticket.wait(0.01)
            assert caught.value.code is Code.TIMED_OUT
            registrar.may_open.release(2)
            ticket.wait_until_ready(base + PIECE, 60)
            with ticket.acquire(base, PIECE) as lease:
                assert lease.nbytes == PIECE
            assert sum(part.nbytes for part in ticket.parts(base + 1, PIECE - 1)) == PIECE - 1
            registrar.may_open.release(100)
            ticket.cancel(CancelPolicy.KEEP)
            ticket.renew()
            ticket.wait()
        assert cache.statistics()["leases_now"] == 0


def test_first_failure_has_its_cause_and_its_piece(cache: Cache, registrar: RecordingRegistrar) -> None:  # R65
    registrar.refuse = OSError(5, "no")
    memory = bytearray(MIB)
    with cache.register_in_background(memory, piece_bytes=PIECE, workers=1) as ticket:
        with pytest.raises(Error) as caught:
            ticket.wait(60)
        assert caught.value.native == 5
        failure = ticket.failure
        assert failure is not None and isinstance(failure[0], Error) and failure[0].native == 5
        assert failure[1][0] == pinfold.range_of(memory)[0]
        registrar.refuse = None
        ticket.renew()
        ticket.wait(60)


def test_stale_pieces_are_renewed(cache: Cache, registrar: RecordingRegistrar) -> None:  # R65
    memory = bytearray(MIB)
    base, nbytes = pinfold.range_of(memory)
    with cache.register_in_background(memory, piece_bytes=PIECE) as ticket:
        ticket.wait(60)
        cache.invalidate(base + MIB // 2, 1)
        [(stale, length)] = ticket.stale()
        assert stale <= base + MIB // 2 < stale + length
        with pytest.raises(Error) as caught:
            ticket.acquire(base, nbytes)
        assert caught.value.code is Code.STALE_HANDLE
        before = len(registrar.opened)
        ticket.renew()
        ticket.wait(60)
        assert len(registrar.opened) == before + 1 and ticket.ready(base, nbytes)


def test_several_buffers_largest_first(cache: Cache, registrar: RecordingRegistrar) -> None:  # R65
    buffers = [bytearray(size) for size in (PIECE // 2, MIB, 2 * PIECE)]
    with cache.register_in_background(buffers, piece_bytes=4 * MIB, workers=1, order=Order.LARGEST_FIRST) as ticket:
        ticket.wait(60)
    sizes = [request.nbytes for request in registrar.opened]
    assert len(sizes) == 3 and sizes == sorted(sizes, reverse=True)


def test_ticket_outlives_its_cache() -> None:
    registrar = RecordingRegistrar()
    cache = Cache(registrar, Options(monitor=pinfold.Monitor.MANUAL, drain_timeout_ms=0))
    ticket = cache.register_in_background(bytearray(MIB), piece_bytes=PIECE)
    cache.close()
    with pytest.raises(Error) as caught:
        ticket.take()
    assert caught.value.code is Code.CLOSED
    ticket.release()
    assert not registrar.live


def test_forgotten_ticket_gives_back(cache: Cache) -> None:
    ticket: Background | None = cache.register_in_background(bytearray(MIB), piece_bytes=PIECE)
    del ticket
    gc.collect()
    assert cache.statistics()["leases_now"] == 0


def test_another_thread_may_wait(cache: Cache) -> None:
    with cache.register_in_background(bytearray(MIB), piece_bytes=PIECE) as ticket:
        waits = [threading.Thread(target=ticket.wait) for _ in range(4)]
        for thread in waits:
            thread.start()
        for thread in waits:
            thread.join()


def test_release_in_a_callback_is_refused_and_may_be_repeated() -> None:
    class Releasing(RecordingRegistrar):
        def open(self, request: pinfold.OpenRequest) -> object:
            if request.argument == "release":
                with pytest.raises(Error) as caught:
                    ticket.release()
                refused.append(caught.value.code)
            return super().open(request)

    refused: list[Code] = []
    registrar, memory = Releasing(), bytearray(MIB)
    with Cache(registrar, Options(monitor=pinfold.Monitor.MANUAL)) as cache:
        ticket = cache.register_in_background(memory, piece_bytes=PIECE)
        cache.acquire(bytearray(10), argument="release").release()
        assert refused == [Code.IN_USE_CONFLICT]
        ticket.wait(60)
        ticket.release()
        gc.collect()  # the exception's traceback
        memory.append(1)


def test_child_of_fork_leaves_the_ticket_to_the_parent(run: Any, request: Any) -> None:  # R37
    program = """
import gc, os, sys, pinfold
sys.path.insert(0, sys.argv[1])
from doubles import RecordingRegistrar
cache = pinfold.Cache(RecordingRegistrar(), pinfold.Options(monitor=pinfold.Monitor.MANUAL))
memory = bytearray(1 << 24)
ticket = cache.register_in_background(memory, piece_bytes=65536)
child = os.fork()
if child == 0:
    try:
        ticket.wait(1)
    except pinfold.Error as failure:
        print(failure.code.name, flush=True)
    del ticket
    gc.collect()
    memory.append(1)
    os._exit(0)
print(os.waitpid(child, 0)[1])
ticket.wait(60)
ticket.release()
"""
    assert run(program, str(request.path.parent)).split() == ["CLOSED", "0"]


def test_rate_and_prefault(cache: Cache, registrar: RecordingRegistrar) -> None:
    memory = bytearray(MIB)
    base, _ = pinfold.range_of(memory)
    with cache.register_in_background(
        memory, piece_bytes=PIECE, workers=2, prefault=Prefault.PAGES, bytes_per_second=1
    ) as ticket:
        ticket.wait_until_ready(base + 1, 60)
        with pytest.raises(Error) as caught:
            ticket.wait(0.05)
        assert caught.value.code is Code.TIMED_OUT
        assert len(registrar.opened) == 1
        ticket.cancel(CancelPolicy.KEEP)
        assert ticket.failure is None


def test_thread_that_outlasts_its_ticket_may_use_what_it_was_given(run: Any, request: Any) -> None:
    program = """
import gc, sys, threading, time, pinfold
sys.path.insert(0, sys.argv[1])
from doubles import RecordingRegistrar

class Refusing(RecordingRegistrar):
    def __init__(self):
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def open(self, request):
        self.begun.set()
        self.go.wait()
        raise OSError(5, "no")

def release(ticket):
    try:
        ticket.release()
    except pinfold.Error as failure:
        print(failure.code.name, flush=True)

how = pinfold.Options(monitor=pinfold.Monitor.MANUAL, wait_timeout_ms=20)
done = threading.Event()

def fails(done_bytes, total):
    begun.set()
    go.wait()
    done.set()
    raise KeyError("stop")

registrar = Refusing()
cache = pinfold.Cache(registrar, how)
ticket = cache.register_in_background(bytearray(1 << 20), workers=1, argument=object())
registrar.begun.wait()
release(ticket)
del ticket
gc.collect()
noise = [pinfold._callbacks.Call(None).handle() for _ in range(1000)]
registrar.go.set()
while not cache.statistics()["failed_acquires"]:
    time.sleep(0.01)
cache.close()

begun, go = threading.Event(), threading.Event()
cache = pinfold.Cache(RecordingRegistrar(), how)
ticket = cache.register_in_background(bytearray(1 << 20), piece_bytes=65536, workers=1, progress=fails)
begun.wait()
release(ticket)
del ticket
gc.collect()
go.set()
done.wait()
cache.close()
"""
    assert run(program, str(request.path.parent)).split() == ["TIMED_OUT", "TIMED_OUT"]


def test_thread_that_ends_just_after_a_question_is_no_timeout(monkeypatch: Any) -> None:
    registrar = SlowRegistrar()
    with Cache(registrar, Options(monitor=pinfold.Monitor.MANUAL)) as cache:
        with cache.register_in_background(bytearray(MIB), piece_bytes=PIECE) as ticket:
            ask = ticket._ask

            def first_times_out(question: Any, *given: Any) -> int:
                if question is not pinfold._library.lib.pinfold_background_wait:
                    return ask(question, *given)
                monkeypatch.undo()
                registrar.may_open.release(100)
                assert ask(question, 60_000) == 0
                return Code.TIMED_OUT

            monkeypatch.setattr(ticket, "_ask", first_times_out)
            ticket.wait(60)
