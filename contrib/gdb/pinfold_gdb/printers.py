# SPDX-License-Identifier: BSD-3-Clause
"""Prints caches, leases, entries and records for people. The program's debug information says where the objects are; the
rest is read as `pinfold dump` reads it."""

import re
from typing import Callable, Iterator, Optional

import gdb
import gdb.printing
import gdb.types

from . import listing, target
from .memory import Unreadable
from .walk import Cache, Entry, Walk

IN_ENTRY, IN_CELL = 1, 2  # bits of a pin
POINTERS_OF_A_CACHE = 16  # words of a `pinfold_cache` in which its engine is looked for


def walks() -> Iterator[Walk]:
    return (one for one in target.walks() if isinstance(one, Walk))


def cache_of(engine: int) -> Optional[tuple[Walk, Cache]]:
    return next(((walk, one) for walk in walks() for one in walk.caches() if one.facts.engine == engine), None)


def entry_at(address: int) -> Optional[tuple[Cache, Entry]]:
    return next((found for walk in walks() if (found := walk.entry_at(address)) is not None), None)


def safely(text: Callable[[], str]) -> str:
    try:
        return text()
    except (Unreadable, gdb.error) as failure:
        return f"<cannot be read: {failure}>"


def first_pointer(value: gdb.Value) -> Optional[int]:
    """Returns the first pointer in an object, as the one of a `std::unique_ptr`."""
    kind = value.type.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_PTR:
        return int(value)
    if kind.code != gdb.TYPE_CODE_STRUCT:
        return None
    parts = (first_pointer(value[one]) for one in kind.fields() if not one.artificial and hasattr(one, "bitpos"))
    return next((one for one in parts if one is not None), None)


class CachePrinter:
    """A cache with its entries."""

    def __init__(self, engine: Optional[int], before: str = "", none: str = "moved from") -> None:
        self.engine = engine
        self.before = before
        self.none = none

    def to_string(self) -> str:
        return self.before + safely(self._text)

    def _text(self) -> str:
        if not self.engine:
            return f"cache, {self.none}"
        found = cache_of(self.engine)
        if found is None:
            return f"cache whose engine {self.engine:#x} is not listed"
        cache = found[1]
        ended = ", destroyed" if cache.facts.ended else ""
        return (
            f'cache "{cache.name}" over {cache.registrar}: {listing.plural(cache.count, "entry")}, '
            f"{listing.size_text(cache.bytes)}{ended}"
        )

    def children(self) -> Iterator[tuple[str, str]]:
        try:
            found = cache_of(self.engine) if self.engine else None
            entries = list(found[0].entries(found[1])) if found is not None else []
        except Unreadable:
            return
        for number, one in enumerate(sorted(entries, key=lambda one: (one.peer or 0, one.begin))):
            yield f"[{number}]", listing.one_line(one)
        if found is not None and not found[1].complete:
            yield "[...]", "not all entries could be read"


class LeasePrinter:
    """A lease: where its memory is, and what its cache says about the registration."""

    def __init__(self, pin: gdb.Value, data: gdb.Value) -> None:
        self.pin = int(pin)
        self.data = int(data)

    def to_string(self) -> str:
        return "no lease" if self.pin == 0 else safely(self._text)

    def _text(self) -> str:
        record = self._record()
        found = entry_at(record) if record != 0 else None
        if found is not None and "revoked" in found[1].flags:
            return f'closed lease: cache "{found[0].name}" was destroyed'
        if found is not None:
            return f'lease of cache "{found[0].name}" on {listing.one_line(found[1])}, data {self.data:#x}'
        if record != 0 and any(walk.is_revoked(record) for walk in walks()):
            return "closed lease: its cache was destroyed"
        return f"lease with pin {self.pin:#x}, which no cache knows"

    def _record(self) -> int:
        if self.pin & IN_CELL:
            return int.from_bytes(target.read(self.pin - IN_CELL, 8), "little")
        return self.pin & ~IN_ENTRY


class EntryPrinter:
    """An entry, or its record, in its page."""

    def __init__(self, address: int) -> None:
        self.address = address

    def to_string(self) -> str:
        return safely(self._text)

    def _text(self) -> str:
        found = entry_at(self.address)
        return "in no cache" if found is None else f'entry of cache "{found[0].name}": {listing.one_line(found[1])}'


def engine_of_c(address: int) -> Optional[int]:
    """Returns the engine of a `pinfold_cache`, whose layout only the library's own debug information has: one that a
    copy of the library lists."""
    listed = {one.facts.engine for walk in walks() for one in walk.caches()}
    for number in range(POINTERS_OF_A_CACHE):
        word = int.from_bytes(target.read(address + 8 * number, 8), "little")
        if word in listed:
            return word
    return None


def c_cache_printer(address: int, before: str) -> Optional[CachePrinter]:
    if address == 0:
        return None
    try:
        return CachePrinter(engine_of_c(address), before, "destroyed or unknown")
    except Unreadable:
        return None


KINDS = (
    (
        re.compile(r"^pinfold::(import_)?cache<.*>$|^pinfold::cache_base<.*>$"),
        lambda v: CachePrinter(first_pointer(v["engine_"])),
    ),
    (re.compile(r"^pinfold::((import_)?lease<.*>|lease_base)$"), lambda v: LeasePrinter(v["pin_"], v["data_"])),
    (re.compile(r"^pinfold_lease$"), lambda v: LeasePrinter(v["pin"], v["data"])),
    (re.compile(r"^pinfold::detail::engine$"), lambda v: CachePrinter(int(v.address))),
    (re.compile(r"^pinfold::(index::entry|detail::record)$"), lambda v: EntryPrinter(int(v.address))),
    (re.compile(r"^pinfold_cache$"), lambda v: c_cache_printer(int(v.address), "")),
)


class Printers(gdb.printing.PrettyPrinter):
    """Finds the printer of a value."""

    def __init__(self) -> None:
        super().__init__("pinfold")

    def __call__(self, value: gdb.Value) -> Optional[object]:
        kind = gdb.types.get_basic_type(value.type)
        if not target.is_there():
            return None
        if kind.code == gdb.TYPE_CODE_PTR:
            to = gdb.types.get_basic_type(kind.target())
            return c_cache_printer(int(value), f"{int(value):#x} ") if to.tag == "pinfold_cache" else None
        name = kind.tag or kind.name or ""
        if not name.startswith("pinfold"):
            return None
        for pattern, make in KINDS:
            if pattern.match(name):
                try:
                    return make(value)
                except (gdb.error, TypeError):  # debug information of another release, or an object without an address
                    return None
        return None


def add_printers() -> None:
    gdb.printing.register_pretty_printer(None, Printers(), replace=True)
