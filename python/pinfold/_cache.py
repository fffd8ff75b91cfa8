# SPDX-License-Identifier: BSD-3-Clause
"""The common part of caches of local and of imported memory: their life, upkeep, and information about them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Self

from pinfold import dlpack
from pinfold._callbacks import callback, finish, in_callback, serve
from pinfold._library import ffi, lib, text_of
from pinfold._owned import SECONDS_FOR_THREADS_AT_EXIT, Owner, free_refused, outlasting, refused
from pinfold.constants import Code
from pinfold.errors import Error, check, last_failure
from pinfold.options import Options, withdraw
from pinfold.registrar import Served
from pinfold.restoration import Restoration


class State:
    """The state that the end of a cache needs, without a reference to the cache."""

    def __init__(self, pointer: Any, threads_call_python: bool) -> None:
        self.pointer = pointer
        self.threads_call_python = threads_call_python  # threads of the library, also when the interpreter has ended
        self.ended = False
        self.inherited = False  # from the parent of this process: C refuses all calls
        self.calls: list[int] = []  # threads in a call of the cache, which must not be destroyed meanwhile
        self.leased: set[Any] = set()
        self.views: list[None] = []  # of imported memory, which must not be unmapped meanwhile
        self.keeps: object = None  # must live until the end of the cache
        self.handles: list[Any] = []  # that C has until its threads have left the driver

    def wait_for_calls(self, until: float) -> bool:
        while self.calls and time.monotonic() < until:
            time.sleep(0.0005)
        return not self.calls

    def destroy(self) -> int:
        """Returns IN_USE_CONFLICT if C refused; the cache is then as before."""
        pointer, self.pointer = self.pointer, ffi.NULL  # a signal's handler may raise when C has destroyed it
        code: int = lib.pinfold_destroy(pointer)
        if code == Code.IN_USE_CONFLICT:
            self.pointer = pointer
        elif code == Code.TIMED_OUT:
            outlasting.update(self.handles)
        return code


def _end(state: State) -> int:
    """Destroys a cache that was collected, or that is left at the end of the process: no callback may run after the
    interpreter has ended. Imported memory that only views use stays mapped, since they may be used until then, unless a
    thread of the library could call Python for its cache."""
    state.ended = True
    if not state.wait_for_calls(time.monotonic() + SECONDS_FOR_THREADS_AT_EXIT):
        return 0
    if state.views and not state.threads_call_python:
        return 0
    while state.leased:
        lib.pinfold_release(state.leased.pop())
    return state.destroy() if state.pointer != ffi.NULL else 0


@dataclass(frozen=True)
class Entry:
    """One entry of a cache; pinfold.h explains the members."""

    peer: int
    base: int
    nbytes: int
    budget_bytes: int
    kind: str
    state: str
    leases: int
    hits: int
    age_ns: int
    owner: int
    bypass: bool


def _entry(c: Any) -> Entry:
    return Entry(
        peer=c.peer,
        base=c.base,
        nbytes=c.bytes,
        budget_bytes=c.budget_bytes,
        kind=ffi.string(c.kind).decode(errors="replace"),
        state=ffi.string(c.state).decode(),
        leases=c.leases,
        hits=c.hits,
        age_ns=c.age_ns,
        owner=c.owner,
        bypass=bool(c.bypass),
    )


class BaseCache(Owner):
    """A cache. `close` closes it; so does the end of a `with` statement, its collection, or at the latest the end of the
    process."""

    def __init__(
        self,
        create: Callable[[Any, Any], Any],
        options: Options | None,
        registration: Callable[[Any], Any],
        threads_call_python: bool = False,
    ) -> None:
        """`create` makes the cache with C's options; `registration` converts the registration of C's lease."""
        wanted = options or Options()
        c_options = wanted._to_c()
        made = ffi.new("pinfold_cache **")
        code = create(c_options, made)
        if code:
            failure = last_failure()
            withdraw(c_options)
            raise failure
        self._registration = registration
        self._state = State(made[0], threads_call_python or wanted.sink is not None)
        self._state.handles.append(c_options.sink_self)
        self._own(_end, self._state, at_exit=True)

    def _make_over(
        self, what: Any, table_of: Callable[[Any], tuple[Any, Any]], create: Any, options: Options | None
    ) -> None:
        """Makes the cache over a registrar or importer in Python. `create` is C's function, `table_of` makes its table."""
        served = Served(what)
        table, _name = table_of(what)
        handles, flags = [], 0

        def over(options: Any, made: Any) -> int:
            nonlocal flags
            flags = options.flags
            handle = serve(served)  # until C calls `finished`, even if a signal's handler raises
            handles.append(ffi.cast("void *", handle))  # does not keep it alive
            code: int = create(table, handle, options, made)
            if code:
                finish(handle)
            return code

        BaseCache.__init__(self, over, options, served.registrations.get)
        self._state.handles += handles
        self._state.threads_call_python |= bool(flags & lib.PINFOLD_REAPER)

    def close(self) -> None:
        """Destroys the cache and closes its registrations. Waits for leases at most `drain_timeout_ms`; leases that are
        still out then read as closed. While views of imported memory are alive, raises BufferError and does nothing.
        """
        state = self._state
        if state.ended:
            return
        if threading.get_ident() in state.calls:
            raise Error(Code.IN_USE_CONFLICT, "close was called from a callback of the same cache")
        if state.inherited:
            state.ended = True
            return
        free_refused()
        self._refuse_views()
        state.ended = True
        try:
            if not state.wait_for_calls(0 if in_callback() else float("inf")):
                raise Error(Code.IN_USE_CONFLICT, "close was called from a callback, and a call may wait for that")
            self._refuse_views()
            code = state.destroy()
            if code == Code.IN_USE_CONFLICT:
                raise last_failure()
        except BaseException:
            state.ended = state.pointer == ffi.NULL
            raise
        self._free.detach()
        check(code)

    @property
    def closed(self) -> bool:
        return self._state.ended

    def flush(self) -> None:
        """Closes every registration that has no lease and is not persistent. Raises the first error of a close."""
        check(self._call(lib.pinfold_flush))

    def quiesce(self) -> None:
        """Closes every registration, persistent ones included, and remembers them for `restore`. Raises IN_USE_CONFLICT
        and closes nothing while a lease is out."""
        check(self._call(lib.pinfold_quiesce))

    def restore(self, workers: int = 4) -> Restoration:
        """Begins to register again, in the background, what `quiesce` closed, those with the most hits first, into free
        room of the budget only."""
        return Restoration(self, workers)

    def progress(self) -> None:
        """Makes the closes that are due. Raises the first error of a close."""
        check(self._call(lib.pinfold_progress))

    def evict(self, count: int) -> int:
        """Closes up to `count` registrations without a lease, in the order of eviction. Returns how many."""
        return self._call(lib.pinfold_evict, count)

    def statistics(self) -> dict[str, int]:
        """Returns the counters, under the names that docs/operate/tuning.md explains."""
        counters = ffi.new("pinfold_statistics *")
        counters.size = ffi.sizeof("pinfold_statistics")
        check(self._call(lib.pinfold_statistics_of, counters))
        return {name: getattr(counters, name) for name, _ in ffi.typeof(counters[0]).fields if name != "size"}

    def describe(self) -> str:
        """Returns the counters as one line."""
        return self._text(lib.pinfold_describe)

    def monitors(self) -> str:
        """Returns the names of the cache's monitors, or why it keeps nothing."""
        return self._text(lib.pinfold_monitors)

    def entries(self) -> list[Entry]:
        """Returns every entry, in a copy."""
        found: list[Entry] = []
        call = ffi.new_handle(found)
        check(self._call(lib.pinfold_dump, _each(), call))
        return found

    def _call(self, function: Any, *given: Any) -> int:
        """Calls a function of the library with the cache, which cannot end meanwhile."""
        if refused:
            free_refused()
        state = self._state
        thread = threading.get_ident()
        try:
            state.calls.append(thread)  # in the `try`: a signal's handler may raise after it
            if state.ended:
                raise closed()
            answer: int = function(state.pointer, *given)
            return answer
        finally:
            state.calls.remove(thread)

    def _text(self, write: Any) -> str:
        return text_of(lambda text, room: self._call(write, text, room))

    def _refuse_views(self) -> None:
        if self._state.views:
            dlpack.sweep()
        if self._state.views:
            raise BufferError("the cache cannot be closed while views of imported memory, such as arrays, are alive")

    def _leave_to_parent(self) -> None:
        state = self._state
        state.inherited = True
        state.calls[:] = [thread for thread in state.calls if thread == threading.get_ident()]
        state.leased.clear()
        super()._leave_to_parent()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, raised: object, traceback: object) -> None:
        if raised is not None and self._state.views:
            return  # the traceback holds views; the cache is closed when it is collected
        self.close()

    def __repr__(self) -> str:
        return f"<pinfold.{type(self).__name__}{' closed' if self.closed else ''} at {id(self):#x}>"


def closed() -> Error:
    return Error(Code.CLOSED, "the cache was closed")


@callback(lambda: ffi.typeof(lib.pinfold_dump).args[1], error=Code.DRIVER_ERROR)
def _each(entries: Any, entry: Any) -> int:
    ffi.from_handle(entries).append(_entry(entry))
    return 0
