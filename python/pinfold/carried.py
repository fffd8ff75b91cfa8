# SPDX-License-Identifier: BSD-3-Clause
"""The release protocol over a channel of the application: docs/use/release-protocol.md."""

from __future__ import annotations

import weakref
from typing import Any, Callable, NamedTuple, Self

from pinfold._callbacks import callback, finish, serve
from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.constants import RELEASE_MESSAGE_BYTES, Code
from pinfold.errors import Raised, as_failure, check
from pinfold.release import RetireReport, milliseconds, read_report, wait_in_slices

Send = Callable[[int, bytes], object]
"""Carries an answer, the bytes, to the exporter with that number. If it raises, it gets the answer again later. Runs on the
threads that call the listener, release leases, or use caches over it, one call at a time. It may release leases and pass
messages to the listener; an acquire from a cache over it raises IN_USE_CONFLICT there."""


class ReleaseId(NamedTuple):
    """Names exported memory: the numbers are in its handle."""

    exporter: int
    serial: int

    @classmethod
    def of(cls, handle: bytes) -> Self:
        """Returns the numbers of a handle of host memory or of GPU memory."""
        numbers, view = ffi.new("pinfold_release_id *"), ffi.from_buffer(handle)
        check(lib.pinfold_release_id_of(view, len(view), numbers))
        return cls(numbers.exporter, numbers.serial)


class ReleaseRegistry(Owner):
    """The exporter's record of the importers that hold its memory, by the numbers that the application gives its peers. An
    importer counts from `lend` until its answer that it let the memory go, or until `died`."""

    def __init__(self, exporter: int) -> None:
        """`exporter`: the number in the exporter's handles."""
        made = ffi.new("pinfold_release_registry **")
        check(lib.pinfold_release_registry_create(exporter, made))
        self.exporter = exporter
        self._registry = made[0]
        self._own(lib.pinfold_release_registry_destroy, self._registry)

    def add(self, serial: int) -> None:
        """Adds memory that importers may open."""
        check(lib.pinfold_release_registry_add(self._registry, serial))

    def lend(self, serial: int, peer: int, pid: int = 0) -> None:
        """Counts the peer as an importer: call it before sending the peer the handle. Raises STALE_HANDLE for memory that
        was not added, is retired, or was forgotten. `pid` is only reported."""
        check(lib.pinfold_release_registry_lend(self._registry, serial, peer, pid))

    def begin_retire(self, serial: int, timeout: float) -> None:
        """Stops lending the memory, and prepares a request for each importer, with the `timeout` in seconds."""
        check(lib.pinfold_release_registry_begin_retire(self._registry, serial, milliseconds(timeout)))

    def next_request(self, peer: int) -> bytes | None:
        """Returns the next message for the peer, and counts it as sent; None if there is none."""
        message, nbytes = ffi.new("char[]", RELEASE_MESSAGE_BYTES), ffi.new("size_t *")
        room = RELEASE_MESSAGE_BYTES
        check(lib.pinfold_release_registry_next_request(self._registry, peer, message, room, nbytes))
        return bytes(ffi.buffer(message, nbytes[0])) if nbytes[0] else None

    def take_back(self, peer: int, message: bytes) -> None:
        """Counts a request as not sent, so that `next_request` returns it again."""
        view = ffi.from_buffer(message)
        check(lib.pinfold_release_registry_take_back(self._registry, peer, view, len(view)))

    def receive(self, peer: int, message: bytes) -> None:
        """Processes a message that arrived from the peer. Raises INVALID_ARGUMENT for a message that is damaged or not of
        the protocol, and ignores messages that are no answers to this exporter."""
        view = ffi.from_buffer(message)
        check(lib.pinfold_release_registry_receive(self._registry, peer, view, len(view)))

    def died(self, peer: int) -> None:
        """Removes the peer from all memory: its process has ended."""
        check(lib.pinfold_release_registry_died(self._registry, peer))

    def lost(self, peer: int) -> None:
        """Records that the peer cannot answer, though its process may still run: it still counts."""
        check(lib.pinfold_release_registry_lost(self._registry, peer))

    def report(self, serial: int) -> RetireReport:
        """Returns the present report, without waiting. If no importer holds the memory, `all_let_go` is true: free it."""
        return self._wait(serial, 0)

    def wait(self, serial: int, timeout: float) -> RetireReport:
        """Waits until no importer holds the memory, at most `timeout` seconds, and returns the report. Another thread
        must pass on the answers meanwhile."""
        return wait_in_slices(lambda ms: self._wait(serial, ms), timeout)

    def forget(self, serial: int) -> None:
        """Forgets memory that was freed."""
        check(lib.pinfold_release_registry_forget(self._registry, serial))

    def _wait(self, serial: int, ms: int) -> RetireReport:
        return read_report(
            lambda seen: lib.pinfold_release_registry_wait(self._registry, serial, ms, seen),
            lambda *place: lib.pinfold_release_registry_holders(self._registry, serial, *place),
            Raised(),
        )


class _Listener(Owner):
    """The part of a listener that the caches over it keep: collected after them."""

    def __init__(self, send: Send) -> None:
        self.send = send
        made = ffi.new("pinfold_release_listener **")
        handle = serve(weakref.ref(self))  # not `self`, which `send` may keep
        try:
            check(lib.pinfold_release_listener_create(_carry(), handle, made))
        except BaseException:
            finish(handle)
            raise
        self.pointer = made[0]
        self._own(_end, self.pointer, handle, at_exit=True)


def _end(pointer: Any, handle: Any) -> int:
    code: int = lib.pinfold_release_listener_destroy(pointer)
    if code == 0:
        finish(handle)
    return code


class ReleaseListener:
    """The importer's side: `ImportCache.memfd(listener=...)` and `cuda_ipc(listener=...)` make caches that let memory go
    when their exporters ask for it. It ends when it and its caches are collected."""

    def __init__(self, send: Send) -> None:
        self._c = _Listener(send)

    def receive(self, message: bytes) -> None:
        """Processes a message that arrived from an exporter: invalidates the memory in the caches, closes it unless it is
        leased, and answers. Raises an exception of `send` as the cause of an `Error`, although the message is processed;
        INVALID_ARGUMENT for a message that is damaged or not of the protocol. Ignores answers."""
        view = ffi.from_buffer(message)
        check(lib.pinfold_release_listener_receive(self._c.pointer, view, len(view)))

    def progress(self) -> None:
        """Closes memory that exporters have requested, if possible, and sends the unsent answers. Call it regularly, and
        after `send` failed. Raises an exception of `send` as the cause of an `Error`."""
        check(lib.pinfold_release_listener_progress(self._c.pointer))

    def statistics(self) -> dict[str, int]:
        """Returns the counters, by their names in release_carried.h."""
        seen = ffi.new("pinfold_release_listener_statistics *")
        seen.size = ffi.sizeof("pinfold_release_listener_statistics")
        check(lib.pinfold_release_listener_statistics_of(self._c.pointer, seen))
        return {name: getattr(seen, name) for name, _ in ffi.typeof(seen[0]).fields if name != "size"}


@callback(lambda: ffi.typeof("pinfold_release_send"), error=Code.DRIVER_ERROR)
def _carry(listener: Any, exporter: int, message: Any, nbytes: int, failure: Any) -> int:
    try:
        to: _Listener | None = ffi.from_handle(listener)()
        if to is None:
            raise ReferenceError("the listener was collected")
        to.send(exporter, bytes(ffi.buffer(message, nbytes)))
    except BaseException as raised:
        return as_failure(raised, "send", failure)
    return 0
