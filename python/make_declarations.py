# SPDX-License-Identifier: BSD-3-Clause
"""Makes the module of the C interface's declarations of the headers themselves.

usage: make_declarations.py <C compiler> <folder of the headers> <module to write>
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import cffi

HEADERS = (
    "pinfold/pinfold.h",
    "pinfold/background.h",
    "pinfold/cache_set.h",
    "pinfold/remote_key.h",
    "pinfold/node_budget.h",
    "pinfold/release.h",
    "pinfold/release_carried.h",
    "pinfold/segments.h",
    "pinfold/verbs.h",
    "pinfold/libfabric.h",
    "dlpack.h",
)
CONSTANT = re.compile(r"#define (PINFOLD|DLPACK)_\w+ (0x[0-9A-Fa-f]+|[0-9]+)[UuLl]*")


def preprocessed(compiler: str, include: str) -> str:
    """Returns the headers without comments, attributes and what they include of the system's."""
    with tempfile.TemporaryDirectory() as empty:
        for header in ("stddef.h", "stdint.h"):  # cffi knows what they define
            (pathlib.Path(empty) / header).touch()
        return subprocess.run(
            [compiler, "-E", "-P", "-dD", "-nostdinc", "-D__attribute__(any)=", "-xc", "-"]
            + [f"-I{folder}" for folder in (empty, include, pathlib.Path(__file__).parent)],
            input="".join(f"#include <{header}>\n" for header in HEADERS),
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout


def without_other_macros(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("#") or CONSTANT.fullmatch(line))


def main() -> None:
    compiler, include, module = sys.argv[1:]
    ffi = cffi.FFI()
    ffi.cdef(without_other_macros(preprocessed(compiler, include)))
    ffi.set_source("pinfold._declarations", None)
    ffi.emit_python_code(module)


main()
