# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks of the library into Python: functions that live as long as the process, with a handle to the object served.

cffi takes the interpreter's lock for a callback on any thread, and releases it around every call of the library. It
makes each C function in writable code, which monitors distrust, so this module makes them only when they are needed.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable

from pinfold._library import ffi
from pinfold.errors import Raised

_served: set[Any] = set()


def serve(what: object) -> Any:
    """Returns a handle to the object, which stays alive until `finish`."""
    handle = ffi.new_handle(what)
    _served.add(handle)
    return handle


def finish(handle: Any) -> Any:
    """Returns the object of the handle. The library no longer uses the handle."""
    what = ffi.from_handle(handle)
    _served.discard(handle)
    return what


def is_served(handle: Any) -> bool:
    return handle in _served


class _Thread(threading.local):
    callbacks = 0


_thread = _Thread()


def in_callback() -> bool:
    """Whether the library called this thread, and may wait for it."""
    return _thread.callbacks > 0


_functions: list[Any] = []


def callback(type_of: Callable[[], Any], **how: Any) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Turns a function into one that returns its C form, with the type that `type_of` returns.

    An exception that leaves the function goes to `sys.unraisablehook`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[[], Any]:
        def called(*given: Any) -> Any:
            _thread.callbacks += 1
            try:
                return function(*given)
            finally:
                _thread.callbacks -= 1

        @functools.cache
        def for_c() -> Any:
            made = ffi.callback(type_of(), called, **how)
            _functions.append(made)  # also the second, if two threads make it at once
            return made

        return for_c

    return decorate


def member(structure: str, name: str) -> Callable[[], Any]:
    """Returns the type of a structure's member."""
    return lambda: dict(ffi.typeof(structure).fields)[name].type


class Call:
    """One request of the application: its `argument`, and the exceptions that its callbacks raised on any thread."""

    def __init__(self, argument: object, raised: Raised | None = None) -> None:
        self.argument = argument
        self.raised = Raised() if raised is None else raised

    def handle(self) -> Any:
        """Returns the handle for C, which the caller keeps as long as C may use it."""
        return ffi.new_handle(self)

    @staticmethod
    def of(pointer: Any) -> Call | None:
        return ffi.from_handle(pointer) if pointer else None
