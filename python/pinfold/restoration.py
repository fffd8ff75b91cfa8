# SPDX-License-Identifier: BSD-3-Clause
"""Registers again, in the background, what `quiesce` closed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pinfold._held import Held
from pinfold._library import ffi, lib
from pinfold._owned import Owner
from pinfold.constants import Code
from pinfold.errors import Error, check, last_failure

if TYPE_CHECKING:
    from pinfold._cache import BaseCache


@dataclass(frozen=True)
class RestoreProgress:
    """The progress of a restoration; pinfold.h explains the members."""

    total: int
    restored: int
    skipped: int
    failed: int
    nbytes: int


class Restoration(Held, Owner):
    """A restoration in the background. The end of a `with` statement waits for it; `close` stops it after the
    registrations in progress, and the cache remembers the others. Every member may be called on any thread."""

    def __init__(self, cache: BaseCache, workers: int) -> None:
        super().__init__()
        made = ffi.new("pinfold_restoration **")
        check(cache._call(lib.pinfold_restore, workers, made))
        self._restoration = made[0]
        self._own(_end, self._restoration, at_exit=True)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is done, at most `timeout` seconds. Returns whether it is done."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while True:  # in steps, so that a signal can interrupt it
            left = min(max(0.0, until - time.monotonic()), 0.1)
            code = self._ask(lib.pinfold_restoration_wait, round(left * 1000))
            if code != Code.TIMED_OUT:
                check(code)
                return True
            if time.monotonic() >= until:
                return False

    def progress(self) -> RestoreProgress:
        """Returns its progress."""
        return self._progress()[0]

    def failure(self) -> BaseException | None:
        """Returns the first failure of a registration."""
        return self._progress()[1]

    def close(self) -> None:
        """Stops it, once no other thread uses it. Raises IN_USE_CONFLICT in a callback of the cache: it then continues."""
        self.release()

    def _progress(self) -> tuple[RestoreProgress, BaseException | None]:
        c = ffi.new("pinfold_restore_progress *")
        c.size = ffi.sizeof("pinfold_restore_progress")
        failed = self._ask(lib.pinfold_restoration_progress, c)
        failure = last_failure() if failed else None
        return RestoreProgress(c.total, c.restored, c.skipped, c.failed, c.bytes), failure

    def _ask(self, question: Any, *given: Any) -> int:
        try:
            self.hold()
        except ValueError:
            raise Error(Code.CLOSED, "the restoration was closed") from None
        try:
            if not self._free.alive:
                raise Error(Code.CLOSED, "the restoration belongs to the parent process")
            answer: int = question(self._restoration, *given)
            return answer
        finally:
            self.drop()

    def _give_back(self) -> None:
        if self._free.detach() is None:
            return  # by another thread, at the end of the process, or in the parent of this process
        code = lib.pinfold_end_restoration(self._restoration)
        if code:
            failure = last_failure()
            self._own(_end, self._restoration, at_exit=True)
            self._released = False
            raise failure

    def __exit__(self, *raised: object) -> None:
        if raised[0] is None:
            self.wait()
        self.close()


def _end(restoration: Any) -> int:
    code: int = lib.pinfold_end_restoration(restoration)
    return code
