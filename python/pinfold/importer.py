# SPDX-License-Identifier: BSD-3-Clause
"""Importers of remote memory that are written in Python."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from pinfold._callbacks import Call, callback, member
from pinfold._library import ffi
from pinfold.constants import Code
from pinfold.errors import as_failure, of_thread
from pinfold.registrar import Served, close, finished, refused


class Imported(NamedTuple):
    """The memory that an importer opened for a handle."""

    base: int
    """The first opened address, in the exporter."""
    nbytes: int
    """How many bytes; at least the allocation that `check` returned."""
    address: int
    """The address of `base` in this process, or on its device."""
    registration: object = None
    """Returned by `ImportLease.registration`, and passed to `close`."""
    budget_bytes: int = 0
    """The bytes that count against the budget, at least `nbytes`. 0: `nbytes`."""


class Importer(abc.ABC):
    """An importer of memory of peers: docs/use/registrars.md has the rules.

    All bytes of a handle together identify one allocation for ever. The cache calls the importer on many threads at
    once. Exceptions are those of a `Registrar`.
    """

    name: str = "python"
    handle_bytes: int
    """The length of every handle, 1 to 896."""
    allows_duplicates: bool = False
    """Whether the driver opens a handle that it already has open."""
    host_memory: bool = False
    """Whether this process can read the memory at the addresses that `open` returns."""
    writable: bool = False
    """Whether this process can write it, too."""

    @abc.abstractmethod
    def check(self, handle: bytes) -> tuple[int, int]:
        """Validates a handle without calling the driver. Returns the allocation: its address in the exporter, and its
        length."""

    @abc.abstractmethod
    def open(self, peer: int, handle: bytes, argument: object) -> Imported:
        """Opens the memory of a handle."""

    @abc.abstractmethod
    def close(self, registration: Any) -> None:
        """Undoes an open. If it fails, it changes nothing, and is called again."""

    def finished(self) -> None:
        """Called when the cache no longer needs the importer."""


def _bytes(to: Served, handle: Any) -> bytes:
    return bytes(ffi.buffer(handle, to.what.handle_bytes))


@callback(member("pinfold_importer", "check"), error=Code.DRIVER_ERROR)
def _check(served: Any, handle: Any, base: Any, nbytes: Any) -> int:
    to: Served = ffi.from_handle(served)
    try:
        base[0], nbytes[0] = to.what.check(_bytes(to, handle))
    except BaseException as raised:
        return as_failure(raised, f"{to.what.name}: check")
    return 0


def _write(made: Any, opened: Imported) -> None:
    made.base, made.bytes, made.budget_bytes = opened.base, opened.nbytes, opened.budget_bytes
    made.data = ffi.cast("void *", opened.address)


@callback(member("pinfold_importer", "open"), error=Code.DRIVER_ERROR)
def _open(served: Any, request: Any, made: Any, failure: Any) -> int:
    to: Served = ffi.from_handle(served)
    try:
        call = Call.of(request.argument)
        opened = to.what.open(request.peer, _bytes(to, request.handle), call.argument if call else None)
        try:
            _write(made, opened)
        except Exception:
            to.what.close(opened.registration)
            raise
        to.registrations.put(made.registration, opened.registration)
    except BaseException as raised:
        return refused(raised, f"{to.what.name}: open", request, failure)
    of_thread.clear()
    return 0


def table_of(importer: Importer) -> tuple[Any, Any]:
    """Returns the importer's table of functions, and its name, which the table points to."""
    name = ffi.new("char[]", importer.name.encode())
    table = ffi.new("pinfold_importer *")
    table.size = ffi.sizeof("pinfold_importer")
    table.name = name
    table.handle_bytes = importer.handle_bytes
    table.allows_duplicates = importer.allows_duplicates
    table.check, table.open, table.close, table.finished = _check(), _open(), close(), finished()
    return table, name
