# SPDX-License-Identifier: BSD-3-Clause
"""The structures of the library's src/debugging/table.hpp, as they are in memory. A reader takes the places of all other
fields from them."""

import struct
from typing import NamedTuple

from .memory import Memory, Unreadable, printable

MAGIC = b"pinfold debug 1\0"
VERSION = 1
MOST_SHARDS = 4096
LARGEST_PAGE = 16384


class Table(NamedTuple):
    magic: bytes
    version: int
    table_bytes: int
    cache_bytes: int
    shard_bytes: int
    history_count: int
    release: int
    counters: int
    caches: int
    records: int
    ledgers: int


class Records(NamedTuple):
    page_bytes: int
    page_header: int
    page_owner: int
    page_next: int
    page_stride: int
    page_capacity: int
    page_made: int
    page_entries_from: int
    record_word: int
    record_begin: int
    record_end: int
    hittable: int
    stale: int
    imported_data: int
    imported_peer: int
    entry_size: int
    entry_bytes: int
    entry_owner_and_hits: int
    owner_shift: int
    entry_opened_at: int
    ticks_per_second: int
    entry_state: int
    entry_access: int
    entry_flags: int
    doomed: int
    persistent: int
    unshared: int
    bypass: int
    in_driver: int
    revoked: int


class Ledgers(NamedTuple):
    first: int
    next: int
    cells: int
    cell_count: int
    slots: int
    slot_count: int
    slot_shift: int
    slot_bias: int
    hits: int
    finds: int
    cache_count: int


class Shard(NamedTuple):
    control: int
    pages: int
    counters: int
    bytes: int
    count: int
    history: int
    mutex: int


class Facts(NamedTuple):
    next: int
    changes: int
    engine: int
    process_now: int
    process: int
    shards: int
    max_bytes: int
    max_count: int
    hits_before: int
    finds_before: int
    shard_count: int
    cache_number: int
    imports: int
    retain: int
    full: int
    closes: int
    monitor: int
    strict: int
    reaper: int
    name: bytes
    registrar: bytes
    ended: int
    taken: int


TABLE = struct.Struct("<16s5I4x5Q")
RECORDS = struct.Struct(f"<{len(Records._fields)}I")
LEDGERS = struct.Struct("<Q10I")
SHARD = struct.Struct("<7Q")
CACHE = struct.Struct("<QQ8Q2I7B64s32sxII")


class Layout:
    """A table, and what it points to, checked. Raises `Unreadable`."""

    def __init__(self, memory: Memory, at: int) -> None:
        self.table = Table(*memory.unpack(TABLE, at))
        if self.table.magic != MAGIC:
            raise Unreadable(f"there is no table at {at:#x}")
        self._check_version()
        self.records = Records(*memory.unpack(RECORDS, self.table.records))
        self.ledgers = Ledgers(*memory.unpack(LEDGERS, self.table.ledgers))
        self.release = memory.text(self.table.release, 15)
        self.counters = memory.text(self.table.counters, 1023).split()[:64]
        if not self._is_sensible():
            raise Unreadable(f"the table at {at:#x} is damaged")

    def _check_version(self) -> None:
        now = self.table
        sizes = now.table_bytes >= TABLE.size and now.cache_bytes >= CACHE.size and now.shard_bytes >= SHARD.size
        if now.version != VERSION or not sizes:
            raise Unreadable(f"version {now.version} of the table is another one than this script knows")

    def _is_sensible(self) -> bool:
        r, l = self.records, self.ledgers
        page = r.page_bytes
        in_page = all(
            at + size <= r.page_header
            for at, size in [(r.page_owner, 8), (r.page_next, 8)]
            + [(at, 4) for at in (r.page_stride, r.page_capacity, r.page_made, r.page_entries_from)]
        )
        in_entry = all(
            at + size <= r.entry_size
            for at, size in [(r.entry_bytes, 8), (r.entry_owner_and_hits, 8), (r.entry_opened_at, 4)]
            + [(at, 1) for at in (r.entry_state, r.entry_access, r.entry_flags)]
        )
        in_record = all(at + size <= 32 for at, size in ((r.record_word, 4), (r.record_begin, 8), (r.record_end, 8)))
        return (
            4096 <= page <= LARGEST_PAGE
            and page & (page - 1) == 0
            and r.page_header <= page
            and in_page
            and in_entry
            and in_record
            and r.entry_size <= 256
            and max(r.imported_data, r.imported_peer) <= 256
            and r.owner_shift < 64
            and r.ticks_per_second > 0
            and l.slot_shift < 64
            and max(l.cell_count, l.slot_count) <= 65536
            and self.table.history_count <= 65536
        )


def names_of(facts: Facts) -> tuple[str, str]:
    return printable(facts.name), printable(facts.registrar)
