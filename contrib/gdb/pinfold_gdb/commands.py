# SPDX-License-Identifier: BSD-3-Clause
"""The commands `pinfold dump`, `pinfold at` and `info pinfold`."""

import json

import gdb

from . import printers, tool


class Prefix(gdb.Command):
    """Shows the caches of pinfold."""

    def __init__(self) -> None:
        super().__init__("pinfold", gdb.COMMAND_DATA, prefix=True)

    def invoke(self, argument: str, from_tty: bool) -> None:
        gdb.execute("help pinfold")


class Dump(gdb.Command):
    """Shows the caches of pinfold in the process or core file, and their entries, with the command line tool.

    pinfold dump [--sort range|bytes|age|hits|leases] [--limit NUMBER] [--json]

    Works without debug information. `pinfold dump --help` in a shell explains what is shown."""

    def __init__(self, name: str) -> None:
        super().__init__(name, gdb.COMMAND_DATA)

    def invoke(self, argument: str, from_tty: bool) -> None:
        print(tool.run(*gdb.string_to_argv(argument)), end="")


class At(gdb.Command):
    """Shows the entries of pinfold's caches that contain an address.

    pinfold at EXPRESSION

    For imported memory, an address of this process or of the exporter is looked for."""

    def __init__(self) -> None:
        super().__init__("pinfold at", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument: str, from_tty: bool) -> None:
        if not argument:
            raise gdb.GdbError("pinfold at: an address is required.")
        where = address_of(argument)
        found = json.loads(tool.run("--json", "--at", hex(where)))
        for cache in found["caches"]:
            for one in cache["entries"]:
                print(f'cache "{cache["name"]}": {printers.one_line(one)}')
        if not found["caches"]:
            print(f"no entry contains {where:#x}")
        if found["unreadable"]:
            print(f"copies of the library that cannot be read: {found['unreadable']}")


def address_of(expression: str) -> int:
    value = gdb.parse_and_eval(expression)
    if value.type.strip_typedefs().code == gdb.TYPE_CODE_ARRAY and value.address is not None:
        value = value.address
    try:
        return int(value) & ((1 << 64) - 1)
    except gdb.error as failure:
        raise gdb.GdbError(f"pinfold at: {failure}") from failure


def add_commands() -> None:
    Prefix()
    Dump("pinfold dump")
    Dump("info pinfold")
    At()
