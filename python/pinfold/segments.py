# SPDX-License-Identifier: BSD-3-Clause
"""Memory that grows in segments: docs/use/segments.md."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from pinfold._held import Held
from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.constants import MEMFD_HANDLE_BYTES
from pinfold.errors import check


class Window(NamedTuple):
    """Identifies the address range of segments, so that an importer maps them side by side: `ImportCache.add_window`."""

    exporter: int
    base: int
    nbytes: int

    def raw(self) -> Any:
        """Returns the structure of the C interface."""
        return ffi.new("pinfold_window *", tuple(self))


def listed(ask: Callable[[Any, int, Any], Any], handle_bytes: int) -> list[bytes]:
    """Returns the handles that C lists. Each call may list more of them."""
    count = ffi.new("size_t *", 16)
    room = 0
    while room < count[0]:
        room = count[0]
        found = ffi.new("char[]", room * handle_bytes)
        check(ask(found, room, count))
    return [bytes(ffi.buffer(found + one * handle_bytes, handle_bytes)) for one in range(count[0])]


class MemfdSegments(Held, Owner):
    """An address range over which segments are added and removed one by one, each with a handle of its own: made by
    `MemfdExporter.reserve`. `release` unmaps all; peers keep existing mappings."""

    def __init__(self, pointer: Any, exporter: Owner) -> None:
        super().__init__()
        self._exporter = exporter  # without it no segment can be added
        self._own(lib.pinfold_memfd_segments_free, pointer)
        self._segments = pointer
        self.address = int(ffi.cast("uintptr_t", lib.pinfold_memfd_segments_data(pointer)))
        window = ffi.new("pinfold_window *")
        check(lib.pinfold_memfd_segments_window(pointer, window))
        self.window = Window(window.exporter, window.base, window.bytes)
        self._sizes: dict[int, int] = {}

    def add(self, offset: int, nbytes: int) -> bytes:
        """Adds a zeroed segment, of whole pages, and returns its handle."""
        handle = ffi.new("char[]", MEMFD_HANDLE_BYTES)
        check(lib.pinfold_memfd_segment_add(self._raw(), offset, nbytes, handle, MEMFD_HANDLE_BYTES))
        self._sizes[offset] = nbytes
        return bytes(ffi.buffer(handle))

    def handles(self, offset: int, nbytes: int) -> list[bytes]:
        """Returns the handles of the segments under the range, by address."""
        list_them = lib.pinfold_memfd_segments_handles
        return listed(
            lambda to, room, count: list_them(self._raw(), offset, nbytes, to, MEMFD_HANDLE_BYTES, room, count),
            MEMFD_HANDLE_BYTES,
        )

    def memory(self, offset: int) -> memoryview:
        """Returns a view of the segment at `offset`. Drop it before the segment is removed."""
        return self.view(self.address + offset, self._sizes[offset], True)

    def remove(self, offset: int, nbytes: int) -> None:
        """Removes all segments in the range, and leaves the others untouched. Raises BufferError while views of segments
        are alive: an access through a view would be a fault."""
        if self._holds:
            raise BufferError("views of segments are alive")
        check(lib.pinfold_memfd_segment_remove(self._raw(), offset, nbytes))
        for one in [at for at in self._sizes if offset <= at < offset + nbytes]:
            del self._sizes[one]

    def _raw(self) -> Any:
        if self._released:
            raise ValueError("the segments were released")
        return self._segments

    def _give_back(self) -> None:
        self._free()
