# SPDX-License-Identifier: BSD-3-Clause
"""Caches of registrations of this process's memory."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Self, Sequence

from pinfold._cache import BaseCache, closed
from pinfold._callbacks import Call
from pinfold._library import ffi, lib, load
from pinfold._memory import locked
from pinfold._owned import free_refused, refused
from pinfold.background import Background
from pinfold.batch import Batch
from pinfold.chunks import Chunks
from pinfold.constants import Order, Prefault
from pinfold.errors import check, last_failure
from pinfold.large import LargeLease, acquire as _acquire_large
from pinfold.lease import Lease
from pinfold.options import Options
from pinfold.registrar import Registrar, table_of

_acquire, _get_ident = lib.pinfold_acquire, threading.get_ident


class Cache(BaseCache):
    """A cache of registrations of this process's memory, over a registrar in Python or one of the library's.

    It detects memory that is freed, unmapped or replaced: docs/understand/monitors.md.
    """

    def __init__(self, registrar: Registrar, options: Options | None = None) -> None:
        self._make_over(registrar, table_of, lib.pinfold_create, options)

    @classmethod
    def _made(cls, create: Callable[[Any, Any], Any], options: Options | None, structure: str = "") -> Self:
        made = cls.__new__(cls)
        BaseCache.__init__(made, create, options, lambda at: _members(structure, at))
        return made

    @classmethod
    def mlock(cls, options: Options | None = None) -> Self:
        """Makes a cache that locks memory with mlock2(2)."""
        return cls._made(lib.pinfold_create_mlock, options)

    @classmethod
    def io_uring(cls, ring: int, slots: int = 0, options: Options | None = None) -> Self:
        """Makes a cache over the buffer table of a ring. `ring` is the address of a `struct io_uring`, which must outlive
        the cache; `slots` the number of registrations, 0: 1024."""
        pointer = ffi.cast("struct io_uring *", ring)
        return cls._made(
            lambda options, made: lib.pinfold_create_io_uring(pointer, slots, options, made),
            options,
            "pinfold_io_uring_registration",
        )

    @classmethod
    def cuda_host(cls, device: int = 0, options: Options | None = None) -> Self:
        """Makes a cache that registers host memory with the CUDA driver, in the primary context of a device."""
        return cls._made(
            lambda options, made: lib.pinfold_create_cuda_host(device, options, made),
            options,
            "pinfold_cuda_host_registration",
        )

    @classmethod
    def verbs(
        cls,
        domain: int,
        paging: int = 0,
        relaxed_ordering: bool = False,
        options: Options | None = None,
        *,
        windows: bool = False,
        prefetch_on_open: bool = False,
    ) -> Self:
        """Makes a cache of RDMA memory regions. `domain` is the address of an `ibv_pd`, which must outlive the cache;
        `paging` a number of verbs.h; `windows`: memory windows may be bound to the regions. Needs libpinfold-verbs."""
        verbs = load("libpinfold-verbs.so.0")
        how = ffi.new("pinfold_verbs_options *")
        how.size, how.paging = ffi.sizeof("pinfold_verbs_options"), paging
        how.relaxed_ordering, how.windows, how.prefetch_on_open = relaxed_ordering, windows, prefetch_on_open
        pointer = ffi.cast("struct ibv_pd *", domain)
        return cls._made(
            lambda options, made: verbs.pinfold_create_verbs(pointer, how, options, made),
            options,
            "pinfold_verbs_registration",
        )

    @classmethod
    def libfabric(cls, domain: int, info: int, endpoint: int = 0, options: Options | None = None) -> Self:
        """Makes a cache of libfabric memory regions. `domain`, `info` and `endpoint` are the addresses of a `fid_domain`,
        of the `fi_info` that it was opened with, and, with FI_MR_ENDPOINT, of a `fid_ep`. Needs libpinfold-libfabric.
        """
        fabric = load("libpinfold-libfabric.so.0")
        how = ffi.new("pinfold_libfabric_options *")
        how.size, how.endpoint = ffi.sizeof("pinfold_libfabric_options"), ffi.cast("struct fid_ep *", endpoint)
        pointers = ffi.cast("struct fid_domain *", domain), ffi.cast("struct fi_info *", info)
        return cls._made(
            lambda options, made: fabric.pinfold_create_libfabric(*pointers, how, options, made),
            options,
            "pinfold_libfabric_registration",
        )

    def acquire(
        self,
        memory: object,
        access: int | None = None,
        *,
        persistent: bool = False,
        bypass: bool = False,
        file: int | None = None,
        argument: object = None,
    ) -> Lease:
        """Returns a lease on the memory of anything that has a contiguous buffer: bytearray, mmap, array, numpy array.

        The lease locks the buffer: its owner can neither free nor resize it before the release. `access` is by default
        local, to read, and to write if the buffer allows it. `persistent`: neither evicted nor flushed until `unpersist`
        or an invalidation. `bypass`: registered for this lease only. `file`: the descriptor of the file that is mapped
        there. `argument` reaches a registrar in Python, if this call opens.
        """
        buffer, wanted = locked(memory, access)
        if persistent or bypass or file is not None or argument is not None:
            return self._acquire_with(buffer, len(buffer), wanted, buffer, persistent, bypass, file, argument)
        return self._acquire(buffer, len(buffer), wanted, buffer)

    def acquire_at(self, address: int, nbytes: int, access: int) -> Lease:
        """Returns a lease on memory that the caller keeps mapped until the release."""
        return self._acquire(ffi.cast("void *", address), nbytes, access, None)

    def find(self, memory: object, access: int | None = None) -> Lease | None:
        """Returns a lease only if the memory is already registered. Never opens and never waits."""
        buffer, wanted = locked(memory, access)
        raw: Any = self._call(lib.pinfold_find, buffer, len(buffer), wanted)
        if raw.pin:
            return Lease(self, raw, len(buffer), buffer)
        return None

    def acquire_batch(
        self, memories: Sequence[object], access: int | None = None, *, workers: int = 0, argument: object = None
    ) -> Batch:
        """Acquires the memory of several buffers, all or none. Merges duplicates and neighbours. `workers`: threads that
        register, the caller's included; 0: 4."""
        return Batch(self, memories, access, workers, argument)

    def acquire_chunks(
        self,
        memory: object,
        access: int | None = None,
        *,
        chunk_bytes: int = 0,
        depth: int = 0,
        workers: int = 0,
        argument: object = None,
    ) -> Chunks:
        """Iterates over leases on the pieces of a large buffer, registered ahead of the reader. `chunk_bytes`: the largest
        piece, 0: 2 MiB. `depth`: pieces ahead, 0: 4. `workers`: threads that register, 0: 1."""
        return Chunks(self, memory, access, chunk_bytes, depth, workers, argument)

    def acquire_large(
        self,
        memory: object,
        access: int | None = None,
        *,
        piece_bytes: int = 0,
        workers: int = 0,
        file: int | None = None,
        progress: Callable[[int, int], object] | None = None,
        argument: object = None,
    ) -> LargeLease:
        """Returns one lease on a buffer of any size, in pieces of at most `piece_bytes`, 0: 1 GiB. `workers`: threads that
        register, the caller's included; 0: 4. `progress` is called with the registered bytes and the bytes in all, on one
        thread at a time."""
        return _acquire_large(self, memory, access, piece_bytes, workers, file, progress, argument)

    def register_in_background(
        self,
        memory: object,
        access: int | None = None,
        *,
        piece_bytes: int = 0,
        workers: int = 0,
        order: Order = Order.AS_GIVEN,
        prefault: Prefault = Prefault.NONE,
        bytes_per_second: int = 0,
        first_piece_bytes: int = 0,
        progress: Callable[[int, int], object] | None = None,
        argument: object = None,
    ) -> Background:
        """Starts to register a buffer of any size, or each of a list of buffers, on threads of the library, and returns a
        ticket. `piece_bytes`: the largest piece, 0: 1 GiB. `workers`: threads that register, 0: 4. `prefault`: the
        thread that makes the pages present. `bytes_per_second`: the most that all threads begin to register in a second,
        0: no limit. `first_piece_bytes`: the largest size of the piece that is registered first, 0: 16 MiB. `progress`
        is called with the registered bytes and the bytes in all, on one of these threads at a time; an exception
        cancels the registration, and `Background.wait` raises it."""
        memories = memory if isinstance(memory, (list, tuple)) else [memory]
        return Background(
            self,
            memories,
            access,
            piece_bytes,
            workers,
            order,
            prefault,
            bytes_per_second,
            first_piece_bytes,
            progress,
            argument,
        )

    def invalidate(self, address: int, nbytes: int) -> None:
        """Invalidates memory that is about to be freed or unmapped. Only marks."""
        check(self._call(lib.pinfold_invalidate, ffi.cast("void *", address), nbytes))

    def unpersist(self, address: int, nbytes: int) -> None:
        """Makes registrations that touch the memory no longer persistent."""
        check(self._call(lib.pinfold_unpersist, ffi.cast("void *", address), nbytes))

    def _acquire(self, pointer: Any, nbytes: int, access: int, buffer: object) -> Lease:
        if refused:
            free_refused()
        state = self._state
        thread = _get_ident()
        try:
            state.calls.append(thread)  # as in _call, without a call: this is the hot path
            if state.ended:
                raise closed()
            raw = _acquire(state.pointer, pointer, nbytes, access)
            if not raw.pin:
                raise last_failure()
            return Lease(self, raw, nbytes, buffer)
        finally:
            state.calls.remove(thread)

    def _acquire_with(
        self,
        pointer: Any,
        nbytes: int,
        access: int,
        buffer: object,
        persistent: bool,
        bypass: bool,
        file: int | None,
        argument: object,
    ) -> Lease:
        call = Call(argument)
        handle = call.handle()
        how = ffi.new("pinfold_acquire_options *")
        how.size = ffi.sizeof("pinfold_acquire_options")
        how.flags = lib.PINFOLD_PERSISTENT * persistent | lib.PINFOLD_BYPASS * bypass
        if file is not None:
            how.flags |= lib.PINFOLD_FILE
            how.file = file
        how.argument = handle
        raw: Any = self._call(lib.pinfold_acquire_with, pointer, nbytes, access, how)
        if not raw.pin:
            raise last_failure(call.raised)
        return Lease(self, raw, nbytes, buffer)


def _members(structure: str, at: Any) -> dict[str, int] | None:
    """Returns the members of a registration of the library's registrars, pointers as addresses."""
    if not structure:
        return None
    found = ffi.cast(structure + " *", at)
    return {name: int(ffi.cast("uintptr_t", getattr(found, name))) for name, _ in ffi.typeof(structure).fields}


def announce_gone(address: int, nbytes: int) -> None:
    """Announces to all caches of the process that memory is about to be freed or unmapped."""
    lib.pinfold_announce_gone(ffi.cast("void *", address), nbytes)


def dump_on_signal(signal: int, directory: str = "", *, chain: bool = False) -> None:
    """From now on the signal makes the library write all caches and entries as text, to `pinfold.PID.dump` in the
    directory, or to standard error. Works while the process hangs: docs/operate/dump.md. `chain` calls an earlier
    handler in C after the dump, instead of failing; a handler of the module `signal` has one in C."""
    check(lib.pinfold_dump_on_signal(signal, os.fsencode(directory), lib.PINFOLD_DUMP_CHAIN if chain else 0))
