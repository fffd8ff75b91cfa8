# SPDX-License-Identifier: BSD-3-Clause
"""The node's budget: an account of registered bytes that processes share."""

from __future__ import annotations

import dataclasses
from typing import Any

from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.constants import Bound
from pinfold.errors import check

EACH = "int(void *, const pinfold_node_budget_member *)"


@dataclasses.dataclass(frozen=True)
class Member:
    """A process that has an account open. `waiting_ms` is 0 while none of its requests waits for room."""

    pid: int
    name: str
    bytes: int
    waiting_ms: int
    asked: int
    refused: int


class NodeBudget(Owner):
    """A membership in the account of that name: docs/use/node-budget.md. The first member sets the maximum. A process is a
    member once; `separate` makes another membership. With `pins`, RLIMIT_MEMLOCK and the cgroup's memory.max limit
    this process's part, too. For a cache, pass it as `Options.node_budget`."""

    def __init__(
        self, name: str, max_bytes: int = 0, member: str | None = None, pins: bool = True, separate: bool = False
    ) -> None:
        if "\0" in name:
            raise ValueError("the name of a node budget has a 0")
        options = ffi.new("pinfold_node_budget_options *")
        options.size = ffi.sizeof("pinfold_node_budget_options")
        options.max_bytes = max_bytes
        as_text = ffi.NULL if member is None else ffi.new("char[]", member.encode())
        options.member = as_text
        options.no_pins = not pins
        options.separate = separate
        made = ffi.new("pinfold_node_budget **")
        check(lib.pinfold_node_budget_open(name.encode(), options, made))
        self.name = name
        self._budget = made[0]
        self._own(lib.pinfold_node_budget_close, self._budget)

    def take(self, nbytes: int) -> None:
        """Takes room, all or nothing, for memory that the program pins itself. Raises `Error` if there is none."""
        check(lib.pinfold_node_budget_take(self._budget, nbytes))

    def give(self, nbytes: int) -> None:
        """Gives back taken room."""
        check(lib.pinfold_node_budget_give(self._budget, nbytes))

    def trim(self) -> None:
        """Gives back room that was taken in advance and is unused."""
        check(lib.pinfold_node_budget_trim(self._budget))

    @property
    def max_bytes(self) -> int:
        """The account's maximum. Assigning to it changes it for all members."""
        return int(self._read().max_bytes)

    @max_bytes.setter
    def max_bytes(self, nbytes: int) -> None:
        check(lib.pinfold_node_budget_set_max_bytes(self._budget, nbytes))

    @property
    def used_bytes(self) -> int:
        """The bytes that all members have taken."""
        return int(self._read().used_bytes)

    @property
    def bytes_here(self) -> int:
        """The bytes that this membership uses, without those that it took in advance."""
        return int(self._read().bytes_here)

    def members(self) -> list[Member]:
        """Returns the members of the account."""
        found: list[Member] = []

        def add(_self: Any, one: Any) -> int:
            name = ffi.string(one.name).decode(errors="replace")
            found.append(Member(one.pid, name, one.bytes, one.waiting_ms, one.asked, one.refused))
            return 0

        check(lib.pinfold_node_budget_members(self._budget, ffi.callback(EACH, add), ffi.NULL))
        return found

    def limits(self) -> dict[str, int | Bound]:
        """Reads the limits of this process, and returns them in bytes; `binds` names the one with the least room."""
        limits = ffi.new("pinfold_node_budget_limits *")
        limits.size = ffi.sizeof("pinfold_node_budget_limits")
        check(lib.pinfold_node_budget_read_limits(self._budget, limits))
        names = [name for name, _ in ffi.typeof("pinfold_node_budget_limits").fields if name not in ("size", "binds")]
        all_limits: dict[str, int | Bound] = {name: int(getattr(limits, name)) for name in names}
        all_limits["binds"] = Bound(limits.binds)
        return all_limits

    @staticmethod
    def remove(name: str) -> None:
        """Removes the name of an account. Its members keep using it."""
        check(lib.pinfold_node_budget_remove(name.encode()))

    def _read(self) -> Any:
        state = ffi.new("pinfold_node_budget_state *")
        state.size = ffi.sizeof("pinfold_node_budget_state")
        check(lib.pinfold_node_budget_read(self._budget, state))
        return state
