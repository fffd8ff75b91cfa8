# SPDX-License-Identifier: BSD-3-Clause
"""Leases on all segments under a range of a peer's memory."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Self, Sequence

if TYPE_CHECKING:
    from pinfold.import_cache import ImportLease


class Segment(NamedTuple):
    """The part of a request that lies in one segment: its address in the exporter, and the lease on it."""

    address: int
    lease: ImportLease

    @property
    def end(self) -> int:
        """The address behind the part."""
        return self.address + self.lease.nbytes


class SegmentedLease(Sequence[Segment]):
    """Leases on the segments under a range, by address: made by `ImportCache.acquire_segments`. Each can be released
    separately; `release` or a `with` statement releases all."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments

    @property
    def address(self) -> int | None:
        """The address of the range in this process, or on the device, if its segments are adjacent there, as in a window;
        else None."""
        first = self._segments[0]
        adjacent = all(one.lease.address - first.lease.address == one.address - first.address for one in self._segments)
        return first.lease.address if adjacent else None

    @property
    def nbytes(self) -> int:
        return self._segments[-1].end - self._segments[0].address

    @property
    def stale(self) -> bool:
        """Whether a segment was replaced or invalidated after the acquire. All stay open."""
        return any(one.lease.stale for one in self._segments)

    def at(self, address: int) -> Segment:
        """Returns the segment that contains the exporter's address, in logarithmic time. Raises ValueError if none does."""
        number = bisect.bisect_right(self._segments, address, key=lambda one: one.end)
        if number == len(self._segments) or address < self._segments[number].address:
            raise ValueError("no segment of the lease contains the address")
        return self._segments[number]

    def release(self) -> None:
        """Releases all leases that are not released yet. Raises the first error of a close."""
        failures: list[Exception] = []
        for one in self._segments:
            try:
                one.lease.release()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def __getitem__(self, at: Any) -> Any:
        return self._segments[at]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()
