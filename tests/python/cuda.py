# SPDX-License-Identifier: BSD-3-Clause
"""GPU memory of a test: of the driver that pinfold loads too, which is the emulated one where PINFOLD_CUDA_LIBRARY names
it."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any, Sequence

from pinfold import dlpack
from pinfold._held import Held
from pinfold.dtype import DType


SEGMENT = 2 << 20
_u64 = ctypes.c_uint64
_size = ctypes.c_size_t


class Driver:
    """The primary context of device 0, current on this thread. Raises OSError without a driver."""

    def __init__(self) -> None:
        self.calls = ctypes.CDLL(os.environ.get("PINFOLD_CUDA_LIBRARY", "libcuda.so.1"))
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)

    def __call__(self, name: str, *given: Any) -> None:
        status = getattr(self.calls, name)(*given)
        if status != 0:
            raise OSError(f"{name} returned {status}")

    def is_emulated(self) -> bool:
        return hasattr(self.calls, "emulated_cuda_reset")

    def allocate(self, data: bytes) -> int:
        pointer = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(len(data)))
        self("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))
        return pointer.value

    def map_segments(self, parts: Sequence[bytes]) -> int:
        """Maps a segment for each part, side by side; returns the address of the first. A segment has 2 MiB."""
        base = ctypes.c_uint64()
        self("cuMemAddressReserve", ctypes.byref(base), _size(SEGMENT * len(parts)), _size(0), _u64(0), _u64(0))
        for number, data in enumerate(parts):
            at, physical = _u64(base.value + number * SEGMENT), ctypes.c_uint64()
            pinned_and_shared = struct.pack("4i2Q", 1, 1, 1, 0, 0, 0)
            self("cuMemCreate", ctypes.byref(physical), _size(SEGMENT), pinned_and_shared, _u64(0))
            self("cuMemMap", at, _size(SEGMENT), _size(0), physical, _u64(0))
            self("cuMemRelease", physical)
            self("cuMemSetAccess", at, _size(SEGMENT), struct.pack("3i", 1, 0, 3), _size(1))
            self("cuMemcpyHtoD_v2", at, data, _size(len(data)))
        return base.value

    def read(self, address: int, nbytes: int) -> bytes:
        data = ctypes.create_string_buffer(nbytes)
        self("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
        return data.raw

    def free(self, address: int) -> None:
        self("cuMemFree_v2", ctypes.c_uint64(address))


class Array:
    """An array with CUDA's array interface, as those of numba, CuPy and PyTorch."""

    def __init__(self, address: int, shape: tuple[int, ...], name: str, strides: tuple[int, ...] | None = None) -> None:
        self.interface = {"version": 3, "shape": shape, "typestr": name, "data": (address, False), "strides": strides}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface


class Dlpack(Held):
    """A tensor with DLPack's interface and a type that CUDA's array interface has no name for."""

    def __init__(self, address: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        super().__init__()
        self.described = address, (dlpack.CUDA, 0), dtype, shape, strides
        self.streams: list[Any] = []

    def __dlpack__(self, stream: Any = None) -> object:
        self.streams.append(stream)
        return dlpack.export(self, *self.described, read_only=False, versioned=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CUDA, 0)

    def _give_back(self) -> None:
        pass
