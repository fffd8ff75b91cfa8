# SPDX-License-Identifier: BSD-3-Clause
"""Exporters: memory of this process that peers can import, and its handles."""

from __future__ import annotations

import bisect
import math
import os
import weakref
from typing import Any, Sequence

from pinfold._held import Held
from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.constants import CUDA_HANDLE_BYTES, MEMFD_HANDLE_BYTES
from pinfold.errors import check
from pinfold.segments import MemfdSegments

_exported: dict[int, weakref.ref[MemfdBuffer]] = {}


def _no_buffer() -> None:
    return None


def _free(pointer: Any, address: int) -> None:
    _exported.pop(address, None)  # before another buffer can have the address
    lib.pinfold_memfd_free(pointer)


class MemfdBuffer(Held, Owner):
    """A buffer that peers can import by its handle. `release` frees it: peers keep what they have mapped, and cannot open
    it again. It stays while views of its memory, such as arrays, are alive, and is freed when it is collected."""

    def __init__(self, pointer: Any) -> None:
        super().__init__()
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

    def _give_back(self) -> None:
        self._free()

    def __repr__(self) -> str:
        return f"<pinfold.MemfdBuffer of {self.nbytes} bytes at {self.address:#x}>"


class MemfdExporter(Owner):
    """An exporter of memory files. `peers_write`: importers may map the buffers for writing. `serve`: hand descriptors to
    peers over a Unix socket, so that they need no right to ptrace this process."""

    def __init__(self, peers_write: bool = False, serve: bool = False) -> None:
        flags = lib.PINFOLD_MEMFD_PEERS_WRITE * peers_write | lib.PINFOLD_MEMFD_SERVE * serve
        made = ffi.new("pinfold_memfd_exporter **")
        check(lib.pinfold_memfd_exporter_create(flags, made))
        self._exporter = made[0]
        self._own(lib.pinfold_memfd_exporter_destroy, self._exporter)

    def allocate(self, nbytes: int) -> MemfdBuffer:
        """Allocates a zeroed buffer of whole pages."""
        made = ffi.new("pinfold_memfd_buffer **")
        check(lib.pinfold_memfd_allocate(self._exporter, nbytes, made))
        return MemfdBuffer(made[0])

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
    """An exporter of GPU memory that belongs to the application: docs/gpu.md. It must live as long as peers open its
    handles."""

    def __init__(self) -> None:
        made = ffi.new("pinfold_cuda_exporter **")
        check(lib.pinfold_cuda_exporter_create(made))
        self._exporter = made[0]
        self._own(lib.pinfold_cuda_exporter_destroy, self._exporter)

    def share(self, address: int, nbytes: int) -> bytes:
        """Returns the handle of the whole allocation around the memory."""
        handle = ffi.new("char[]", CUDA_HANDLE_BYTES)
        check(lib.pinfold_cuda_share(self._exporter, address, nbytes, handle, CUDA_HANDLE_BYTES))
        return bytes(ffi.buffer(handle))


def exported_buffer(address: int) -> MemfdBuffer | None:
    """Returns the buffer that contains the address, if an exporter of this process made it."""
    bases = sorted(_exported)
    at = bisect.bisect_right(bases, address) - 1
    buffer = _exported.get(bases[at], _no_buffer)() if at >= 0 else None
    return buffer if buffer is not None and address < buffer.address + buffer.nbytes else None
