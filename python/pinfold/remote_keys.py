# SPDX-License-Identifier: BSD-3-Clause
"""Keys for peers, with generations by which a peer detects that its key was withdrawn."""

from __future__ import annotations

import array
from dataclasses import dataclass
from typing import Any

from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.errors import check


@dataclass(frozen=True)
class RemoteKey:
    """The data with which a peer accesses memory, and checks whether it still may."""

    address: int
    length: int
    key: int
    generation: int
    slot: int

    def encode(self) -> bytes:
        """Returns the wire form, which docs/use/devices.md describes."""
        wire = ffi.new("unsigned char[]", lib.PINFOLD_REMOTE_KEY_WIRE_BYTES)
        check(lib.pinfold_remote_key_encode(_to_c(self), wire, len(wire)))
        return bytes(ffi.buffer(wire))

    @classmethod
    def decode(cls, wire: bytes) -> RemoteKey:
        """Reads a wire form. Raises INVALID_HANDLE if it is damaged or not a key, UNSUPPORTED if its version is later."""
        token = ffi.new("pinfold_remote_key *")
        check(lib.pinfold_remote_key_decode(ffi.from_buffer(wire), len(wire), token))
        return _from_c(token)

    def is_current(self, words: bytes) -> bool:
        """Returns whether the key is current by a copy of its owner's table (`RemoteKeys.words`). A key can be withdrawn
        right after the copy was made; then only the device refuses it."""
        copy = array.array("Q", words)
        pointer = ffi.from_buffer("uint64_t[]", copy)
        return bool(lib.pinfold_remote_key_is_current(_to_c(self), pointer, len(copy)) == 1)


class RemoteKeys(Owner):
    """The table of the generations of the keys that this process has issued."""

    def __init__(self, slots: int = 1024) -> None:
        made = ffi.new("pinfold_remote_keys **")
        check(lib.pinfold_remote_keys_create(slots, made))
        self._table = made[0]
        self._own(lib.pinfold_remote_keys_destroy, self._table)

    def issue(self, address: int, length: int, key: int) -> RemoteKey:
        """Makes a token for a key of the device. Raises OUT_OF_RESOURCES if every slot has a valid key."""
        token = ffi.new("pinfold_remote_key *")
        check(lib.pinfold_remote_key_issue(self._table, address, length, key, token))
        return _from_c(token)

    def withdraw(self, token: RemoteKey) -> None:
        """Makes a token invalid for all readers of the table. Does not affect the device: next, release the lease, or free
        the memory window. Raises STALE_HANDLE if the token was withdrawn before."""
        check(lib.pinfold_remote_key_withdraw(self._table, _to_c(token)))

    @property
    def words(self) -> bytes:
        """A copy of the table, to send to peers."""
        first, count = self._where()
        return bytes(ffi.buffer(first, count * 8))

    @property
    def memory(self) -> tuple[int, int]:
        """The address and the length of the table, to register for reading by peers. It stays there as long as this
        object."""
        first, count = self._where()
        return int(ffi.cast("uintptr_t", first)), count * 8

    def _where(self) -> tuple[Any, int]:
        first, count = ffi.new("const uint64_t **"), ffi.new("size_t *")
        check(lib.pinfold_remote_keys_words(self._table, first, count))
        return first[0], int(count[0])


def _to_c(token: RemoteKey) -> Any:
    return ffi.new("pinfold_remote_key *", (token.address, token.length, token.key, token.generation, token.slot, 0))


def _from_c(token: Any) -> RemoteKey:
    return RemoteKey(token.address, token.length, token.key, token.generation, token.slot)
