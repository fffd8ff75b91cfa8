# SPDX-License-Identifier: BSD-3-Clause
"""Reads from memory that may be missing, damaged, or not what it claims to be."""

import struct
from typing import Callable, Iterator


class Unreadable(Exception):
    """Some memory cannot be read, or makes no sense."""


class Memory:
    """Memory of a process or a core file. `read(address, count)` returns bytes, or raises `Unreadable`."""

    def __init__(self, read: Callable[[int, int], bytes], limit: int = 1_000_000) -> None:
        self._read = read
        self.reads_left = limit  # what is read may lead anywhere

    def read(self, address: int, count: int) -> bytes:
        if count == 0:
            return b""
        if not 0 < address < address + count <= 1 << 64:
            raise Unreadable(f"there is no memory at {address:#x}")
        if self.reads_left <= 0:
            raise Unreadable("the limit of reads is reached")
        self.reads_left -= 1
        found = self._read(address, count)
        if len(found) != count:
            raise Unreadable(f"the memory at {address:#x} ends")
        return found

    def unpack(self, form: struct.Struct, address: int) -> tuple:
        return form.unpack(self.read(address, form.size))

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little")

    def words(self, address: int, count: int) -> Iterator[int]:
        return (one for (one,) in struct.iter_unpack("<Q", self.read(address, 8 * count)))

    def text(self, address: int, most: int) -> str:
        """Returns the text up to the 0 that ends it."""
        found = bytearray()
        while len(found) < most:
            part = self.read(address + len(found), min(16 - (address + len(found)) % 16, most - len(found)))
            end = part.find(0)
            found += part if end < 0 else part[:end]
            if end >= 0:
                break
        return printable(bytes(found))

    def along(self, first: int, link: int) -> Iterator[int]:
        """Yields the addresses of a list, whose nodes have the next one's address at `link`. Raises `Unreadable` where
        it goes in a circle."""
        seen = set()
        at = first
        while at != 0:
            if at in seen:
                raise Unreadable(f"a list comes back to {at:#x}")
            seen.add(at)
            yield at
            at = self.word(at + link)


def printable(raw: bytes) -> str:
    """Returns a name with what could be taken for the end of the name or the line replaced."""
    text = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(one if one.isprintable() and one not in '"\\' else "?" for one in text)
