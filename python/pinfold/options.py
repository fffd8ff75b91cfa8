# SPDX-License-Identifier: BSD-3-Clause
"""Options of a cache."""

from __future__ import annotations

import dataclasses
from typing import Any

from pinfold import events
from pinfold._callbacks import finish, serve
from pinfold._library import ffi, lib
from pinfold.constants import Flag, Full, Merge, Monitor
from pinfold.errors import check
from pinfold.node_budget import NodeBudget


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a cache, as docs/operate/tuning.md explains them. None: the library's default.

    The members take precedence over the lines of `text` (`PINFOLD_MAX_BYTES=64M`), and these over the environment,
    which is read on request: the file that PINFOLD_CONFIG names, then the variables.
    """

    name: str | None = None
    flags: Flag | None = None
    monitor: Monitor | None = None
    full: Full | None = None
    audit_one_in: int | None = None
    merge: Merge | None = None
    merge_limit: int | None = None
    shards: int | None = None
    max_bytes: int | None = None
    max_count: int | None = None
    idle_timeout_ms: int | None = None
    full_timeout_ms: int | None = None
    conflict_timeout_ms: int | None = None
    wait_timeout_ms: int | None = None
    drain_timeout_ms: int | None = None
    node_budget: NodeBudget | str | None = None
    sink: events.Sink | None = None
    text: str = ""
    environment: bool = False

    def _to_c(self) -> Any:
        """Returns the C structure. Its sink is served until the library, or `_withdraw`, ends that."""
        c = ffi.new("pinfold_options *")
        check(lib.pinfold_options_init(c, ffi.sizeof("pinfold_options")))
        if self.environment:
            check(lib.pinfold_options_from_environment(c))
        if "\0" in self.text:
            raise ValueError("the text of options has a 0")
        if self.text:
            check(lib.pinfold_options_from_text(c, self.text.encode()))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name not in ("name", "node_budget", "sink", "text", "environment"):
                setattr(c, field.name, value)
        if self.name is not None:
            self._set_name(c)
        if self.node_budget is not None:
            self._set_node_budget(c)
        if self.sink is not None:
            c.sink, c.sink_self, c.sink_finished = events.send(), serve(self.sink), events.finished()
        return c

    def _set_node_budget(self, c: Any) -> None:
        given = self.node_budget
        text = (given.name if isinstance(given, NodeBudget) else given or "").encode()
        if len(text) >= ffi.sizeof(c.node_budget) or b"\0" in text:
            raise ValueError(f"the name of a node budget is too long, or has a 0: {text!r}")
        ffi.memmove(c.node_budget, text + b"\0", len(text) + 1)

    def _set_name(self, c: Any) -> None:
        name = (self.name or "").encode()
        if len(name) >= ffi.sizeof(c.name) or b"\0" in name:
            raise ValueError(f"the name of a cache has at most {ffi.sizeof(c.name) - 1} bytes, and no 0: {self.name!r}")
        ffi.memmove(c.name, name + b"\0", len(name) + 1)


def withdraw(c: Any) -> None:
    """Forgets the sink of options without a cache."""
    if c.sink_self:
        finish(c.sink_self)
