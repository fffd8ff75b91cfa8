# SPDX-License-Identifier: BSD-3-Clause
"""Objects of the library that belong to a Python object: freed when that is collected, and never in a child of fork."""

from __future__ import annotations

import collections
import functools
import os
import time
import weakref
from typing import Any, Callable

from pinfold._callbacks import in_callback, is_served
from pinfold.constants import Code

SECONDS_FOR_THREADS_AT_EXIT = 5.0


class Owner:
    """Owns one object of the library. `_free` frees it, once."""

    def _own(self, free: Callable[..., Any], *what: Any, at_exit: bool = False) -> None:
        """`free` returns IN_USE_CONFLICT if the library refused and did nothing."""
        self._free = weakref.finalize(self, functools.partial(_free, free), *what)
        self._free.atexit = at_exit
        _owners.add(self)

    def _leave_to_parent(self) -> None:
        """Called in a child of fork: the object belongs to the parent, and the child does not have its threads."""
        self._free.detach()


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()

# The library refuses to free an object in a callback of its cache, and a cache before its streams of chunks.
refused: collections.deque[tuple[Callable[..., Any], tuple[Any, ...]]] = collections.deque()


def _free(free: Callable[..., Any], *what: Any) -> None:
    """Frees an object, now or later. The collector may call it in any callback."""
    if free(*what) == Code.IN_USE_CONFLICT:
        refused.append((free, what))
    free_refused()


def free_refused() -> None:
    """Frees what the library has refused to free, unless this is a callback."""
    again = 0
    while again < len(refused) and not in_callback():
        try:
            free, what = refused.popleft()
        except IndexError:
            return  # another thread was first
        again += 1
        if free(*what) == Code.IN_USE_CONFLICT:
            refused.append((free, what))
        else:
            again = 0


# Handles of caches that were destroyed while a thread of the library was in a driver.
outlasting: set[Any] = set()


def _free_last() -> None:
    """Frees what is left when the interpreter ends, and waits until threads of the library have left Python."""
    free_refused()
    until = time.monotonic() + SECONDS_FOR_THREADS_AT_EXIT
    while any(map(is_served, list(outlasting))) and time.monotonic() < until:
        time.sleep(0.0005)


weakref.finalize(Owner, _free_last)  # the last at the end of the process, since it is the oldest


def _leave_all_to_parent() -> None:
    refused.clear()
    outlasting.clear()
    for owner in _owners:
        owner._leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
