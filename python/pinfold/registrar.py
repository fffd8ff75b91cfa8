# SPDX-License-Identifier: BSD-3-Clause
"""Registrars of local memory that are written in Python."""

from __future__ import annotations

import abc
import itertools
from typing import Any, NamedTuple, Sequence

from pinfold._callbacks import Call, callback, finish, member
from pinfold._library import ffi
from pinfold.constants import Access, Code
from pinfold.errors import as_failure, of_thread


class OpenRequest(NamedTuple):
    """The memory that a registrar must open."""

    address: int
    nbytes: int
    access: Access
    argument: object
    """`argument` of the acquire that caused the call; None without one."""


class Registrar(abc.ABC):
    """A registrar of memory of this process: docs/use/registrars.md has the rules.

    The cache calls it on many threads at once. `open` returns any object, which `Lease.registration` then returns and
    `close` gets back. To refuse, they raise `pinfold.Error`; another exception is a DRIVER_ERROR, MemoryError
    OUT_OF_RESOURCES. That exception is the cause of the error of the acquire or release.
    """

    name: str = "python"
    granularity: int = 0
    """Local access is rounded out to this power of two, at most a page. 0: a page."""
    max_bytes: int = 0
    """The largest registration. 0: any size."""
    access: Access = Access(0)
    """All that the registrar can grant. 0: everything."""

    @abc.abstractmethod
    def open(self, request: OpenRequest) -> object:
        """Registers exactly the memory of the request."""

    @abc.abstractmethod
    def close(self, registration: Any) -> None:
        """Undoes an open. If it fails, it changes nothing, and is called again."""

    def open_many(self, requests: Sequence[OpenRequest]) -> Sequence[object]:
        """Opens the ranges of a batch; returns the result of `open`, or an exception, for each. Optional."""
        raise NotImplementedError

    def still_is(self, registration: Any, address: int, nbytes: int) -> bool:
        """Returns whether the address still holds the registered memory, for memory that no monitor sees. Optional: the
        cache then uses no monitor, and calls this on every hit."""
        raise NotImplementedError

    def finished(self) -> None:
        """Called when the cache no longer needs the registrar."""


class Registrations:
    """The objects that opens returned, by the number that C keeps for each."""

    def __init__(self) -> None:
        self._objects: dict[int, object] = {}
        self._numbers = itertools.count(1)

    def put(self, made: Any, opened: object) -> None:
        made.words[0] = number = next(self._numbers)
        self._objects[number] = opened

    def get(self, made: Any) -> Any:
        return self._objects[ffi.cast("pinfold_registration *", made).words[0]]

    def remove(self, made: Any) -> None:
        del self._objects[made.words[0]]


class Served:
    """A registrar or importer that a cache calls."""

    def __init__(self, what: Any) -> None:
        self.what = what
        self.registrations = Registrations()


def _request(c: Any) -> OpenRequest:
    call = Call.of(c.argument)
    address = int(ffi.cast("uintptr_t", c.address))
    return OpenRequest(address, c.bytes, Access(c.access), call.argument if call else None)


def refused(raised: BaseException, call: str, request: Any, failure: Any) -> int:
    """Returns the code of an open that raised an exception, on a thread of the application or of the library."""
    caused_by = Call.of(request.argument)
    return as_failure(raised, call, failure, caused_by.raised if caused_by else None)


@callback(member("pinfold_registrar", "open"), error=Code.DRIVER_ERROR)
def _open(served: Any, request: Any, made: Any, failure: Any) -> int:
    to: Served = ffi.from_handle(served)
    try:
        to.registrations.put(made, to.what.open(_request(request)))
    except BaseException as raised:
        return refused(raised, f"{to.what.name}: open", request, failure)
    of_thread.clear()
    return 0


@callback(member("pinfold_registrar", "close"), error=Code.DRIVER_ERROR)
def close(served: Any, made: Any, failure: Any) -> int:
    to: Served = ffi.from_handle(served)
    try:
        to.what.close(to.registrations.get(made))
    except BaseException as raised:
        return as_failure(raised, f"{to.what.name}: close", failure)
    to.registrations.remove(made)
    return 0


@callback(member("pinfold_registrar", "open_many"))
def _open_many(served: Any, requests: Any, count: int, made: Any, codes: Any, failures: Any) -> None:
    to: Served = ffi.from_handle(served)
    call = f"{to.what.name}: open_many"
    try:
        opened = to.what.open_many([_request(requests[i]) for i in range(count)])
        if len(opened) != count:
            raise ValueError(f"{call} returned {len(opened)} results for {count} requests")
    except BaseException as raised:
        opened = [raised] * count
    for i, one in enumerate(opened):
        if isinstance(one, BaseException):
            codes[i] = refused(one, call, requests[i], failures[i])
        else:
            to.registrations.put(made[i], one)
            codes[i] = 0


@callback(member("pinfold_registrar", "still_is"))
def _still_is(served: Any, made: Any, address: Any, nbytes: int) -> int:
    to: Served = ffi.from_handle(served)
    return bool(to.what.still_is(to.registrations.get(made), int(ffi.cast("uintptr_t", address)), nbytes))


@callback(member("pinfold_registrar", "finished"))
def finished(served: Any) -> None:
    try:
        ffi.from_handle(served).what.finished()
    finally:
        finish(served)  # last: the end of the process waits for it


def table_of(registrar: Registrar) -> tuple[Any, Any]:
    """Returns the registrar's table of functions, and its name, which the table points to."""
    name = ffi.new("char[]", registrar.name.encode())
    table = ffi.new("pinfold_registrar *")
    table.size = ffi.sizeof("pinfold_registrar")
    table.name = name
    table.granularity = registrar.granularity
    table.max_bytes = registrar.max_bytes
    table.access = int(registrar.access)
    table.open, table.close, table.finished = _open(), close(), finished()
    if type(registrar).open_many is not Registrar.open_many:
        table.open_many = _open_many()
    if type(registrar).still_is is not Registrar.still_is:
        table.still_is = _still_is()
    return table, name
