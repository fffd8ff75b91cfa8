# SPDX-License-Identifier: BSD-3-Clause
"""The description of a tensor for another process, as bytes."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from pinfold.constants import CUDA_HANDLE_BYTES, MEMFD_HANDLE_BYTES, Code
from pinfold.dtype import DType
from pinfold.errors import Error
from pinfold.import_cache import Place
from pinfold.layout import extent

_MAGIC = b"pinfold\1"  # the last byte is the version
_HEAD = struct.Struct("<8s 4B 2H 3Q")
_CHECK = struct.Struct("<I")
_KINDS = {1: Place.HOST, 2: Place.CUDA}
_LENGTHS = {Place.HOST: MEMFD_HANDLE_BYTES, Place.CUDA: CUDA_HANDLE_BYTES}


def _refused(why: str) -> Error:
    return Error(Code.INVALID_HANDLE, f"not the handle of a tensor: {why}")


@dataclass(frozen=True)
class Handle:
    """A handle of a tensor: picklable, and plain bytes that may be sent in any way. Equal memory has equal handles."""

    place: Place
    peer: int
    """The process that exports the memory."""
    token: bytes
    """The exporter's handle of the whole allocation."""
    address: int
    nbytes: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    device: int = 0
    """The exporter's number of the GPU."""

    def __post_init__(self) -> None:
        if len(self.token) != _LENGTHS.get(self.place):
            raise _refused(f"{len(self.token)} bytes are no handle of an exporter")
        if not 8 <= self.dtype.bits <= 248 or self.dtype.bits % 8 or len(self.shape) > 64:
            raise _refused(f"{self.dtype} in {len(self.shape)} dimensions cannot be shared")
        if not 0 <= self.device < 1 << 16:
            raise _refused(f"no GPU has the number {self.device}")
        try:
            needed = extent(self.shape, self.strides, self.dtype.itemsize)
        except ValueError as reason:
            raise _refused(str(reason)) from None
        if needed != self.nbytes or self.address + self.nbytes > 1 << 64:
            raise _refused("the shape does not fill the memory")

    def __bytes__(self) -> bytes:
        kind = next(number for number, place in _KINDS.items() if place is self.place)
        count = len(self.shape)
        data = (
            _HEAD.pack(
                _MAGIC, kind, *self.dtype, count, self.device, len(self.token), self.peer, self.address, self.nbytes
            )
            + struct.pack(f"<{2 * count}Q", *self.shape, *self.strides)
            + self.token
        )
        return data + _CHECK.pack(zlib.crc32(data))

    @classmethod
    def from_bytes(cls, data: bytes) -> Handle:
        """Raises INVALID_HANDLE for bytes that are no handle, are damaged, or are of another version."""
        if len(data) < _HEAD.size + _CHECK.size or data[:7] != _MAGIC[:7]:
            raise _refused("too short, or of another kind")
        if data[7] != _MAGIC[7]:
            raise _refused(f"version {data[7]}; this package reads {_MAGIC[7]}")
        if _CHECK.pack(zlib.crc32(data[: -_CHECK.size])) != data[-_CHECK.size :]:
            raise _refused("damaged")
        _, kind, code, bits, count, device, length, peer, address, nbytes = _HEAD.unpack_from(data)
        if kind not in _KINDS or len(data) != _HEAD.size + 16 * count + length + _CHECK.size:
            raise _refused("wrong members")
        numbers = struct.unpack_from(f"<{2 * count}Q", data, _HEAD.size)
        token = data[-_CHECK.size - length : -_CHECK.size]
        return cls(
            _KINDS[kind], peer, token, address, nbytes, DType(code, bits), numbers[:count], numbers[count:], device
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle.from_bytes, (bytes(self),)
