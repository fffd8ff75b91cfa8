# SPDX-License-Identifier: BSD-3-Clause
"""One lease on memory of any size, in pieces."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator

from pinfold._callbacks import Call, callback, member
from pinfold._held import Held
from pinfold._library import ffi, lib
from pinfold._memory import locked
from pinfold._owned import Owner
from pinfold.errors import check, last_failure

if TYPE_CHECKING:
    from pinfold._cache import BaseCache


@dataclass(frozen=True)
class Part:
    """A part of registered memory, in the form that a device needs."""

    address: int
    nbytes: int
    registration: Any


class Progress:
    """A function that gets the registered bytes and the bytes in all. Keeps the exception that it raised."""

    def __init__(self, function: Callable[[int, int], object] | None) -> None:
        self._function = function
        self.raised: BaseException | None = None
        self.stop: Callable[[], None] = lambda: None
        self._thread: int | None = None

    def handle(self) -> Any:
        """Returns the handle for C, which the caller keeps as long as C may use it."""
        return ffi.new_handle(self) if self._function is not None else ffi.NULL

    def function(self) -> Any:
        return _progress() if self._function is not None else ffi.NULL

    def tell(self, done: int, total: int) -> None:
        if self._function is None or self.raised is not None:
            return
        self._thread = threading.get_ident()
        try:
            self._function(done, total)
        except BaseException as raised:
            self.raised = raised
            self.stop()
        finally:
            self._thread = None

    def on_this_thread(self) -> bool:
        """Returns whether this is called from the running function."""
        return self._thread == threading.get_ident()


@callback(member("pinfold_large_options", "progress"))
def _progress(progress: Any, done: int, total: int) -> None:
    ffi.from_handle(progress).tell(done, total)


class LargeLease(Held, Owner):
    """A lease on memory of this process of any size. Release it, or use it in a `with` statement. A release while another
    thread uses the lease takes effect after that use."""

    def __init__(self, cache: BaseCache, large: Any, buffers: object) -> None:
        super().__init__()
        self.cache = cache
        self._large = large
        self._buffers = buffers
        self._own(_release, large, buffers, at_exit=True)

    @property
    def released(self) -> bool:
        return self._released

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self)

    @property
    def stale(self) -> bool:
        """Whether memory of a piece was replaced or invalidated after the acquire. The registrations are still open."""
        return bool(self._ask(lib.pinfold_large_is_stale))

    def __len__(self) -> int:
        """Returns the number of pieces."""
        return self._ask(lib.pinfold_large_pieces)

    def __getitem__(self, number: int) -> Part:
        """Returns a piece, by address."""
        count = len(self)
        number = number + count if number < 0 else number
        if not 0 <= number < count:
            raise IndexError(f"the lease has {count} pieces")
        return self._piece(lib.pinfold_large_piece, number)

    def __iter__(self) -> Iterator[Part]:
        return (self[number] for number in range(len(self)))

    def at(self, address: int) -> Part:
        """Returns the piece that contains the address, in logarithmic time."""
        return self._piece(lib.pinfold_large_at, ffi.cast("void *", address))

    def parts(self, address: int, nbytes: int) -> list[Part]:
        """Returns the parts of registrations that make up the memory, by address."""
        self.hold()
        try:
            where, count = ffi.cast("void *", address), ffi.new("size_t *")
            check(lib.pinfold_large_list(self._large, where, nbytes, ffi.NULL, 0, count))
            found = ffi.new("pinfold_part[]", count[0])
            check(lib.pinfold_large_list(self._large, where, nbytes, found, count[0], count))
            return [
                Part(int(ffi.cast("uintptr_t", one.address)), one.bytes, self.cache._registration(one.registration))
                for one in found
            ]
        finally:
            self.drop()

    def _piece(self, find: Any, which: Any) -> Part:
        self.hold()
        try:
            where, lease = ffi.new("pinfold_range *"), ffi.new("pinfold_lease *")
            check(find(self._large, which, where, lease))
            registration = lib.pinfold_registration_of(lease[0])
            return Part(where.base, where.bytes, self.cache._registration(registration))
        finally:
            self.drop()

    def _ask(self, question: Any) -> int:
        self.hold()
        try:
            answer: int = question(self._large)
            return answer
        finally:
            self.drop()

    def _give_back(self) -> None:
        if self._free.detach() is None:
            return  # by another thread, at the end of the process, or in the parent of this process
        code = lib.pinfold_large_release(self._large)
        self._buffers = None
        if code:
            raise last_failure()


def _release(large: Any, *_used_until_then: object) -> None:
    lib.pinfold_large_release(large)


def acquire(
    cache: BaseCache,
    memory: object,
    access: int | None,
    piece_bytes: int,
    workers: int,
    file: int | None,
    progress: Callable[[int, int], object] | None,
    argument: object,
) -> LargeLease:
    buffer, wanted = locked(memory, access)
    call, told = Call(argument), Progress(progress)
    request, handle = call.handle(), told.handle()
    how = ffi.new("pinfold_large_options *")
    how.size = ffi.sizeof("pinfold_large_options")
    how.piece_bytes, how.workers, how.argument = piece_bytes, workers, request
    how.progress, how.self = told.function(), handle
    if file is not None:
        how.flags, how.file = lib.PINFOLD_FILE, file
    made = ffi.new("pinfold_large **")
    if cache._call(lib.pinfold_acquire_large, buffer, len(buffer), wanted, how, made):
        raise last_failure(call.raised)
    lease = LargeLease(cache, made[0], buffer)
    if told.raised is not None:
        lease.release()
        raise told.raised
    return lease
