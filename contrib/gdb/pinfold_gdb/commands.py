# SPDX-License-Identifier: BSD-3-Clause
"""The commands `pinfold dump`, `pinfold at` and `info pinfold`."""

import argparse
from typing import Iterator, Optional

import gdb

from . import listing, target
from .memory import Unreadable
from .walk import Cache, Entry, Walk


class Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise gdb.GdbError(f"{self.prog}: {message}. {self.format_usage().strip()}")


def require_process() -> None:
    if not target.is_there():
        raise gdb.GdbError("There is no process and no core file to look at.")


def readable(complaints: list[str]) -> Iterator[tuple[Walk, list[tuple[Cache, list[Entry]]]]]:
    """Yields each copy of the library with what it holds."""
    for walk in target.walks():
        if isinstance(walk, Unreadable):
            complaints.append(f"a copy of the library cannot be read: {walk}")
            continue
        caches = []
        try:
            for cache in walk.caches():
                caches.append((cache, list(walk.entries(cache))))
        except Unreadable as failure:
            complaints.append(f"part of the list of caches cannot be read: {failure}")
        yield walk, caches


def dump(order: str, limit: int) -> None:
    complaints: list[str] = []
    copies = list(readable(complaints))
    if not copies and not complaints:
        raise gdb.GdbError("The process contains no copy of pinfold, or gdb cannot find its notes.")
    threads = target.threads()
    newest = max((one.opened_at for _, caches in copies for _, entries in caches for one in entries), default=0)
    what = "core file" if target.is_core() else "process"
    print(f"{what}, copies of the library: {len(copies) + len(complaints)}")
    if any(target.now(walk.layout.records.ticks_per_second) is None for walk, _ in copies):
        print("ages are those when the newest entry was opened")
    for walk, caches in copies:
        ticks = walk.layout.records.ticks_per_second
        now = target.now(ticks)
        for cache, entries in caches:
            print("\n" + listing.headline(cache, entries))
            show_entries(entries, newest if now is None else now, ticks, threads, order, limit)
    for complaint in complaints:
        print(complaint)
    if not any(caches for _, caches in copies) and not complaints:
        print("no cache")


def show_entries(entries: list[Entry], now: int, ticks: int, threads: set[int], order: str, limit: int) -> None:
    if not entries:
        return
    keys = dict(listing.KEYS, age=lambda entry: -listing.age_ticks(entry, now))
    entries.sort(key=lambda entry: (keys[order](entry), entry.peer or 0, entry.begin))
    shown = len(entries) if limit == 0 else min(limit, len(entries))
    print(listing.TITLES)
    for one in entries[:shown]:
        print(listing.entry_line(one, now, ticks, threads))
    if shown < len(entries):
        print(f"  and {len(entries) - shown} more")


class Prefix(gdb.Command):
    """Shows the caches of pinfold."""

    def __init__(self) -> None:
        super().__init__("pinfold", gdb.COMMAND_DATA, prefix=True)

    def invoke(self, argument: str, from_tty: bool) -> None:
        gdb.execute("help pinfold")


class Dump(gdb.Command):
    """Shows the caches of pinfold in the process or core file, and their entries.

    pinfold dump [--sort range|bytes|age|hits|leases] [--limit NUMBER]

    Works without debug information. In the table, the access is r, w for the device on behalf of the process, and R, W,
    A (atomic) for peers. The flags are p persistent, b bypass, u unshared, d doomed, s stale, o open in progress in the
    driver. An owner with ! has ended. In a core file, an age is that when the newest entry was opened."""

    def __init__(self, name: str) -> None:
        super().__init__(name, gdb.COMMAND_DATA)
        self.arguments = Arguments(prog=name, add_help=False)
        self.arguments.add_argument("--sort", choices=[*listing.KEYS, "age"], default="range")
        self.arguments.add_argument("--limit", type=int, default=0)

    def invoke(self, argument: str, from_tty: bool) -> None:
        wanted = self.arguments.parse_args(gdb.string_to_argv(argument))
        if wanted.limit < 0:
            self.arguments.error("the limit is negative")
        require_process()
        dump(wanted.sort, wanted.limit)


class At(gdb.Command):
    """Shows the entries of pinfold's caches that contain an address.

    pinfold at EXPRESSION

    For imported memory, an address of this process or of the exporter is looked for."""

    def __init__(self) -> None:
        super().__init__("pinfold at", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument: str, from_tty: bool) -> None:
        if not argument:
            raise gdb.GdbError("pinfold at: an address is required.")
        require_process()
        where = address_of(argument)
        complaints: list[str] = []
        found = 0
        for _, caches in readable(complaints):
            for cache, entries in caches:
                for one in entries:
                    if one.begin <= where < one.end or one.data <= where < one.data + one.end - one.begin:
                        found += 1
                        print(f'cache "{cache.name}": {listing.one_line(one)}')
        for complaint in complaints:
            print(complaint)
        if found == 0:
            print(f"no entry contains {where:#x}")


def address_of(expression: str) -> int:
    value = gdb.parse_and_eval(expression)
    if value.type.strip_typedefs().code == gdb.TYPE_CODE_ARRAY and value.address is not None:
        value = value.address
    try:
        return int(value) & ((1 << 64) - 1)
    except gdb.error as failure:
        raise gdb.GdbError(f"pinfold at: {failure}") from failure


def add_commands() -> None:
    Prefix()
    Dump("pinfold dump")
    Dump("info pinfold")
    At()
