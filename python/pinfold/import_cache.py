# SPDX-License-Identifier: BSD-3-Clause
"""Caches of memory that peers export, and leases on it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Callable, Self, Sequence

from pinfold._cache import BaseCache
from pinfold._callbacks import Call
from pinfold._library import ffi, lib
from pinfold.errors import check, last_failure
from pinfold.importer import Importer, table_of
from pinfold.lease import Lease
from pinfold.options import Options
from pinfold.segmented_lease import Segment, SegmentedLease
from pinfold.segments import Window

if TYPE_CHECKING:
    from pinfold.carried import ReleaseListener
    from pinfold.tensor import Tensor


class Place(enum.Enum):
    """The place of imported memory."""

    HOST = "host"
    CUDA = "cuda"
    ELSEWHERE = "elsewhere"


class ImportLease(Lease):
    """A lease on a peer's memory: mapped until the release, and while views of it are alive."""

    __slots__ = ("_lent",)
    cache: ImportCache

    def __init__(self, cache: ImportCache, raw: Any, nbytes: int, buffer: object) -> None:
        super().__init__(cache, raw, nbytes, buffer)
        self._lent = False

    @property
    def memory(self) -> memoryview:
        """A view of the memory, for host memory; writable if the cache imports it for writing."""
        if self.cache.place is not Place.HOST:
            raise BufferError("this process cannot read the memory: it is not host memory")
        return self.view(self.address, self.nbytes, self.cache.writable)

    def __buffer__(self, flags: int) -> memoryview:
        """`memoryview(lease)`, from Python 3.12 on."""
        return self.memory

    def tensor(self, dtype: str = "|u1", shape: Sequence[int] | None = None) -> Tensor:
        """Returns the memory as a tensor of elements such as "<f4", by default in one dimension."""
        from pinfold.tensor import Tensor

        return Tensor.of(self, dtype, shape)

    def hold_memory(self) -> None:
        state = self.cache._state
        state.views.append(None)
        self._lent = True
        try:
            if state.ended:
                raise ValueError("the cache was closed, and its memory with it")
            self.hold()
        except BaseException:
            state.views.pop()
            raise

    def drop_memory(self) -> None:
        self.cache._state.views.pop()
        self.drop()

    def _warn(self) -> None:
        if not self._lent:  # otherwise views own it
            super()._warn()


class ImportCache(BaseCache):
    """A cache of memory of other processes, over an importer in Python or one of the library's."""

    def __init__(self, importer: Importer, options: Options | None = None) -> None:
        self._make_over(importer, table_of, lib.pinfold_create_import, options)
        self._describe(Place.HOST if importer.host_memory else Place.ELSEWHERE, importer.writable)

    @classmethod
    def _made(
        cls, create: Callable[[Any, Any], Any], options: Options | None, listener: ReleaseListener | None
    ) -> Self:
        made = cls.__new__(cls)
        # The end of an exporter closes memory on a thread of the library, which may call `send`.
        BaseCache.__init__(made, create, options, lambda at: None, threads_call_python=listener is not None)
        made._state.keeps = listener and listener._c
        return made

    @classmethod
    def memfd(
        cls,
        writable: bool = False,
        unsealed: bool = False,
        populate: bool = False,
        options: Options | None = None,
        *,
        releasing: bool = False,
        listener: ReleaseListener | None = None,
    ) -> Self:
        """Makes a cache that imports the memory of memfd exporters. `writable`: map it for writing too, which the exporter
        must grant. `unsealed`: also open memory that a peer could truncate. `populate`: fault in all pages at the open.
        `releasing`: let memory go when its exporter, made with `release`, retires it. `listener`: let memory go when an
        exporter asks the listener for it, over a channel of the application.
        """
        flags = (
            lib.PINFOLD_MEMFD_READ_WRITE * writable
            | lib.PINFOLD_MEMFD_UNSEALED * unsealed
            | lib.PINFOLD_MEMFD_POPULATE * populate
        )
        forms = lib.pinfold_create_memfd, lib.pinfold_create_memfd_releasing, lib.pinfold_create_memfd_carried
        made = cls._made(_in_form(forms, flags, releasing, listener), options, listener)
        return made._describe(Place.HOST, writable)

    @classmethod
    def cuda_ipc(
        cls,
        device: int = 0,
        options: Options | None = None,
        *,
        releasing: bool = False,
        listener: ReleaseListener | None = None,
    ) -> Self:
        """Makes a cache that imports GPU memory of CUDA exporters, mapped on the device. `releasing` and `listener`: as of
        `memfd`."""
        forms = lib.pinfold_create_cuda_ipc, lib.pinfold_create_cuda_ipc_releasing, lib.pinfold_create_cuda_ipc_carried
        made = cls._made(_in_form(forms, device, releasing, listener), options, listener)
        return made._describe(Place.CUDA, True, device)

    def _describe(self, place: Place, writable: bool, device: int = 0) -> Self:
        self.place = place
        self.writable = writable
        self.device = device
        self.handle_bytes = self._call(lib.pinfold_handle_bytes)
        return self

    def acquire(self, peer: int, handle: bytes, address: int, nbytes: int, *, argument: object = None) -> ImportLease:
        """Returns a lease on `nbytes` bytes at the peer's `address`, inside the allocation of the handle. `peer` is any
        number that no other process has, such as its process id. `argument` reaches an importer in Python, if this call
        opens."""
        if argument is None:
            raw: Any = self._call(lib.pinfold_import, peer, _bytes(handle), len(handle), address, nbytes)
            if not raw.pin:
                raise last_failure()
            return ImportLease(self, raw, nbytes, None)
        call = Call(argument)
        argument_of_call = call.handle()
        how = ffi.new("pinfold_acquire_options *")
        how.size, how.argument = ffi.sizeof("pinfold_acquire_options"), argument_of_call
        raw = self._call(lib.pinfold_import_with, peer, _bytes(handle), len(handle), address, nbytes, how)
        if not raw.pin:
            raise last_failure(call.raised)
        return ImportLease(self, raw, nbytes, None)

    def acquire_segments(self, peer: int, handles: Sequence[bytes], address: int, nbytes: int) -> SegmentedLease:
        """Returns leases on all segments under the `nbytes` bytes at the peer's `address`, all or nothing: one for each of
        the handles that the range touches. The handles may be in any order. Only segments that are not open are opened.
        """
        plain = [_bytes(one) for one in handles]
        length = len(plain[0]) if plain else self.handle_bytes
        if any(len(one) != length for one in plain):
            raise ValueError("the handles have different lengths")
        leases, where = ffi.new("pinfold_lease[]", len(plain)), ffi.new("pinfold_range[]", len(plain))
        made = ffi.new("size_t *")
        asked = (peer, b"".join(plain), length, len(plain), address, nbytes)
        check(self._call(lib.pinfold_acquire_segments, *asked, leases, where, made))
        raws = [ffi.new("pinfold_lease *", leases[one])[0] for one in range(made[0])]
        return SegmentedLease(
            [Segment(at.base, ImportLease(self, raw, at.bytes, None)) for raw, at in zip(raws, where)]
        )

    def can_open(self, handle: bytes) -> None:
        """Raises the error why the handle could not be opened now, without opening anything: docs/use/handles.md."""
        check(self._call(lib.pinfold_can_open, _bytes(handle), len(handle)))

    def add_window(self, window: Window) -> int:
        """Reserves addresses in which segments of the window are mapped side by side; returns the first. Call it before
        the first acquire of a segment in the window."""
        address = ffi.new("void **")
        check(self._call(lib.pinfold_add_window, window.raw(), address))
        return int(ffi.cast("uintptr_t", address[0]))

    def remove_window(self, window: Window) -> None:
        """Gives back the addresses of the window. Requires that nothing is mapped in it."""
        check(self._call(lib.pinfold_remove_window, window.raw()))

    def find(self, peer: int, handle: bytes, address: int, nbytes: int) -> ImportLease | None:
        """Returns a lease only if the memory is already open. Never opens and never waits."""
        raw: Any = self._call(lib.pinfold_find_import, peer, _bytes(handle), len(handle), address, nbytes)
        return ImportLease(self, raw, nbytes, None) if raw.pin else None

    def invalidate(self, peer: int, address: int, nbytes: int) -> None:
        """Invalidates memory of a peer that is gone. Only marks."""
        check(self._call(lib.pinfold_invalidate_peer, peer, address, nbytes))

    def drop_peer(self, peer: int) -> None:
        """Handles the end of a peer: closes its idle entries. Raises the first error of a close."""
        check(self._call(lib.pinfold_drop_peer, peer))


def _in_form(
    forms: tuple[Any, Any, Any], which: int, releasing: bool, listener: ReleaseListener | None
) -> Callable[[Any, Any], Any]:
    """Returns the call that makes a cache: plain, releasing, or over the listener."""
    plain, own, carried = forms
    if listener is None:
        return lambda options, made: (own if releasing else plain)(which, options, made)
    if releasing:
        raise ValueError("a cache is releasing, or over a listener of the application")
    pointer = listener._c.pointer
    return lambda options, made: carried(pointer, which, options, made)


def _bytes(handle: object) -> bytes:
    if not isinstance(handle, bytes):
        raise TypeError(f"a handle is bytes, not {type(handle).__qualname__}")
    return handle
