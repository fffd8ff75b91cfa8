# SPDX-License-Identifier: BSD-3-Clause
"""Registration in the background."""

from __future__ import annotations

import contextlib
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Sequence

from pinfold._callbacks import Call, finish, serve
from pinfold._held import Held
from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.batch import all_locked
from pinfold.constants import CancelPolicy, Code, Order, Prefault
from pinfold.errors import as_exception, check, last_failure
from pinfold.large import LargeLease, Part, Progress

if TYPE_CHECKING:
    from pinfold._cache import BaseCache

_SLICE_MS = 100  # so that signals are handled meanwhile


@dataclass(frozen=True)
class BackgroundProgress:
    """The progress of a registration."""

    bytes_done: int
    bytes_total: int
    pieces_done: int
    pieces_total: int
    running: bool


class Background(Held, Owner):
    """A ticket for memory that threads of the library register. The end of a `with` statement, or `release`, cancels what
    is not registered and gives back the rest, unless `take` has taken it."""

    def __init__(
        self,
        cache: BaseCache,
        memories: Sequence[object],
        access: int | None,
        piece_bytes: int,
        workers: int,
        order: Order,
        prefault: Prefault,
        bytes_per_second: int,
        first_piece_bytes: int,
        progress: Callable[[int, int], object] | None,
        argument: object,
    ) -> None:
        super().__init__()
        self.cache = cache
        self._buffers, wanted = all_locked(memories, access)
        self._call, self._told = Call(argument), Progress(progress)
        request, handle = self._call.handle(), self._told.handle()
        ranges = ffi.new("pinfold_range[]", [(int(ffi.cast("uintptr_t", one)), len(one)) for one in self._buffers])
        how = ffi.new("pinfold_background_options *")
        how.size = ffi.sizeof("pinfold_background_options")
        how.piece_bytes, how.workers, how.order, how.argument = piece_bytes, workers, order, request
        how.prefault, how.bytes_per_second, how.first_piece_bytes = prefault, bytes_per_second, first_piece_bytes
        how.progress, how.self = self._told.function(), handle
        made = ffi.new("pinfold_background **")
        self._own(_collected, made, self._told, serve((request, handle, self._buffers)), at_exit=True)
        try:
            if cache._call(lib.pinfold_register_in_background, ranges, len(self._buffers), wanted, how, made):
                raise last_failure(self._call.raised)
        except BaseException:
            self._free()  # a signal's handler may raise when the threads use them already
            raise
        self._ticket = made[0]
        self._told.stop = _Cancel(self)
        if self._told.raised is not None:
            self._told.stop()  # it was raised before

    @property
    def progress(self) -> BackgroundProgress:
        """The progress of the registration."""
        now = ffi.new("pinfold_background_progress *")
        now.size = ffi.sizeof("pinfold_background_progress")
        check(self._ask(lib.pinfold_background_progress_of, now))
        return BackgroundProgress(now.bytes_done, now.bytes_total, now.pieces_done, now.pieces_total, bool(now.running))

    @property
    def ready_up_to(self) -> int:
        """The end of the registered part that begins at the lowest address; 0 if the ticket is closed."""
        return self._ask(lib.pinfold_background_ready_end)

    @property
    def failure(self) -> tuple[BaseException, tuple[int, int]] | None:
        """The first failure, and the address and length of its piece."""
        failure, where = ffi.new("pinfold_error *"), ffi.new("pinfold_range *")
        if not self._ask(lib.pinfold_background_failure, failure, where):
            return None
        return as_exception(failure, self._call.raised), (where.base, where.bytes)

    def ready(self, address: int, nbytes: int) -> bool:
        """Returns whether all of the memory is registered and not stale."""
        return bool(self._ask(lib.pinfold_background_is_ready, ffi.cast("void *", address), nbytes))

    def acquire(self, address: int, nbytes: int) -> LargeLease:
        """Returns a separate lease on memory that is ready; it outlives the ticket."""
        made = ffi.new("pinfold_large **")
        check(self._ask(lib.pinfold_background_acquire, ffi.cast("void *", address), nbytes, made))
        return LargeLease(self.cache, made[0], self._buffers)

    def parts(self, address: int, nbytes: int) -> list[Part]:
        """Returns the parts of registrations that make up memory that is ready. They are valid as long as the ticket."""
        with self.acquire(address, nbytes) as lease:
            return lease.parts(address, nbytes)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until no thread registers any more, at most `timeout` seconds. Raises the first failure, and the
        exception of `progress`."""
        self._wait(timeout, lib.pinfold_background_wait)

    def wait_until_ready(self, end: int, timeout: float | None = None) -> None:
        """Waits until `ready_up_to` is at least `end`."""
        self._wait(timeout, lib.pinfold_background_wait_until_ready, end)

    def cancel(self, policy: CancelPolicy = CancelPolicy.GIVE_BACK) -> None:
        """Stops the threads, each at the end of its piece, and waits for them."""
        check(self._ask(lib.pinfold_background_cancel, policy))

    def stale(self) -> list[tuple[int, int]]:
        """Returns the address and the length of each piece that is stale."""
        count = self.progress.pieces_total
        pieces, found = ffi.new("pinfold_range[]", count), ffi.new("size_t *")
        check(self._ask(lib.pinfold_background_stale, pieces, count, found))
        return [(pieces[i].base, pieces[i].bytes) for i in range(found[0])]

    def renew(self) -> None:
        """Registers stale pieces in the background, and those that a failure or a cancel left out."""
        self._told.raised = None
        check(self._ask(lib.pinfold_background_renew))

    def take(self) -> LargeLease:
        """Returns all leases as one if everything is registered. The ticket is then empty."""
        made = ffi.new("pinfold_large **")
        if self._ask(lib.pinfold_background_take, made):
            raise last_failure(self._call.raised)
        return LargeLease(self.cache, made[0], self._buffers)

    def _wait(self, timeout: float | None, wait: Any, *given: Any) -> None:
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            running = self.progress.running  # first: a piece that ends after the query is not in its result
            code = self._ask(wait, *given, max(0, min(_SLICE_MS, int(left * 1000) if left < 1e6 else _SLICE_MS)))
            if code != Code.TIMED_OUT or left <= 0 or not running:
                break
        failure = last_failure(self._call.raised) if code else None
        if self._told.raised is not None:
            raise self._told.raised
        if failure is not None:
            raise failure

    def _ask(self, question: Any, *given: Any) -> int:
        self.hold()
        try:
            answer: int = question(self._ticket, *given)
            return answer
        finally:
            self.drop()

    def _give_back(self) -> None:
        owned = self._free.detach()
        if owned is None:
            return  # by another thread, at the end of the process, or in the parent of this process
        if _is_refused(owned[2][0]):
            refused = last_failure(self._call.raised)
            self._own(_collected, *owned[2], at_exit=True)
            self._released = False
            raise refused
        code = _end(*owned[2])
        failure = last_failure(self._call.raised) if code else None
        self._buffers = []
        if failure is not None:
            raise failure

    def _leave_to_parent(self) -> None:
        owned = self._free.detach()
        if owned is not None:
            finish(owned[2][-1])  # the child does not have the threads that use it


class _Cancel:
    """Cancels a ticket that has not ended. On the library's own thread, a cancel does not wait."""

    def __init__(self, ticket: Background) -> None:
        self._ticket = weakref.ref(ticket)

    def __call__(self) -> None:
        ticket = self._ticket()
        if ticket is None:
            return
        with contextlib.suppress(ValueError):  # it was released, which cancels it
            ticket._ask(lib.pinfold_background_cancel, CancelPolicy.KEEP)


def _end(made: Any, told: Progress, used: Any) -> int:
    """Ends the ticket, if there is one. Keeps the objects that its threads use if a signal's handler raises, if the library
    refuses because this is a callback of the cache, or if a thread is still in a driver or in the callback: the threads
    do not report their end."""
    told.stop = lambda: None
    called_by_its_thread = told.on_this_thread()
    code: int = lib.pinfold_background_end(made[0])
    if code not in (Code.TIMED_OUT, Code.IN_USE_CONFLICT) and not called_by_its_thread:
        finish(used)
    return code


def _is_refused(made: Any) -> bool:
    """Whether C would refuse to end the ticket: the code of `_end` may also be that of a failed close."""
    code = lib.pinfold_background_acquire(made[0], ffi.NULL, 0, ffi.new("pinfold_large **"))  # acquires nothing
    return bool(code == Code.IN_USE_CONFLICT)


def _collected(made: Any, told: Progress, used: Any) -> int:
    if _is_refused(made):
        return Code.IN_USE_CONFLICT
    _end(made, told, used)
    return 0
