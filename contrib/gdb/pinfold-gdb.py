# SPDX-License-Identifier: BSD-3-Clause
"""Lets gdb show pinfold's caches: `source` this file. Where the library is installed in /usr, gdb loads it by itself."""

import os
import sys


def load(folder: str) -> None:
    kept = sys.dont_write_bytecode, list(sys.path)
    sys.dont_write_bytecode = True  # root's gdb would write below /usr
    sys.path.insert(0, folder)
    try:
        import pinfold_gdb
    finally:
        sys.dont_write_bytecode, sys.path[:] = kept
    pinfold_gdb.start()


load(os.path.dirname(os.path.realpath(__file__)))
