# SPDX-License-Identifier: BSD-3-Clause
"""A lease: memory that stays registered until the release."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

from pinfold._held import Held
from pinfold._library import ffi, lib
from pinfold.errors import check, last_failure

if TYPE_CHECKING:
    from pinfold._cache import BaseCache


class Lease(Held):
    """A lease on memory of this process. Release it, or use it in a `with` statement.

    A lease may be released on any thread. A release while another thread uses the lease takes effect after that use.
    """

    __slots__ = ("nbytes", "cache", "_raw", "_buffer", "__weakref__")

    def __init__(self, cache: BaseCache, raw: Any, nbytes: int, buffer: object) -> None:
        self._holds = []  # not super().__init__(): this is the hot path
        self._released = False
        self.nbytes = nbytes
        self.cache = cache
        self._raw = raw
        self._buffer = buffer
        cache._state.leased.add(raw)

    @property
    def address(self) -> int:
        """The address of the memory in this process, or on the device."""
        return int(ffi.cast("uintptr_t", self._raw.data))

    @property
    def released(self) -> bool:
        return self._released

    @property
    def stale(self) -> bool:
        """Whether the memory was replaced or invalidated after the acquire. The registration is still open."""
        return bool(self._ask(lib.pinfold_is_stale))

    @property
    def closed(self) -> bool:
        """Whether the cache was closed, and the registration with it."""
        return bool(self._ask(lib.pinfold_is_closed))

    @property
    def covered(self) -> tuple[int, int]:
        """The address and the length of the registration: in this process, or in the exporter."""
        found = ffi.new("uint64_t[2]")
        check(self._ask(lib.pinfold_covered, found, found + 1))
        return found[0], found[1]

    @property
    def registration(self) -> Any:
        """The object that the registrar's or importer's `open` returned. For the library's registrars, the structure that
        belongs to the C function that makes the cache, as a dictionary."""
        self.hold()
        try:
            return self.cache._registration(lib.pinfold_registration_of(self._raw))
        finally:
            self.drop()

    def share(self) -> Self:
        """Returns another lease on the same memory."""
        self.hold()
        try:
            raw = lib.pinfold_share(self._raw)
            if not raw.pin:
                raise last_failure()
            return type(self)(self.cache, raw, self.nbytes, self._buffer)
        finally:
            self.drop()

    def _ask(self, question: Any, *given: Any) -> int:
        self.hold()
        try:
            answer: int = question(self._raw, *given)
            return answer
        finally:
            self.drop()

    def _give_back(self) -> None:
        try:
            self.cache._state.leased.remove(self._raw)
        except KeyError:
            return  # by another thread, at the end of the process, or in the parent of this process
        code = lib.pinfold_release(self._raw)
        self._buffer = None
        if code:
            raise last_failure()

    def __repr__(self) -> str:
        return f"<pinfold.{type(self).__name__} on {self.nbytes} bytes at {self.address:#x}>"

    def __del__(self) -> None:
        if self._raw in self.cache._state.leased:
            self._collected()

    def _collected(self) -> None:
        forgotten, self._released = not self._released, True
        try:
            if forgotten:
                self._warn()
        finally:
            self._give_back()

    def _warn(self) -> None:
        warnings.warn(f"{self!r} was never released", ResourceWarning, source=self, stacklevel=4)
