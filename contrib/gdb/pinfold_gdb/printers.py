# SPDX-License-Identifier: BSD-3-Clause
"""Prints caches, leases, entries and records for people. The program's debug information says where the objects are; the
rest is what `pinfold dump` reads."""

import re
from typing import Callable, Iterator, Optional

import gdb
import gdb.printing
import gdb.types

from . import tool

FLAGS = ("stale", "persistent", "bypass", "unshared", "doomed", "in_driver")
IN_ENTRY, IN_CELL = 1, 2  # bits of a pin
POINTERS_OF_A_CACHE = 16  # words of a `pinfold_cache` in which its engine is looked for


def cache_of(engine: int) -> Optional[dict]:
    return next((one for one in tool.caches() if int(one["engine"], 16) == engine), None)


def entry_at(address: int) -> Optional[tuple[dict, dict]]:
    """Returns the entry whose record, or whose entry, is at the address, with its cache; nothing if no cache has it."""
    all_entries = ((cache, entry) for cache in tool.caches() for entry in cache["entries"])
    return next((one for one in all_entries if hex(address) in (one[1]["record"], one[1]["entry"])), None)


def word_at(address: int) -> int:
    return int.from_bytes(gdb.selected_inferior().read_memory(address, 8), "little")


def plural(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


def one_line(entry: dict) -> str:
    """Returns an entry for the middle of a line."""
    what = [entry["state"], entry["access"], plural(entry["leases"], "lease", "leases")]
    what += [name for name in FLAGS if entry[name]]
    peer = f" of peer {entry['peer']}, here {entry['data']}" if "peer" in entry else ""
    return f"{entry['begin']}-{entry['end']}{peer} ({', '.join(what)})"


def safely(text: Callable[[], str]) -> str:
    try:
        return text()
    except (gdb.error, gdb.GdbError) as failure:
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
        entries = plural(found["entries_now"], "entry", "entries")
        ended = ", destroyed" if found["ended"] else ""
        return f'cache "{found["name"]}" over {found["registrar"]}: {entries}, {found["bytes_now"]} bytes{ended}'

    def children(self) -> Iterator[tuple[str, str]]:
        try:
            found = cache_of(self.engine) if self.engine else None
        except (gdb.error, gdb.GdbError):
            return
        for number, one in enumerate(found["entries"] if found else []):
            yield f"[{number}]", one_line(one)
        if found and not found["complete"]:
            yield "[...]", "not all entries could be read"


class LeasePrinter:
    """A lease: where its memory is, and what its cache says about the registration."""

    def __init__(self, pin: gdb.Value, data: gdb.Value) -> None:
        self.pin = int(pin)
        self.data = int(data)

    def to_string(self) -> str:
        return "no lease" if self.pin == 0 else safely(self._text)

    def _text(self) -> str:
        record = word_at(self.pin - IN_CELL) if self.pin & IN_CELL else self.pin & ~IN_ENTRY
        for cache in tool.caches():
            if hex(record) in cache["revoked"]:
                return f'closed lease: cache "{cache["name"]}" was destroyed'
        found = entry_at(record)
        if found is None:
            return f"lease with pin {self.pin:#x}, which no cache knows"
        cache, entry = found
        return f'lease of cache "{cache["name"]}" on {one_line(entry)}, data {self.data:#x}'


class EntryPrinter:
    """An entry, or its record, in its page."""

    def __init__(self, address: int) -> None:
        self.address = address

    def to_string(self) -> str:
        return safely(self._text)

    def _text(self) -> str:
        found = entry_at(self.address)
        return "in no cache" if found is None else f'entry of cache "{found[0]["name"]}": {one_line(found[1])}'


def engine_of_c(address: int) -> Optional[int]:
    """Returns the engine of a `pinfold_cache`, whose layout only the library's own debug information has: one that a
    copy of the library lists."""
    words = (word_at(address + 8 * number) for number in range(POINTERS_OF_A_CACHE))
    return next((word for word in words if cache_of(word) is not None), None)


def c_cache_printer(address: int, before: str) -> Optional[CachePrinter]:
    if address == 0:
        return None
    try:
        return CachePrinter(engine_of_c(address), before, "destroyed or unknown")
    except (gdb.error, gdb.GdbError):
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
        if not tool.is_there():
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
