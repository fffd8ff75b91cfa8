# SPDX-License-Identifier: BSD-3-Clause
"""Tensors for other processes: `share` in the process that has the memory, `open` in the others."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Sequence, TypeVar

from pinfold import dlpack
from pinfold._memory import range_of
from pinfold.dtype import DType
from pinfold.exporters import CudaExporter, MemfdExporter, exported_buffer
from pinfold.handle import Handle
from pinfold.import_cache import ImportCache, Place
from pinfold.layout import contiguous, extent
from pinfold.tensor import Tensor

_T = TypeVar("_T")


class _OfProcess:
    """The exporters and caches of this process, made at their first use."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._made: dict[Any, Any] = {}
        self._making = threading.Lock()

    def get(self, key: Any, make: Callable[[], _T]) -> _T:
        found: _T | None = self._made.get(key)
        if found is None:
            with self._making:
                found = self._made.get(key)
                if found is None:
                    found = self._made[key] = make()
        return found


_of_process = _OfProcess()
os.register_at_fork(after_in_child=_of_process.forget)


def memfd_array(shape: int | Sequence[int], dtype: Any = float) -> Any:
    """Allocates a zeroed numpy array that `share` can share. Peers can only read it; `MemfdExporter(peers_write=True)`
    makes arrays that they can write."""
    return _of_process.get(MemfdExporter, MemfdExporter).array(shape, dtype)


def share(tensor: Any, device: int = 0) -> Handle:
    """Returns the handle of a tensor, which another process opens.

    GPU memory may be that of any tensor with DLPack's interface or `__cuda_array_interface__`; `device` is the number of
    the GPU for tensors that do not have it. Work on the tensor must have ended before a peer reads it. Host memory must
    come from `memfd_array` or a `MemfdExporter`, and may be any part of such an array that strides describe.

    The handle does not keep the memory alive: a peer that opens it afterwards gets STALE_HANDLE, or PEER_GONE.
    """
    on = dlpack.device_of(tensor)
    if on is not None and on[0] == dlpack.CUDA:
        return _share_cuda(*dlpack.description_of(tensor), device=on[1])
    if on is not None and on[0] != dlpack.CPU:
        raise TypeError(f"memory on a device of DLPack's kind {on[0]} cannot be shared")
    interface = getattr(tensor, "__cuda_array_interface__", None)
    if interface is not None:
        return _share_cuda(*_described(interface), device=device)
    return _share_host(*_in_host_memory(tensor))


def open(
    handle: Handle | bytes,
    *,
    cache: ImportCache | None = None,
    device: int | None = None,
    writable: bool = False,
) -> Tensor:
    """Returns the tensor of a handle, mapped into this process, or onto one of its GPUs.

    Uses `cache`, or a cache that the process keeps for all tensors of that kind. `device`: the GPU to map on, otherwise the
    exporter's. `writable`: map host memory for writing, which the exporter must grant.
    """
    if not isinstance(handle, Handle):
        handle = Handle.from_bytes(bytes(memoryview(handle)))
    if cache is None:
        cache = _peers(handle, handle.device if device is None else device, writable)
    elif cache.place is not handle.place:
        raise ValueError(f"{cache!r} does not import {handle.place.value} memory")
    lease = cache.acquire(handle.peer, handle.token, handle.address, handle.nbytes)
    return Tensor(lease, handle.dtype, handle.shape, handle.strides)


def _peers(handle: Handle, device: int, writable: bool) -> ImportCache:
    if handle.place is Place.CUDA:
        return _of_process.get(device, lambda: ImportCache.cuda_ipc(device))
    return _of_process.get(("memfd", writable), lambda: ImportCache.memfd(writable))


def _described(interface: dict[str, Any]) -> tuple[int, DType, tuple[int, ...], tuple[int, ...] | None]:
    if interface.get("mask") is not None:
        raise TypeError("an array with a mask cannot be shared")
    return (
        interface["data"][0],
        DType.named(interface["typestr"]),
        tuple(interface["shape"]),
        interface.get("strides"),
    )


def _in_host_memory(tensor: Any) -> tuple[int, DType, tuple[int, ...], tuple[int, ...] | None]:
    interface = getattr(tensor, "__array_interface__", None)
    if interface is not None:
        return _described(interface)
    if dlpack.device_of(tensor) is not None:
        return dlpack.description_of(tensor)
    address, _ = range_of(tensor)
    view = memoryview(tensor)
    return address, DType.of_format(view.format, view.itemsize), view.shape or (), view.strides


def _share_cuda(
    address: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None, device: int
) -> Handle:
    strides = strides or contiguous(shape, dtype.itemsize)
    nbytes = extent(shape, strides, dtype.itemsize)
    token = _of_process.get(CudaExporter, CudaExporter).share(address, nbytes)
    return Handle(Place.CUDA, os.getpid(), token, address, nbytes, dtype, shape, strides, device)


def _share_host(address: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Handle:
    strides = strides or contiguous(shape, dtype.itemsize)
    nbytes = extent(shape, strides, dtype.itemsize)
    buffer = exported_buffer(address)
    if buffer is None:
        raise ValueError(
            "this memory belongs to no exporter, so peers cannot open it: allocate it with pinfold.memfd_array(shape, "
            "dtype), or copy it into such an array"
        )
    return Handle(Place.HOST, buffer.peer, buffer.handle, address, nbytes, dtype, shape, strides)
