# SPDX-License-Identifier: BSD-3-Clause
"""Caches and entries as text, as `pinfold dump` shows them."""

import textwrap
from typing import Iterable, Mapping, Optional

from .walk import Cache, Entry

UNLIMITED = (1 << 64) - 1
WHEN_FULL = ("fail", "wait", "bypass")
CLOSES = ("immediate", "deferred")
LETTERS = {"persistent": "p", "bypass": "b", "unshared": "u", "doomed": "d", "stale": "s", "in_driver": "o"}
TITLES = f"  {'range':<25} {'bytes':>8} {'state':<8} {'acc':<3} {'pins':>4} {'hits':>5} {'age':>6} {'owner':>7}  flg"

KEYS = {
    "range": lambda entry: 0,
    "bytes": lambda entry: -entry.bytes,
    "hits": lambda entry: -entry.hits,
    "leases": lambda entry: -entry.leases,
}


def size_text(count: int) -> str:
    scaled, units = count, ["B", "KiB", "MiB", "GiB", "TiB"]
    divisor = 1
    while len(units) > 1 and scaled >= 1024:
        units.pop(0)
        scaled /= 1024
        divisor *= 1024
    return f"{count // divisor} {units[0]}" if count % divisor == 0 else f"{scaled:.1f} {units[0]}"


def access_text(access: int) -> str:
    return "".join(letter for bit, letter in enumerate("rwRWA") if access >> bit & 1) or "-"


def flags_text(entry: Entry) -> str:
    return "".join(letter for name, letter in LETTERS.items() if name in entry.flags) or "-"


def age_ticks(entry: Entry, now: int) -> int:
    """Returns how long ago the entry was opened. Ticks wrap; an entry may be a little newer than `now`."""
    passed = (now - entry.opened_at) & 0xFFFFFFFF
    return passed if passed < 1 << 31 else 0


def age_text(entry: Entry, now: int, ticks_per_second: int) -> str:
    if entry.state == "opening":
        return "-"
    seconds = age_ticks(entry, now) / ticks_per_second
    if seconds < 60:
        return f"{seconds:.1f}s"
    for limit, divisor, unit in ((6000, 60, "m"), (360000, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def count_text(number: int) -> str:
    if number < 100_000:
        return str(number)
    return f"{number // 1000}k" if number < 100_000_000 else f"{number // 1_000_000}M"


def limit_text(number: int, size: bool) -> str:
    if number == UNLIMITED:
        return "unlimited"
    return size_text(number) if size else str(number)


def name_in(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else "unknown"


def nonzero(counts: Mapping[str, int], order: Optional[Iterable[str]] = None) -> str:
    return ", ".join(f"{name} {counts[name]}" for name in order or counts if counts[name] != 0) or "none"


def filled(head: str, text: str) -> str:
    return textwrap.fill(text, 80, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False)


def headline(cache: Cache, entries: list[Entry]) -> str:
    about = cache.facts
    on = lambda number: "on" if number else "off"
    lines = [
        f'cache "{cache.name}", {cache.registrar}',
        filled(
            "  holds:    ",
            f"{cache.count} of {limit_text(about.max_count, False)} entries, {size_text(cache.bytes)} of "
            f"{limit_text(about.max_bytes, True)}, {sum(one.leases for one in entries)} leases",
        ),
        filled(
            "  options:  ",
            f"retain {on(about.retain)}, when full {name_in(WHEN_FULL, about.full)}, closes "
            f"{name_in(CLOSES, about.closes)}, strict {on(about.strict)}, reaper {on(about.reaper)}",
        ),
        f"  shards:   {about.shard_count}; a thread holds the mutex of {cache.locked_shards}",
        filled("  counters: ", nonzero(cache.counters)),
        filled("  closed:   ", nonzero(cache.closed)),
    ]
    if cache.of_parent:
        lines.append("  belongs to the parent process: this child of fork(2) cannot use it")
    if about.ended:
        lines.append("  destroyed; its leases are still out")
    if not cache.complete:
        lines.append("  not all entries could be read: the memory is missing or damaged")
    return "\n".join(lines)


def entry_line(entry: Entry, now: int, ticks_per_second: int, threads: set[int]) -> str:
    state = "quarant." if entry.state == "quarantined" else entry.state
    ended = " " if entry.owner in threads else "!"
    return (
        f"  {f'{entry.begin:x}-{entry.end:x}':<25} {size_text(entry.bytes):>8} {state:<8} "
        f"{access_text(entry.access):<3} {entry.leases:>4} {count_text(entry.hits):>5} "
        f"{age_text(entry, now, ticks_per_second):>6} {entry.owner:>7}{ended} {flags_text(entry)}"
    )


def one_line(entry: Entry) -> str:
    """Returns an entry for the middle of a line."""
    what = [entry.state, access_text(entry.access), plural(entry.leases, "lease")]
    what += [name for name in ("stale", *(name for name in LETTERS if name != "stale")) if name in entry.flags]
    peer = "" if entry.peer is None else f" of peer {entry.peer}, here {entry.data:#x}"
    return f"{entry.begin:#x}-{entry.end:#x}{peer} ({', '.join(what)})"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"
