# SPDX-License-Identifier: BSD-3-Clause
"""A stream of leases on the pieces of one buffer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Iterator, Self

from pinfold._callbacks import Call, finish, in_callback, serve
from pinfold._library import ffi, lib
from pinfold._memory import locked
from pinfold._owned import Owner
from pinfold.constants import Code
from pinfold.errors import Error, last_failure
from pinfold.lease import Lease

if TYPE_CHECKING:
    from pinfold._cache import BaseCache


class Chunks(Owner, Iterator[Lease]):
    """Iterates over the leases, in order. One thread at a time may use it. The end of a `with` statement, or `close`, ends
    the stream; leases that were read stay valid."""

    def __init__(
        self,
        cache: BaseCache,
        memory: object,
        access: int | None,
        chunk_bytes: int,
        depth: int,
        workers: int,
        argument: object,
    ) -> None:
        self.cache = cache
        self._buffer, wanted = locked(memory, access)
        self._left = len(self._buffer)  # bytes that were not handed out; 0 after a failure or `close`
        self._request = Call(argument)
        request = self._request.handle()
        self._in_use = threading.Lock()
        size = ffi.sizeof("pinfold_chunk_options")
        how = ffi.new("pinfold_chunk_options *", (size, chunk_bytes, depth, workers, request))
        made = ffi.new("pinfold_chunks **")
        self._own(_end, made, serve((request, self._buffer)), at_exit=True)
        try:
            if cache._call(lib.pinfold_acquire_chunks, self._buffer, len(self._buffer), wanted, how, made):
                raise last_failure(self._request.raised)
        except BaseException:
            self._free()  # a signal's handler may raise when the threads use them already
            raise
        self._chunks = made[0]

    def __next__(self) -> Lease:
        if not self._in_use.acquire(blocking=False):
            raise ValueError("another thread, or a callback, uses this stream")
        try:
            return self._next()
        finally:
            self._in_use.release()

    def _next(self) -> Lease:
        if not self._left:
            raise StopIteration
        if not self._free.alive:
            raise Error(Code.CLOSED, "the stream belongs to the parent process, or the process ends")
        where = ffi.new("pinfold_range *")
        raw = ffi.new("pinfold_lease *")
        code = lib.pinfold_next_chunk(self._chunks, where, raw)
        if code:
            failure = last_failure(self._request.raised)
            if not in_callback():  # where C may refuse, and the stream goes on
                self._left = 0
            raise failure
        self._left -= where.bytes
        return Lease(self.cache, raw[0], where.bytes, self._buffer)

    def close(self) -> None:
        """Ends the stream."""
        if not self._in_use.acquire(blocking=False):
            raise ValueError("another thread, or a callback, uses this stream")
        try:
            owned = self._free.detach()  # first: a signal's handler may raise when C has ended the stream
            if owned is not None and _end(*owned[2]):
                failure = last_failure()
                self._own(_end, *owned[2], at_exit=True)
                raise failure
            self._left = 0
        finally:
            self._in_use.release()

    def _leave_to_parent(self) -> None:
        owned = self._free.detach()
        if owned is not None:
            finish(owned[2][-1])  # the child does not have the threads that use it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _end(made: Any, used: Any) -> int:
    """Ends the stream, if there is one. Keeps the objects that its threads use if a signal's handler raises, or if the
    library refuses because this is a callback of the cache."""
    code: int = lib.pinfold_end_chunks(made[0])
    if code == 0:
        finish(used)
    return code
