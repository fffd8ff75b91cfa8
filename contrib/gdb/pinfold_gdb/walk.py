# SPDX-License-Identifier: BSD-3-Clause
"""Goes over the caches and entries that a table describes, as the library's src/inspection/walk.cpp does. Needs no gdb:
only memory."""

import functools
from collections import Counter
from dataclasses import dataclass, field
from typing import Iterator, Optional

from .layout import CACHE, MOST_SHARDS, SHARD, Facts, Layout, Shard, names_of
from .memory import Memory, Unreadable

STATES = ("free", "opening", "failed", "live", "evicting", "draining", "closing", "quarantined")
REASONS = ("cold", "invalidated", "access", "extent", "evicted")
FLAGS = ("persistent", "bypass", "unshared", "doomed", "in_driver")
WORD = (1 << 64) - 1


@dataclass
class Entry:
    """One entry of a cache."""

    record: int  # address
    begin: int
    end: int
    data: int
    peer: Optional[int]
    bytes: int
    state: str
    access: int
    leases: int
    hits: int
    owner: int
    opened_at: int  # ticks
    flags: frozenset[str]  # of FLAGS, stale, hittable, revoked


@dataclass
class Cache:
    """One cache, without its entries, which `Walk.entries` yields."""

    facts: Facts
    name: str
    registrar: str
    release: str
    of_parent: bool
    shards: list[Shard] = field(default_factory=list)
    complete: bool = True  # what could be read so far made sense
    locked_shards: int = 0
    bytes: int = 0
    count: int = 0
    counters: Counter = field(default_factory=Counter)
    closed: Counter = field(default_factory=Counter)


class Page:
    """A page of records with their entries. Raises `Unreadable` if it is none of `control`'s."""

    def __init__(self, memory: Memory, layout: Layout, at: int, imports: bool) -> None:
        self.at = at
        self.where = where = layout.records
        self.imports = imports
        if at % where.page_bytes != 0:
            raise Unreadable(f"there is no page of records at {at:#x}")
        self.raw = memory.read(at, where.page_bytes)
        self.owner = self.number(where.page_owner, 8)
        self.stride = self.number(where.page_stride, 4)
        self.made = min(self.number(where.page_made, 4), self.number(where.page_capacity, 4))
        self.entries_from = self.number(where.page_entries_from, 4)
        least = max(where.imported_data, where.imported_peer) + 8 if imports else 32
        fits = (
            least <= self.stride <= where.page_bytes
            and where.page_header + self.made * self.stride <= self.entries_from
            and self.entries_from + self.made * (where.entry_size + 4) <= where.page_bytes
        )
        if not fits:
            raise Unreadable(f"the page of records at {at:#x} is damaged")

    def number(self, offset: int, size: int) -> int:
        return int.from_bytes(self.raw[offset : offset + size], "little")

    def record(self, which: int) -> int:
        return self.where.page_header + which * self.stride

    def entry(self, which: int) -> int:
        return self.entries_from + which * self.where.entry_size

    def is_used(self, which: int) -> bool:
        return self.raw[self.entry(which) + self.where.entry_state] != 0

    def own_pins(self, which: int) -> int:
        at = self.where.page_bytes - 4 * (which + 1)
        return int.from_bytes(self.raw[at : at + 4], "little", signed=True)

    def which_record(self, address: int) -> Optional[int]:
        return self._which(address - self.at - self.where.page_header, self.stride)

    def which_entry(self, address: int) -> Optional[int]:
        return self._which(address - self.at - self.entries_from, self.where.entry_size)

    def _which(self, offset: int, step: int) -> Optional[int]:
        return offset // step if offset >= 0 and offset % step == 0 and offset // step < self.made else None


class Walk:
    """The caches of one table. The process stands still. Raises `Unreadable`."""

    def __init__(self, memory: Memory, table: int) -> None:
        self.memory = memory
        self.layout = Layout(memory, table)

    def caches(self) -> Iterator[Cache]:
        first = self.memory.word(self.layout.table.caches)
        for at in self.memory.along(first, 0):
            facts = Facts(*self.memory.unpack(CACHE, at))
            if facts.changes % 2 == 0:  # or there is none
                yield self._cache(facts)

    def _cache(self, facts: Facts) -> Cache:
        found = Cache(facts, *names_of(facts), self.layout.release, self._is_of_parent(facts))
        try:
            if facts.shard_count > MOST_SHARDS:
                raise Unreadable("there are too many shards")
            for number in range(facts.shard_count):
                at = facts.shards + number * self.layout.table.shard_bytes
                found.shards.append(Shard(*self.memory.unpack(SHARD, at)))
                self._add_shard(found, found.shards[-1])
        except Unreadable:
            found.complete = False
        self._add_hits(found)
        return found

    def _is_of_parent(self, facts: Facts) -> bool:
        try:
            return self.memory.word(facts.process_now) != facts.process
        except Unreadable:
            return True

    def _add_shard(self, to: Cache, part: Shard) -> None:
        names = self.layout.counters
        to.locked_shards += int.from_bytes(self.memory.read(part.mutex, 4), "little") != 0
        to.bytes += self.memory.word(part.bytes)
        to.count += self.memory.word(part.count)
        for name, value in zip(names, self.memory.words(part.counters, len(names))):
            to.counters[name] += value
        for word in self.memory.words(part.history, self.layout.table.history_count):
            if word != 0 and word % 8 < len(REASONS):
                to.closed[REASONS[word % 8]] += 1

    def _ledgers(self) -> Iterator[int]:
        where = self.layout.ledgers
        return self.memory.along(self.memory.word(where.first), where.next)

    def _add_hits(self, to: Cache) -> None:
        """Adds the hits that were served without a mutex, which ledgers count."""
        where, number = self.layout.ledgers, to.facts.cache_number
        if not 0 < number < where.cache_count:
            return
        hits, finds = -to.facts.hits_before, -to.facts.finds_before
        try:
            for at in self._ledgers():
                hits += self.memory.word(at + where.hits + 8 * number)
                finds += self.memory.word(at + where.finds + 8 * number)
        except Unreadable:
            return
        for name, more in (("acquires", hits), ("hits", hits), ("valid", hits + finds), ("found", finds)):
            if name in to.counters:
                to.counters[name] = (to.counters[name] + more) & WORD

    @functools.cached_property
    def pins(self) -> Counter:
        """The pins in ledgers, by the addresses of records."""
        where, all_pins = self.layout.ledgers, Counter()
        mask = (1 << where.slot_shift) - 1
        try:
            for at in self._ledgers():
                all_pins.update(word for word in self.memory.words(at + where.cells, where.cell_count) if word != 0)
                for word in self.memory.words(at + where.slots, where.slot_count):
                    if word != 0 and word & mask != where.slot_bias:
                        all_pins[word >> where.slot_shift] += (word & mask) - where.slot_bias
        except Unreadable:
            pass
        return all_pins

    def entries(self, of: Cache) -> Iterator[Entry]:
        """Yields the entries of a cache, in no order. Clears `complete` if not all can be read."""
        try:
            for part in of.shards:
                first = self.memory.word(part.pages)
                for at in self.memory.along(first, self.layout.records.page_next):
                    page = Page(self.memory, self.layout, at, of.facts.imports != 0)
                    if page.owner != part.control:
                        raise Unreadable(f"the page at {at:#x} belongs to another shard")
                    yield from (self._entry(page, number) for number in range(page.made) if page.is_used(number))
        except Unreadable:
            of.complete = False

    def _entry(self, page: Page, which: int) -> Entry:
        where, record, entry = self.layout.records, page.record(which), page.entry(which)
        begin = page.number(record + where.record_begin, 8)
        owner_and_hits = page.number(entry + where.entry_owner_and_hits, 8)
        number = page.number(entry + where.entry_state, 1)
        state = STATES[number] if number < len(STATES) else f"state {number}"
        leases = page.own_pins(which) + self.pins[page.at + record] + (state == "opening")
        return Entry(
            record=page.at + record,
            begin=begin,
            end=page.number(record + where.record_end, 8),
            data=page.number(record + where.imported_data, 8) if page.imports else begin,
            peer=page.number(record + where.imported_peer, 8) if page.imports else None,
            bytes=page.number(entry + where.entry_bytes, 8),
            state=state,
            access=page.number(entry + where.entry_access, 1),
            leases=max(0, leases),
            hits=owner_and_hits & ((1 << where.owner_shift) - 1),
            owner=owner_and_hits >> where.owner_shift,
            opened_at=page.number(entry + where.entry_opened_at, 4),
            flags=self._flags(page, record, entry),
        )

    def _flags(self, page: Page, record: int, entry: int) -> frozenset[str]:
        where = self.layout.records
        bits = page.number(entry + where.entry_flags, 1)
        word = page.number(record + where.record_word, 4)
        return frozenset(
            [name for name in FLAGS if bits & getattr(where, name)]
            + [name for name in ("stale", "hittable", "revoked") if word & getattr(where, name)]
        )

    def entry_at(self, address: int) -> Optional[tuple[Cache, Entry]]:
        """Returns the entry whose record, or whose entry, is at the address; nothing if no cache has it."""
        at = address - address % self.layout.records.page_bytes
        try:
            owner = self.memory.word(at + self.layout.records.page_owner)
        except Unreadable:
            return None
        for cache in self.caches():
            if all(part.control != owner for part in cache.shards):
                continue
            page = Page(self.memory, self.layout, at, cache.facts.imports != 0)
            which = page.which_record(address)
            which = page.which_entry(address) if which is None else which
            return None if which is None else (cache, self._entry(page, which))
        return None

    def is_revoked(self, record: int) -> bool:
        """Returns whether a record says that its cache was destroyed under a lease."""
        return bool(self._word_of(record) & self.layout.records.revoked)

    def _word_of(self, record: int) -> int:
        return int.from_bytes(self.memory.read(record + self.layout.records.record_word, 4), "little")
