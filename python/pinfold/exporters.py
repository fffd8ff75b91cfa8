# SPDX-License-Identifier: BSD-3-Clause
"""Exporters: memory of this process that peers can import, and its handles."""

from __future__ import annotations

import bisect
import math
import os
import weakref
from typing import Any, Callable, Sequence

from pinfold._held import Held
from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.constants import CUDA_HANDLE_BYTES, MEMFD_HANDLE_BYTES
from pinfold.errors import Raised, check
from pinfold.release import FreeCall, RetireReport, Retirement, counts, exporter_options, free_memory, milliseconds
from pinfold.segments import MemfdSegments, listed

_exported: dict[int, weakref.ref[MemfdBuffer]] = {}


def _no_buffer() -> None:
    return None


def _free(pointer: Any, address: int) -> None:
    _exported.pop(address, None)  # before another buffer can have the address
    lib.pinfold_memfd_free(pointer)


class MemfdBuffer(Held, Owner):
    """A buffer that peers can import by its handle. `release` frees it: peers keep existing mappings, and cannot open it
    again. Views of its memory, such as arrays, keep it alive; it is freed when it is collected."""

    def __init__(self, pointer: Any) -> None:
        super().__init__()
        self._buffer = pointer
        self.address = int(ffi.cast("uintptr_t", lib.pinfold_memfd_data(pointer)))
        self._own(_free, pointer, self.address)
        self.peer = os.getpid()
        self.nbytes: int = lib.pinfold_memfd_size(pointer)
        handle = ffi.new("char[]", MEMFD_HANDLE_BYTES)
        check(lib.pinfold_memfd_handle(pointer, handle, MEMFD_HANDLE_BYTES))
        self.handle = bytes(ffi.buffer(handle))
        _exported[self.address] = weakref.ref(self)

    @property
    def memory(self) -> memoryview:
        return self.view(self.address, self.nbytes, True)

    def __buffer__(self, flags: int) -> memoryview:
        """`memoryview(buffer)`, from Python 3.12 on."""
        return self.memory

    def retire_by(self, begin: Callable[[Any], Any]) -> None:
        """Passes the place of C's buffer to `begin`, which takes it over or raises: for exporters. A signal's handler may
        raise when C has taken the buffer already."""
        if self._free.detach() is None:
            raise ValueError(f"{self!r} was released")
        self._released = True  # no new views from here on
        _exported.pop(self.address, None)
        place = ffi.new("pinfold_memfd_buffer **", self._buffer)
        try:
            if self._holds:
                raise BufferError("views of the buffer are alive")
            begin(place)
        except BaseException:
            if place[0] != ffi.NULL:
                self._own(_free, self._buffer, self.address)
                _exported[self.address] = weakref.ref(self)
                self._released = False
            raise

    def _give_back(self) -> None:
        self._free()

    def __repr__(self) -> str:
        return f"<pinfold.MemfdBuffer of {self.nbytes} bytes at {self.address:#x}>"


def _drop_ticket(ticket: Any) -> bool:
    """Drops the ticket of a retirement that goes on although its caller got an exception, and returns whether there is
    one."""
    if ticket[0] == ffi.NULL:
        return False
    lib.pinfold_retirement_end(ticket[0])
    return True


class MemfdExporter(Owner):
    """An exporter of memory files. `peers_write`: importers may map the buffers for writing. `serve`: pass descriptors to
    peers over a Unix socket, so that they need no permission to ptrace this process. `release`: track which importers
    hold a buffer, for `retire`. `limbo_bytes`: how much retired memory importers may keep alive after the deadline;
    None: 4 GiB.
    """

    def __init__(
        self, peers_write: bool = False, serve: bool = False, release: bool = False, limbo_bytes: int | None = None
    ) -> None:
        flags = lib.PINFOLD_MEMFD_PEERS_WRITE * peers_write | lib.PINFOLD_MEMFD_SERVE * serve
        made = ffi.new("pinfold_memfd_exporter **")
        if release:
            options = exporter_options(flags, release, limbo_bytes)
            check(lib.pinfold_memfd_exporter_create_with(options, made))
        else:
            check(lib.pinfold_memfd_exporter_create(flags, made))
        self._exporter = made[0]
        self._own(lib.pinfold_memfd_exporter_destroy, self._exporter)

    def allocate(self, nbytes: int) -> MemfdBuffer:
        """Allocates a zeroed buffer of whole pages."""
        made = ffi.new("pinfold_memfd_buffer **")
        check(lib.pinfold_memfd_allocate(self._exporter, nbytes, made))
        return MemfdBuffer(made[0])

    def retire(self, buffer: MemfdBuffer, timeout: float) -> RetireReport:
        """Asks each importer that holds the buffer to let it go, waits for them at most `timeout` seconds, and frees it.
        Importers that hold it then keep it alive, within `limbo_bytes`. The buffer is released in any case. Raises
        BufferError while views of it are alive in this process."""
        return self.begin_retire(buffer, timeout).wait(timeout)

    def begin_retire(self, buffer: MemfdBuffer, timeout: float) -> Retirement:
        """Begins a retirement as `retire` does, and returns a ticket to wait with."""
        ticket = ffi.new("pinfold_retirement **")

        def begin(place: Any) -> None:
            check(lib.pinfold_memfd_begin_retire(self._exporter, place, milliseconds(timeout), ticket))

        try:
            buffer.retire_by(begin)
        except BaseException:
            _drop_ticket(ticket)
            raise
        return Retirement(ticket[0], self, Raised())

    def retirements(self) -> dict[str, int]:
        """Returns the counts of retirements, by their names in release.h; all 0 without `release`."""
        return counts(lib.pinfold_memfd_retirements, self._exporter)

    def reserve(self, nbytes: int) -> MemfdSegments:
        """Reserves an address range without memory, of whole pages, to which segments are added."""
        made = ffi.new("pinfold_memfd_segments **")
        check(lib.pinfold_memfd_reserve(self._exporter, nbytes, made))
        return MemfdSegments(made[0], self)

    def array(self, shape: int | Sequence[int], dtype: Any = float) -> Any:
        """Allocates a zeroed numpy array, for `share`. It is freed with its last view."""
        import numpy

        kind = numpy.dtype(dtype)
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        count = math.prod(dimensions)
        memory = self.allocate(count * kind.itemsize).memory
        return numpy.frombuffer(memory, kind, count).reshape(dimensions)


class CudaExporter(Owner):
    """An exporter of GPU memory that belongs to the application: docs/use/gpu.md. It must live as long as peers open its
    handles. `release` and `limbo_bytes`: as of `MemfdExporter`."""

    def __init__(self, release: bool = False, limbo_bytes: int | None = None) -> None:
        made = ffi.new("pinfold_cuda_exporter **")
        if release:
            check(lib.pinfold_cuda_exporter_create_with(exporter_options(0, release, limbo_bytes), made))
        else:
            check(lib.pinfold_cuda_exporter_create(made))
        self._exporter = made[0]
        # Its thread calls Python to free memory, which must not happen after the interpreter has ended.
        self._own(lib.pinfold_cuda_exporter_destroy, self._exporter, at_exit=release)

    def share(self, address: int, nbytes: int) -> bytes:
        """Returns the handle of the whole allocation around the memory."""
        handle = ffi.new("char[]", CUDA_HANDLE_BYTES)
        check(lib.pinfold_cuda_share(self._exporter, address, nbytes, handle, CUDA_HANDLE_BYTES))
        return bytes(ffi.buffer(handle))

    def retire(self, address: int, timeout: float, free: Callable[[], object]) -> RetireReport:
        """Retires the shared memory around the address as `MemfdExporter.retire` does. `free` frees the memory: it is
        called once, on a thread of the library without a current context, when no importer holds the memory, when room
        is needed, or when the exporter ends. Its exception is the report's `failure`."""
        return self.begin_retire(address, timeout, free).wait(timeout)

    def begin_retire(self, address: int, timeout: float, free: Callable[[], object]) -> Retirement:
        """Begins a retirement as `retire` does, and returns a ticket to wait with."""
        ticket = ffi.new("pinfold_retirement **")
        call = FreeCall(free)
        try:
            given = self._exporter, address, milliseconds(timeout), free_memory(), call.handle, ticket
            check(lib.pinfold_cuda_begin_retire(*given))
        except BaseException:
            if not _drop_ticket(ticket):
                call.withdraw()
            raise
        return Retirement(ticket[0], self, call.raised)

    def retirements(self) -> dict[str, int]:
        """Returns the counts of retirements, by their names in release.h; all 0 without `release`."""
        return counts(lib.pinfold_cuda_retirements, self._exporter)

    def share_segments(self, address: int, nbytes: int) -> list[bytes]:
        """Returns a handle of each physical segment that the memory touches, by address: docs/use/segments.md."""
        share_them = lib.pinfold_cuda_share_segments
        return listed(
            lambda to, room, count: share_them(self._exporter, address, nbytes, to, CUDA_HANDLE_BYTES, room, count),
            CUDA_HANDLE_BYTES,
        )


def announce_cuda_free(address: int, nbytes: int, timeout: float = 0.1) -> int:
    """Announces that the program is about to free that GPU memory: all exporters of the process forget what they shared
    there, and those with `release` ask the importers to let it go. Waits for their answers for at most `timeout`;
    returns how many still hold it. The CUDA adapter calls it for programs that run over it."""
    holders = ffi.new("size_t *")
    check(lib.pinfold_cuda_announce_free(address, nbytes, milliseconds(timeout), holders))
    return int(holders[0])


def exported_buffer(address: int) -> MemfdBuffer | None:
    """Returns the buffer that contains the address, if an exporter of this process made it."""
    bases = sorted(_exported)
    at = bisect.bisect_right(bases, address) - 1
    buffer = _exported.get(bases[at], _no_buffer)() if at >= 0 else None
    return buffer if buffer is not None and address < buffer.address + buffer.nbytes else None
