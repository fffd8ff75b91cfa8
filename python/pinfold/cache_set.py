# SPDX-License-Identifier: BSD-3-Clause
"""Leases on the same memory from several caches, for programs with several devices."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, Self, Sequence

from pinfold._cache import closed
from pinfold._callbacks import Call
from pinfold._library import ffi, lib
from pinfold._memory import locked
from pinfold.cache import Cache
from pinfold.constants import SetPolicy
from pinfold.errors import AllRaised, Error, as_exception, last_failure
from pinfold.lease import Lease


class SetLease:
    """Leases on one buffer, one of each chosen cache; None if a cache failed, or was not needed yet (`at`).

    A `with` statement releases all. Every member may be called on any thread.
    """

    def __init__(self, members: Sequence[int], caches: Sequence[Cache], buffer: Any, access: int) -> None:
        self._members = list(members)
        self._caches = list(caches)
        self._buffer, self._access = buffer, access
        self._leases: list[Lease | None] = [None] * len(caches)
        self._failures: list[Error | None] = [None] * len(caches)
        self._lock = threading.Lock()
        self._released = False

    def at(self, choice: int) -> Lease:
        """Returns the lease of a choice, and registers now if the policy has postponed that. Raises STALE_HANDLE if the
        memory was replaced meanwhile: the choices would not be on the same memory. Raises ValueError if every lease is
        released: the memory can then not be compared."""
        failure, found = self._failures[choice], self._leases[choice]
        if failure is not None:
            raise failure
        if found is not None:
            return found
        if self._released:
            raise ValueError("the leases of the set were released")
        return self._late(range(len(self._caches))[choice])

    @property
    def registrations(self) -> list[tuple[int, Any]]:
        """The number of each cache that has a lease, and the registration of its registrar."""
        return [
            (member, lease.registration)
            for member, lease in zip(self._members, self._leases)
            if lease is not None and not lease.released
        ]

    @property
    def failures(self) -> list[tuple[int, Error]]:
        """The number of each cache that failed, and its error, whose cause is the exception of a registrar in Python."""
        return [(member, why) for member, why in zip(self._members, self._failures) if why is not None]

    @property
    def pending(self) -> int:
        """How many choices have not been needed yet."""
        return sum(lease is None and why is None for lease, why in zip(self._leases, self._failures))

    def release(self) -> None:
        """Releases all leases. Raises the first error of a close."""
        with self._lock:
            self._released = True
        failures: list[BaseException] = []
        for lease in self._leases:
            try:
                if lease is not None:
                    lease.release()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def __len__(self) -> int:
        return len(self._leases)

    def __getitem__(self, choice: int) -> Lease | None:
        return self._leases[choice]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def _late(self, choice: int) -> Lease:
        with contextlib.ExitStack() as kept, _calls(self._caches):
            raw = ffi.new("pinfold_lease[]", len(self._caches))
            for i, lease in enumerate(self._leases):
                if lease is not None and not lease.released:
                    lease.hold()
                    kept.callback(lease.drop)
                    raw[i] = lease._raw
            if not any(one.pin for one in raw):
                raise ValueError("no lease of the set is left to compare the memory with")
            got = lib.pinfold_acquire_late(
                _pointers(self._caches), len(raw), choice, self._buffer, len(self._buffer), self._access, raw
            )
            if not got.pin:
                raise last_failure()
            late = Lease(self._caches[choice], got, len(self._buffer), self._buffer)
        return self._put(choice, late)

    def _put(self, choice: int, lease: Lease) -> Lease:
        """Keeps the lease, unless another thread was first or has released all."""
        with self._lock:
            first = self._leases[choice]
            if first is None and not self._released:
                self._leases[choice] = lease
                return lease
        lease.release()
        if first is None:
            raise ValueError("the leases of the set were released")
        return first


class CacheSet:
    """A set of caches that registers a buffer with several devices in one call. `distances` are those of the caches from
    the memory, for `SetPolicy.NEAR_FIRST`. Every member may be called on any thread."""

    def __init__(self, caches: Sequence[Cache], distances: Sequence[int] | None = None) -> None:
        self._caches = list(caches)
        self._distances = [0] * len(self._caches) if distances is None else list(distances)
        if len(self._distances) != len(self._caches):
            raise ValueError("a set has one distance for each cache")

    def __len__(self) -> int:
        return len(self._caches)

    def __getitem__(self, member: int) -> Cache:
        return self._caches[member]

    def acquire(
        self,
        memory: object,
        access: int | None = None,
        *,
        members: Sequence[int] | None = None,
        policy: int = SetPolicy.ALL,
        required: int = 0,
        near_margin: int = 0,
        distances: Sequence[int] | None = None,
        argument: object = None,
    ) -> SetLease:
        """Acquires the memory of a buffer, as `Cache.acquire` does, from all caches or from those that `members` numbers.

        `required`: how many must succeed; 0: all requested ones, otherwise no lease is held. `near_margin`: caches at
        most this much farther away than the nearest one are near, too. `distances`: of all caches of the set, for this
        memory. `argument` reaches each registrar in Python that this call opens with.
        """
        buffer, wanted = locked(memory, access)
        chosen = list(range(len(self._caches)) if members is None else members)
        caches = [self._caches[member] for member in chosen]
        far = self._distances if distances is None else distances
        got, near = SetLease(chosen, caches, buffer, wanted), [far[i] for i in chosen]
        return _acquire(got, policy, required, near_margin, near, argument)

    def invalidate(self, address: int, nbytes: int) -> None:
        """Invalidates memory that is about to be freed or unmapped in all caches. Only marks."""
        for cache in self._caches:
            cache.invalidate(address, nbytes)


def _acquire(
    empty: SetLease, policy: int, required: int, near_margin: int, distances: Sequence[int], argument: object
) -> SetLease:
    caches, buffer = empty._caches, empty._buffer
    far = ffi.new("uint32_t[]", list(distances))
    raised = AllRaised()
    request = Call(argument, raised).handle()
    how = ffi.new(
        "pinfold_set_options *", (ffi.sizeof("pinfold_set_options"), policy, near_margin, required, far, request)
    )
    leases = ffi.new("pinfold_lease[]", len(caches))
    failures = ffi.new("pinfold_error[]", len(caches))
    with _calls(caches):
        code = lib.pinfold_acquire_set(
            _pointers(caches), len(caches), buffer, len(buffer), empty._access, how, leases, failures
        )
        failure = as_exception(lib.pinfold_last_error(), raised) if code else None
        for i, cache in enumerate(caches):
            if leases[i].pin:
                empty._leases[i] = Lease(cache, ffi.new("pinfold_lease *", leases[i])[0], len(buffer), buffer)
            elif failures[i].code:
                why = as_exception(failures[i], raised)
                empty._failures[i] = why if isinstance(why, Error) else None  # other exceptions end the call
    ending = raised.ending()
    if ending is not None:
        failure = ending  # even if enough members have succeeded
        with contextlib.suppress(Exception):
            empty.release()  # a failed close stays with its cache, which notifies the sink
    if failure is not None:
        raise failure
    return empty


def _pointers(caches: Sequence[Cache]) -> Any:
    return ffi.new("pinfold_cache *[]", [cache._state.pointer for cache in caches])


@contextlib.contextmanager
def _calls(caches: Sequence[Cache]) -> Iterator[None]:
    """Keeps all caches alive meanwhile: as `Cache._call`, for several."""
    thread = threading.get_ident()
    before = [(cache._state, cache._state.calls.count(thread)) for cache in caches]
    try:
        for cache in caches:
            cache._state.calls.append(thread)
            if cache._state.ended:
                raise closed()
        yield
    finally:
        for state, calls in before:
            while state.calls.count(thread) > calls:
                state.calls.remove(thread)
