# SPDX-License-Identifier: BSD-3-Clause
"""Imported memory as a tensor, for numpy and for libraries with DLPack or CUDA's array interface."""

from __future__ import annotations

import weakref
from typing import Any, Self, Sequence

from pinfold import dlpack
from pinfold.dtype import DType
from pinfold.import_cache import ImportLease, Place
from pinfold.layout import contiguous, extent


class Tensor:
    """A tensor in a peer's memory, which stays open while the tensor or any array made of it lives.

    The tensor owns its lease. `release`, or the end of a `with` statement, gives it back early: at once, or with the last
    array that uses the memory. Arrays made through `__cuda_array_interface__` keep the tensor itself instead.
    """

    def __init__(self, lease: ImportLease, dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> None:
        """Takes over the lease. `strides`: in bytes."""
        if extent(shape, strides, dtype.itemsize) > lease.nbytes:
            raise ValueError(f"shape {tuple(shape)} and strides {tuple(strides)} do not fit into {lease.nbytes} bytes")
        self.lease = lease
        self.dtype = dtype
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self._exposed = False
        self._release = weakref.finalize(self, lease.release)
        self._release.atexit = False

    @classmethod
    def of(cls, lease: ImportLease, dtype: str, shape: Sequence[int] | None) -> Self:
        element = DType.named(dtype)
        dimensions = (lease.nbytes // element.itemsize,) if shape is None else tuple(shape)
        own = lease.share()
        try:
            return cls(own, element, dimensions, contiguous(dimensions, element.itemsize))
        except BaseException:
            own.release()
            raise

    @property
    def stale(self) -> bool:
        """Whether the exporter has replaced the memory."""
        return self.lease.stale

    @property
    def memory(self) -> memoryview:
        """A view of the bytes, for host memory."""
        return self.lease.memory

    def numpy(self) -> Any:
        """Returns a numpy array, for host memory."""
        import numpy

        return numpy.ndarray(self.shape, self.dtype.name, self.memory, 0, self.strides)

    def release(self) -> None:
        dlpack.sweep()
        self._release()

    def __dlpack_device__(self) -> tuple[int, int]:
        cache = self.lease.cache
        if cache.place is Place.ELSEWHERE:
            raise BufferError("DLPack has no number for the place of this memory")
        return (dlpack.CUDA, cache.device) if cache.place is Place.CUDA else (dlpack.CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Returns a capsule. No stream of this process has work on the memory, so no wait is needed."""
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"the memory is on device {device}, not {tuple(dl_device)}")
        if copy:
            raise BufferError("pinfold does not copy")
        if device[0] == dlpack.CPU and stream is not None:
            raise ValueError("host memory has no stream")
        versioned = max_version is not None and max_version >= (1, 0)
        read_only = not self.lease.cache.writable
        if read_only and not versioned:
            raise BufferError("the memory is read-only, which consumers learn from DLPack 1.0 on: open it writable")
        if any(one % self.dtype.itemsize for one in self.strides):
            raise BufferError(f"strides of {self.strides} bytes are not whole elements, which DLPack counts in")
        strides = [one // self.dtype.itemsize for one in self.strides]
        return dlpack.export(
            self.lease, self.lease.address, device, self.dtype, self.shape, strides, read_only, versioned
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.lease.cache.place is not Place.CUDA:
            raise AttributeError("the memory is not a GPU's")
        try:
            name = self.dtype.name
        except TypeError as reason:
            raise AttributeError(str(reason)) from None
        if not self._exposed:
            self.lease.hold_memory()
            weakref.finalize(self, self.lease.drop_memory).atexit = False
            self._exposed = True
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": name,
            "data": (self.lease.address, False),
            "strides": None if self.strides == contiguous(self.shape, self.dtype.itemsize) else self.strides,
            "stream": None,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<pinfold.Tensor {self.shape} of {self.dtype} in {self.lease!r}>"
