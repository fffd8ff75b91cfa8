# SPDX-License-Identifier: BSD-3-Clause
"""Failures of the library as exceptions, and exceptions of Python callbacks as failures."""

from __future__ import annotations

import threading
from typing import Any

from pinfold._library import ffi, lib, text_of
from pinfold.constants import Code, NativeKind


class Error(Exception):
    """A failure, with the code of the driver that caused it.

    A registrar or an importer raises it to choose the code of the failure for the cache.
    """

    def __init__(self, code: int, message: str = "", native_kind: int = NativeKind.NONE, native: int = 0) -> None:
        super().__init__(code, message, native_kind, native)  # the arguments that pickle passes
        self.code = Code(code)
        self.message = message
        self.native_kind = NativeKind(native_kind)
        self.native = native

    def __str__(self) -> str:
        message = ffi.new("char[]", self.message.encode(errors="replace"))
        failure = ffi.new("pinfold_error *", (self.code, self.native_kind, self.native, message))
        return text_of(lib.pinfold_describe_error, failure)


class Raised:
    """The latest exception of a callback, for the call of the library that fails because of it."""

    def __init__(self) -> None:
        self._latest: tuple[BaseException, str, int, Any] | None = None

    def put(self, raised: BaseException, text: str, code: int, message: Any) -> None:
        self._latest = (raised, text, code, message)

    def clear(self) -> None:
        self._latest = None

    def behind(self, failure: Any) -> tuple[BaseException | None, str]:
        """Returns the exception if it became this failure, and its text. Without a message, compares the code."""
        for raised, text, code, message in self._latest_first():
            if failure.code == code if message is None else failure.message == message:
                return raised, text
        return None, ffi.string(failure.message).decode(errors="replace") if failure.message else ""

    def _latest_first(self) -> list[tuple[BaseException, str, int, Any]]:
        return [] if self._latest is None else [self._latest]


class AllRaised(Raised):
    """All exceptions of callbacks on several threads, for a call that may fail in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self._all: list[tuple[BaseException, str, int, Any]] = []

    def put(self, raised: BaseException, text: str, code: int, message: Any) -> None:
        self._all.append((raised, text, code, message))

    def clear(self) -> None:
        self._all.clear()

    def ending(self) -> BaseException | None:
        """Returns the first exception that ends the program: KeyboardInterrupt, SystemExit."""
        return next((raised for raised, *_ in self._all if not isinstance(raised, Exception)), None)

    def _latest_first(self) -> list[tuple[BaseException, str, int, Any]]:
        return self._all[::-1]


class _OfThread(threading.local, Raised):
    pass


of_thread = _OfThread()


def as_exception(failure: Any, raised: Raised = of_thread) -> BaseException:
    """Returns the exception for a pinfold_error: caused by that of a callback, or that itself if it ends the program."""
    cause, text = raised.behind(failure)
    if cause is not None and not isinstance(cause, Exception):
        return cause  # KeyboardInterrupt, SystemExit
    error = Error(failure.code, text, failure.native_kind, failure.native)
    error.__cause__ = cause
    return error


def last_failure(raised: Raised = of_thread) -> BaseException:
    """Returns the exception for the call that just failed on this thread; no call may come in between."""
    failure = as_exception(lib.pinfold_last_error(), raised)
    raised.clear()
    return failure


def check(code: int) -> None:
    if code < 0:
        raise last_failure()


# The library keeps messages for ever, so their number is bounded. The caller gets the exception's own text.
_MOST_MESSAGES = 256
_messages: dict[str, Any] = {}


def _lasting(text: str) -> Any:
    found = _messages.get(text)
    if found is not None:
        return found
    if len(_messages) >= _MOST_MESSAGES:
        return _TOO_MANY
    return _messages.setdefault(text, ffi.new("char[]", text[:200].encode(errors="replace")))


_TOO_MANY = _lasting("a callback in Python failed, after too many other failures for a message of its own")


def as_failure(raised: BaseException, call: str, failure: Any = None, request: Raised | None = None) -> int:
    """Describes a callback's exception in a pinfold_error, if there is one; returns its code."""
    code, kind, native = Code.DRIVER_ERROR, NativeKind.NONE, 0
    text = f"{call} raised {type(raised).__qualname__}"
    if isinstance(raised, Error):
        code, kind, native = raised.code if raised.code < 0 else code, raised.native_kind, raised.native
        text = raised.message or text
    elif isinstance(raised, MemoryError):
        code = Code.OUT_OF_RESOURCES
    elif isinstance(raised, OSError) and raised.errno:
        kind, native = NativeKind.POSIX, raised.errno
    message = None
    if failure is not None:
        message = _lasting(text)
        failure.native_kind, failure.native, failure.message = kind, native, message
    for place in (of_thread, request):
        if place is not None:
            place.put(raised, text, code, message)
    return code
