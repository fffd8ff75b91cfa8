# SPDX-License-Identifier: BSD-3-Clause
"""The process or core file that gdb looks at, and the tables of the library's copies in it."""

import os
import re
import struct
import time
from typing import Iterator, Optional

import gdb

from .memory import Memory, Unreadable
from .walk import Walk

MAPPING = re.compile(r"^\s*(0x[0-9a-f]+)\s+0x[0-9a-f]+\s+0x[0-9a-f]+\s+0x0(?:\s|$)", re.MULTILINE)
NOTES_SECTION = re.compile(r"^\s*(0x[0-9a-f]+) - (0x[0-9a-f]+) is \.note\.pinfold\b", re.MULTILINE)
ELF = struct.Struct("<16s2HI3QI6H")
SEGMENT = struct.Struct("<2I6Q")
NOTE = struct.Struct("<3I")
NAME = b"pinfold\0"
PT_LOAD, PT_NOTE = 1, 4
MOST_NOTES = 65536


def read(address: int, count: int) -> bytes:
    try:
        return bytes(gdb.selected_inferior().read_memory(address, count))
    except (gdb.error, OverflowError) as failure:
        raise Unreadable(str(failure)) from failure


def is_there() -> bool:
    return gdb.selected_inferior().pid != 0


def is_core() -> bool:
    return _connection() == "core"


def _connection() -> Optional[str]:
    connection = getattr(gdb.selected_inferior(), "connection", None)  # from gdb 12 on
    return connection.type if connection is not None else None


def now(ticks_per_second: int) -> Optional[int]:
    """Returns the time of the process in the ticks of entries; nothing where it cannot be known."""
    if _connection() != "native":
        return None
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * ticks_per_second) & 0xFFFFFFFF


def threads() -> set[int]:
    """Returns the ids of the threads, as the process sees them."""
    found = set()
    for thread in gdb.selected_inferior().threads():
        process, number, _ = thread.ptid
        inner = _id_in_namespace(process, number or process) if _connection() == "native" else None
        found.add(inner or number or process)
    return found


def _id_in_namespace(process: int, thread: int) -> Optional[int]:
    try:
        with open(os.path.join("/proc", str(process), "task", str(thread), "status"), encoding="ascii") as lines:
            return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), None)
    except (OSError, ValueError):
        return None


def walks() -> Iterator[Walk]:
    """Yields a walk over each copy of the library, and `Unreadable` as a value for each one that cannot be read."""
    memory = Memory(read)
    for table in sorted(set(_tables(memory))):
        try:
            yield Walk(memory, table)
        except Unreadable as failure:
            yield failure


def _tables(memory: Memory) -> Iterator[int]:
    """Finds the notes that say where the tables are: in memory by the mappings of files, and also by gdb's sections,
    because a core file may lack pages that can be read again from their file."""
    for begin in MAPPING.findall(_output_of("info proc mappings")):
        yield from _tables_of_file(memory, int(begin, 16))
    for begin, end in NOTES_SECTION.findall(_output_of("info files")):
        yield from _tables_in_notes(memory, int(begin, 16), int(end, 16) - int(begin, 16))


def _output_of(command: str) -> str:
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error:
        return ""


def _tables_of_file(memory: Memory, begin: int) -> Iterator[int]:
    try:
        header = memory.unpack(ELF, begin)
        ident, offset, size, count = header[0], header[5], header[9], header[10]
        if ident[:5] != b"\x7fELF\x02" or size != SEGMENT.size or count > 256:
            return
        segments = list(SEGMENT.iter_unpack(memory.read(begin + offset, size * count)))
    except Unreadable:
        return
    bias = next((begin - (one[3] - one[2]) for one in segments if one[0] == PT_LOAD and one[2] < 4096), None)
    for kind, _, _, address, _, _, bytes_in_memory, _ in segments:
        if bias is not None and kind == PT_NOTE:
            yield from _tables_in_notes(memory, bias + address, bytes_in_memory)


def _tables_in_notes(memory: Memory, at: int, count: int) -> Iterator[int]:
    try:
        notes = memory.read(at, count) if count <= MOST_NOTES else b""
    except Unreadable:
        return
    offset = 0
    while offset + NOTE.size <= len(notes):
        name_bytes, content_bytes, kind = NOTE.unpack_from(notes, offset)
        name = offset + NOTE.size
        content = name + (name_bytes + 3) // 4 * 4
        offset = content + (content_bytes + 3) // 4 * 4
        if offset > len(notes):
            return
        if notes[name : name + name_bytes] == NAME and (kind, content_bytes) == (1, 8):
            distance = int.from_bytes(notes[content : content + 8], "little")
            yield (at + content + distance) & ((1 << 64) - 1)
