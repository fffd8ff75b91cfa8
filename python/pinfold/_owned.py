# SPDX-License-Identifier: BSD-3-Clause
"""Objects of the library that belong to a Python object: freed when that is collected, and never in a child of fork."""

from __future__ import annotations

import os
import weakref
from typing import Any, Callable


class Owner:
    """Owns one object of the library. `_free` frees it, once."""

    def _own(self, free: Callable[..., Any], *what: Any, at_exit: bool = False) -> None:
        self._free = weakref.finalize(self, free, *what)
        self._free.atexit = at_exit
        _owners.add(self)

    def _leave_to_parent(self) -> None:
        """Called in a child of fork: the object belongs to the parent, and the child does not have its threads."""
        self._free.detach()


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for owner in _owners:
        owner._leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
