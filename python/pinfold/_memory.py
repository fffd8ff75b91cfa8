# SPDX-License-Identifier: BSD-3-Clause
"""Memory of this process that Python objects have."""

from __future__ import annotations

from typing import Any

from pinfold._library import ffi
from pinfold.constants import Access

_READ = int(Access.LOCAL_READ)
_READ_WRITE = int(Access.LOCAL_READ | Access.LOCAL_WRITE)
_WRITES = int(Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)


def locked(memory: object, access: int | None) -> tuple[Any, int]:
    """Returns the memory of a buffer, which its owner neither moves nor frees while the result lives, and the access to
    request: by default all that the buffer allows."""
    if access is not None:
        return _from_buffer(memory, bool(access & _WRITES)), access
    try:
        return ffi.from_buffer("char[]", memory, True), _READ_WRITE
    except (BufferError, ValueError, TypeError):
        return _from_buffer(memory, False), _READ


def _from_buffer(memory: object, writable: bool) -> Any:
    try:
        return ffi.from_buffer("char[]", memory, writable)
    except (BufferError, ValueError, TypeError) as reason:
        raise BufferError(f"{_description(memory)}: {reason}") from None


def _description(memory: object) -> str:
    kind = type(memory).__qualname__
    try:
        view = memoryview(memory)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return f"{kind} has no buffer; acquire_at takes an address"
    if not view.c_contiguous:
        return f"this {kind} is not contiguous, so it is no one range of memory"
    return f"this {kind} is read-only" if view.readonly else f"this {kind}"


def range_of(memory: object) -> tuple[int, int]:
    """Returns the address and the length of a buffer."""
    buffer = _from_buffer(memory, False)
    return int(ffi.cast("uintptr_t", buffer)), len(buffer)
