# SPDX-License-Identifier: BSD-3-Clause
"""Resources that views of their memory keep: given back after the release, when the last view is gone."""

from __future__ import annotations

from typing import Self

from pinfold._library import ffi


class Held:
    """A resource that its owner releases once, and that other objects and threads may hold after that.

    Only single operations on lists and sets change it, so that a finalizer may run between any two statements.
    """

    __slots__ = ("_holds", "_released")

    def __init__(self) -> None:
        self._holds: list[None] = []
        self._released = False

    def hold(self) -> None:
        """Delays the release until `drop`."""
        self._holds.append(None)
        if self._released:
            self.drop()
            raise ValueError(f"{self!r} was released")

    def drop(self) -> None:
        self._holds.pop()
        if self._released and not self._holds:
            self._give_back()

    def release(self) -> None:
        """Gives the resource back, or leaves that to the last view of its memory. A second release does nothing."""
        self._released = True
        if not self._holds:
            self._give_back()

    def _give_back(self) -> None:
        """Gives the resource back, unless that has happened."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def hold_memory(self) -> None:
        """As `hold`, for code that reads or writes the memory until `drop_memory`."""
        self.hold()

    def drop_memory(self) -> None:
        self.drop()

    def view(self, address: int, nbytes: int, writable: bool) -> memoryview:
        """Returns a view of memory that this object keeps. The view holds the object."""
        self.hold_memory()
        pointer = ffi.gc(ffi.cast("char *", address), lambda _: self.drop_memory())
        bytes_there = memoryview(ffi.buffer(pointer, nbytes))
        return bytes_there if writable else bytes_there.toreadonly()
