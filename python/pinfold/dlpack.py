# SPDX-License-Identifier: BSD-3-Clause
"""Memory as DLPack capsules: https://data-apis.org/array-api/latest/design_topics/data_interchange.html"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Sequence

from pinfold._callbacks import callback, member
from pinfold._held import Held
from pinfold._library import ffi, lib
from pinfold.dtype import DType

CPU, CUDA = lib.kDLCPU, lib.kDLCUDA
_NAME, _VERSIONED_NAME = ctypes.c_char_p(b"dltensor"), ctypes.c_char_p(b"dltensor_versioned")


def _of_python(name: str, *types: Any) -> Any:
    """Returns a function of the interpreter; its argument types follow the type of the result."""
    return ctypes.PYFUNCTYPE(*types)((name, ctypes.pythonapi))


_new = _of_python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _of_python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _of_python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)


class _Export:
    """A tensor that a consumer has, or may still take out of its capsule."""

    owner: Held
    managed: Any
    arrays: Any
    capsule: object
    name: ctypes.c_char_p

    def is_abandoned(self) -> bool:
        return sys.getrefcount(self.capsule) == 2 and bool(_is_valid(self.capsule, self.name))


_exports: dict[int, _Export] = {}


def export(
    owner: Held,
    address: int,
    device: tuple[int, int],
    dtype: DType,
    shape: Sequence[int],
    strides: Sequence[int],
    read_only: bool,
    versioned: bool,
) -> object:
    """Returns a capsule of memory that the owner keeps until the consumer deletes the tensor. `strides`: in elements."""
    sweep()
    made = _Export()
    made.owner = owner
    made.arrays = ffi.new("int64_t[]", tuple(shape)), ffi.new("int64_t[]", tuple(strides))
    if versioned:
        made.name = _VERSIONED_NAME
        made.managed = managed = ffi.new("DLManagedTensorVersioned *")
        managed.major, managed.flags = 1, lib.DLPACK_FLAG_BITMASK_READ_ONLY * read_only
        managed.deleter = _delete_versioned()
    else:
        made.name = _NAME
        made.managed = managed = ffi.new("DLManagedTensor *")
        managed.deleter = _delete()
    tensor = managed.dl_tensor
    tensor.data, tensor.ndim = ffi.cast("void *", address), len(shape)
    tensor.device.device_type, tensor.device.device_id = device
    tensor.dtype = (dtype.code, dtype.bits, 1)
    tensor.shape, tensor.strides = made.arrays
    where = int(ffi.cast("uintptr_t", managed))
    owner.hold_memory()
    # Without a destructor, which would have to be in C: a destructor in Python loses the exception of a consumer that
    # fails, as the interpreter may run it while it propagates the exception. `sweep` does the work of a destructor.
    capsule = made.capsule = _new(where, made.name, None)  # a reference of this function, until it returns
    _exports[where] = made
    return capsule


def sweep() -> None:
    """Drops the tensors of capsules that no consumer took."""
    for where, made in list(_exports.items()):
        if made.is_abandoned():
            _let_go(where)


def _let_go(where: int) -> None:
    made = _exports.pop(where, None)
    if made is not None:
        made.owner.drop_memory()


@callback(member("DLManagedTensor", "deleter"))
def _delete(managed: Any) -> None:
    _let_go(int(ffi.cast("uintptr_t", managed)))


@callback(member("DLManagedTensorVersioned", "deleter"))
def _delete_versioned(managed: Any) -> None:
    _let_go(int(ffi.cast("uintptr_t", managed)))


def device_of(tensor: Any) -> tuple[int, int] | None:
    """Returns the kind and the number of a tensor's device, if the tensor has DLPack's interface."""
    ask = getattr(tensor, "__dlpack_device__", None)
    if ask is None or not hasattr(tensor, "__dlpack__"):
        return None
    kind, number = ask()
    return int(kind), int(number)


def description_of(tensor: Any) -> tuple[int, DType, tuple[int, ...], tuple[int, ...] | None]:
    """Returns the address, type, shape, and strides in bytes (None: contiguous) of another library's tensor."""
    asynchronous = {"stream": -1} if device_of(tensor) != (CPU, 0) else {}  # its memory is not read here
    capsule = tensor.__dlpack__(**asynchronous)
    c = ffi.cast("DLManagedTensor *", _pointer(capsule, _NAME)).dl_tensor
    if c.dtype.lanes != 1:
        raise TypeError("elements of several lanes cannot be shared")
    dtype = DType(c.dtype.code, c.dtype.bits)
    shape = tuple(c.shape[0 : c.ndim])
    strides = tuple(one * dtype.itemsize for one in c.strides[0 : c.ndim]) if c.strides else None
    return int(ffi.cast("uintptr_t", c.data)) + c.byte_offset, dtype, shape, strides
