# SPDX-License-Identifier: BSD-3-Clause
"""What gdb shows of pinfold: printers for its objects, and commands that list its caches."""

from .commands import add_commands
from .printers import add_printers


def start() -> None:
    add_commands()
    add_printers()
