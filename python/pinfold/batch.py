# SPDX-License-Identifier: BSD-3-Clause
"""Leases on several buffers, acquired together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Self, Sequence

from pinfold._callbacks import Call
from pinfold._library import ffi, lib
from pinfold._memory import locked
from pinfold.constants import Access
from pinfold.errors import last_failure
from pinfold.lease import Lease

if TYPE_CHECKING:
    from pinfold._cache import BaseCache


class Batch(Sequence[Lease]):
    """Leases in the order of the buffers. Each can be released separately; a `with` statement releases all."""

    def __init__(
        self, cache: BaseCache, memories: Sequence[object], access: int | None, workers: int, argument: object
    ) -> None:
        buffers, wanted = all_locked(memories, access)
        ranges = ffi.new("pinfold_range[]", [(int(ffi.cast("uintptr_t", one)), len(one)) for one in buffers])
        call = Call(argument)
        handle = call.handle()
        how = ffi.new("pinfold_batch_options *", (ffi.sizeof("pinfold_batch_options"), workers, handle))
        leases = ffi.new("pinfold_lease[]", len(buffers))
        if cache._call(lib.pinfold_acquire_batch, ranges, len(buffers), wanted, how, leases):
            raise last_failure(call.raised)
        self._leases = [
            Lease(cache, ffi.new("pinfold_lease *", leases[i])[0], len(one), one) for i, one in enumerate(buffers)
        ]

    def release(self) -> None:
        """Releases all leases that are not released yet. Raises the first error of a close."""
        failures: list[BaseException] = []
        for lease in self._leases:
            try:
                lease.release()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def __getitem__(self, at: Any) -> Any:
        return self._leases[at]

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()


def all_locked(memories: Sequence[object], access: int | None) -> tuple[list[Any], int]:
    """Locks all buffers, for the same access: to write only if all allow it."""
    both = [locked(memory, access) for memory in memories]
    wanted = access if access is not None else int(Access.LOCAL_READ | Access.LOCAL_WRITE)
    for _, allowed in both:
        wanted &= allowed
    return [buffer for buffer, _ in both], wanted
