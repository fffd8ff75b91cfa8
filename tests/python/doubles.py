# SPDX-License-Identifier: BSD-3-Clause
"""Registrars and importers that record what a cache asks of them."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pinfold


class RecordingRegistrar(pinfold.Registrar):
    """Registers nothing. `refuse` is raised by the next opens, `refuse_close` by the next closes."""

    name = "recording"

    def __init__(self) -> None:
        self.opened: list[pinfold.OpenRequest] = []
        self.live: set[Any] = set()
        self.refuse: BaseException | None = None
        self.refuse_close: BaseException | None = None
        self.has_finished = threading.Event()

    def open(self, request: pinfold.OpenRequest) -> object:
        self.opened.append(request)
        if self.refuse is not None:
            raise self.refuse
        registration = ("registration", len(self.opened))
        self.live.add(registration)
        return registration

    def close(self, registration: Any) -> None:
        if self.refuse_close is not None:
            raise self.refuse_close
        self.live.remove(registration)

    def finished(self) -> None:
        self.has_finished.set()


class RecordingImporter(pinfold.Importer):
    """Imports "allocations" of a peer into buffers of this process. A handle is its base and length."""

    name = "recording"
    handle_bytes = 16
    host_memory = True
    writable = True

    def __init__(self) -> None:
        self.opened: list[tuple[int, bytes, object]] = []
        self.live: dict[int, Any] = {}
        self.refuse: BaseException | None = None
        self.refuse_check: BaseException | None = None
        self.result: pinfold.Imported | None = None
        self.closed: list[Any] = []
        self.has_finished = threading.Event()

    @staticmethod
    def handle(base: int, nbytes: int) -> bytes:
        return base.to_bytes(8, "little") + nbytes.to_bytes(8, "little")

    def check(self, handle: bytes) -> tuple[int, int]:
        if self.refuse_check is not None:
            raise self.refuse_check
        return int.from_bytes(handle[:8], "little"), int.from_bytes(handle[8:], "little")

    def open(self, peer: int, handle: bytes, argument: object) -> pinfold.Imported:
        self.opened.append((peer, handle, argument))
        if self.refuse is not None:
            raise self.refuse
        base, nbytes = self.check(handle)
        memory = ctypes.create_string_buffer(bytes([peer]) * nbytes, nbytes)
        address = ctypes.addressof(memory)
        self.live[address] = memory
        return self.result or pinfold.Imported(base, nbytes, address, registration=address)

    def close(self, registration: Any) -> None:
        self.closed.append(registration)
        self.live.pop(registration, None)

    def finished(self) -> None:
        self.has_finished.set()
