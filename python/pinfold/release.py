# SPDX-License-Identifier: BSD-3-Clause
"""Retirements: exported memory is freed by agreement with its importers. docs/use/release-protocol.md."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable

from pinfold._callbacks import callback, finish, serve
from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.constants import Code, ReleaseAnswer, RetireState
from pinfold.errors import Raised, as_exception, as_failure, check

_SLICE_MS = 100  # so that signals are handled meanwhile


@dataclass(frozen=True)
class ReleaseHolder:
    """An importer that still counts as having the memory open; release.h explains the members."""

    connection: int
    pid: int
    answer: ReleaseAnswer
    lost: bool


@dataclass(frozen=True)
class RetireReport:
    """The state of retired memory. `failure` is the exception of the function that frees the memory."""

    state: RetireState
    let_go: int
    died: int
    holders: tuple[ReleaseHolder, ...]
    failure: BaseException | None

    @property
    def all_let_go(self) -> bool:
        """Whether no importer holds the memory any more."""
        return self.state == RetireState.FREED


class Retirement(Owner):
    """A ticket for one retirement. Dropping the ticket does not affect the retirement."""

    def __init__(self, ticket: Any, exporter: Owner, raised: Raised) -> None:
        self._ticket = ticket
        self._exporter = exporter  # its end would free the memory
        self._raised = raised
        self._own(lib.pinfold_retirement_end, ticket)

    def report(self) -> RetireReport:
        """Returns the present report, without waiting."""
        return self._wait(0)

    def wait(self, timeout: float) -> RetireReport:
        """Waits until the memory is freed, at most `timeout` seconds, and returns the report."""
        return wait_in_slices(self._wait, timeout)

    def _wait(self, ms: int) -> RetireReport:
        return read_report(
            lambda seen: lib.pinfold_retirement_wait(self._ticket, ms, seen),
            lambda *place: lib.pinfold_retirement_holders(self._ticket, *place),
            self._raised,
        )


def wait_in_slices(wait: Callable[[int], RetireReport], timeout: float) -> RetireReport:
    """Calls `wait` with milliseconds, until the memory is freed or for `timeout` seconds; returns the last report."""
    until = time.monotonic() + timeout
    while True:
        left = min(max(0.0, until - time.monotonic()), _SLICE_MS / 1000)
        report = wait(round(left * 1000))
        if report.state not in (RetireState.ASKING, RetireState.LIMBO) or time.monotonic() >= until:
            return report


def read_report(wait: Callable[[Any], Any], holders: Callable[..., Any], raised: Raised) -> RetireReport:
    """Returns the report that `wait` writes, with the holders that `holders` writes."""
    seen = ffi.new("pinfold_retire_report *")
    seen.size = ffi.sizeof("pinfold_retire_report")
    check(wait(seen))
    failure = as_exception(ffi.addressof(seen, "failure"), raised) if seen.failure.code else None
    found = _holders(holders, seen.holders) if seen.holders else ()
    return RetireReport(RetireState(seen.state), seen.let_go, seen.died, found, failure)


def _holders(holders: Callable[..., Any], most: int) -> tuple[ReleaseHolder, ...]:
    found, count = ffi.new("pinfold_release_holder[]", most), ffi.new("size_t *")
    check(holders(found, most, count))
    return tuple(
        ReleaseHolder(one.connection, one.pid, ReleaseAnswer(one.answer), bool(one.lost))
        for one in found[0 : min(most, count[0])]
    )


class FreeCall:
    """The application's function that frees memory, for one call of the library."""

    def __init__(self, free: Callable[[], object]) -> None:
        self.free = free
        self.raised = Raised()
        self.handle = serve(self)

    def withdraw(self) -> None:
        """Called when the library will not call the function."""
        finish(self.handle)


@callback(lambda: ffi.typeof("pinfold_free_call"), error=Code.DRIVER_ERROR)
def free_memory(self: Any, failure: Any) -> int:
    call: FreeCall = finish(self)
    try:
        call.free()
    except BaseException as raised:
        return as_failure(raised, "free", failure, call.raised)
    return 0


def exporter_options(flags: int, release: bool, limbo_bytes: int | None) -> Any:
    """Returns C's options of an exporter. `limbo_bytes`: None is 4 GiB."""
    if limbo_bytes is not None and limbo_bytes < 0:
        raise ValueError("limbo_bytes is negative")
    options = ffi.new("pinfold_exporter_options *")
    options.size = ffi.sizeof("pinfold_exporter_options")
    options.flags, options.release = flags, release
    options.limbo_bytes = 0 if limbo_bytes is None else max(1, limbo_bytes)
    return options


def milliseconds(timeout: float) -> int:
    """Returns seconds as C's milliseconds, at most a day."""
    return round(min(max(0.0, timeout), 86_400.0) * 1000)


def counts(ask: Callable[[Any, Any], Any], exporter: Any) -> dict[str, int]:
    """Returns the counters that `ask` writes, by their names in release.h."""
    written = ffi.new("pinfold_release_statistics *")
    written.size = ffi.sizeof("pinfold_release_statistics")
    check(ask(exporter, written))
    return {name: getattr(written, name) for name, _ in ffi.typeof(written[0]).fields if name != "size"}
