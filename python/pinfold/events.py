# SPDX-License-Identifier: BSD-3-Clause
"""Events that a cache reports to a function of the application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from pinfold._callbacks import callback, finish, member
from pinfold._library import ffi
from pinfold.constants import EventKind, Severity
from pinfold.errors import as_exception


@dataclass(frozen=True)
class Event:
    """One event; pinfold.h explains the members."""

    kind: EventKind
    level: Severity
    cache: str
    peer: int
    base: int
    nbytes: int
    leases: int
    cause: BaseException | None
    text: str
    registered_base: int
    registered_nbytes: int
    opened_for_ns: int
    hit: bool
    owner: int


Sink = Callable[[Event], object]
"""Runs on the thread that caused the event. Of its own cache it may read statistics and entries, invalidate, and release
leases. Its exceptions go to `sys.unraisablehook`."""


def _event(c: Any) -> Event:
    return Event(
        kind=EventKind(c.kind),
        level=Severity(c.level),
        cache=ffi.string(c.cache).decode(errors="replace"),
        peer=c.peer,
        base=c.base,
        nbytes=c.bytes,
        leases=c.leases,
        cause=as_exception(c.cause) if c.cause else None,
        text=ffi.string(c.text).decode(errors="replace") if c.text else "",
        registered_base=c.registered_base,
        registered_nbytes=c.registered_bytes,
        opened_for_ns=c.opened_for_ns,
        hit=bool(c.hit),
        owner=c.owner,
    )


@callback(member("pinfold_options", "sink"))
def send(sink: Any, event: Any) -> None:
    ffi.from_handle(sink)(_event(event))


@callback(member("pinfold_options", "sink_finished"))
def finished(sink: Any) -> None:
    finish(sink)
