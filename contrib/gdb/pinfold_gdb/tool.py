# SPDX-License-Identifier: BSD-3-Clause
"""Runs `pinfold dump`, which reads the memory of the process or core file that gdb looks at."""

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess

import gdb

CORE = re.compile(r" core dump file:\n\t`(.*)',")
INSTALLED = re.compile(r"^(.*)/share/pinfold/gdb/[^/]+/[^/]+/[^/]+$")


def path() -> str:
    installed = INSTALLED.match(os.path.realpath(__file__))  # in a source tree, other users may own what is above
    beside = installed and shutil.which(f"{installed.group(1)}/bin/pinfold")
    found = beside or shutil.which("pinfold")
    if found is None:
        raise gdb.GdbError(
            "The command line tool `pinfold` is neither beside these scripts nor in PATH: it reads the caches."
        )
    return found


def is_there() -> bool:
    return gdb.selected_inferior().pid != 0


def target() -> tuple[str, ...]:
    """Returns what the tool calls the process or core file."""
    process = gdb.selected_inferior()
    if not is_there():
        raise gdb.GdbError("There is no process and no core file to look at.")
    kind = getattr(getattr(process, "connection", None), "type", "native")  # from gdb 12 on
    if kind == "core":
        return "--core", CORE.search(gdb.execute("info files", to_string=True)).group(1)
    if kind == "native":
        return (str(process.pid),)
    raise gdb.GdbError(f"The tool cannot read a process of target {kind}: generate-core-file writes what it can read.")


def run(*options: str) -> str:
    """Returns what the tool says of the process or core file."""
    of, files = target(), []
    with contextlib.ExitStack() as opened:
        if of[0] != "--core":
            with contextlib.suppress(OSError):  # the tool says why
                # Yama lets the tracer open this: gdb, not the tool.
                files.append(opened.enter_context(open(f"/proc/{of[0]}/mem", "rb", buffering=0)).fileno())
                of += ("--memory", str(files[0]))
        command = [path(), "dump", *options, *of]
        done = subprocess.run(command, pass_fds=files, capture_output=True, text=True, check=False)
    if done.stderr:
        raise gdb.GdbError(done.stderr.strip())
    return done.stdout


@functools.lru_cache(maxsize=1)
def _found(_target: tuple[str, ...]) -> list[dict]:
    return json.loads(run("--json"))["caches"]


def caches() -> list[dict]:
    """Returns all caches. Reads them once until the process goes on, or gdb changes its memory."""
    return _found(target())


def forget(_event: object) -> None:
    _found.cache_clear()


for event in (gdb.events.cont, gdb.events.exited, gdb.events.memory_changed, gdb.events.inferior_call):
    event.connect(forget)
