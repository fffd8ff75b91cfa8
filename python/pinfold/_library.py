# SPDX-License-Identifier: BSD-3-Clause
"""The C library, loaded by its soname, and the declarations of its headers."""

import os
from typing import Any

from pinfold._declarations import ffi as _declarations

ffi: Any = _declarations
SONAME = "libpinfold.so.0"


def load(soname: str) -> Any:
    """Loads a library for the life of the process: until then its threads and the finalizers of objects may run."""
    return ffi.dlopen(soname, ffi.RTLD_NOW | ffi.RTLD_NODELETE)


def _text(version: int) -> str:
    return f"{version >> 16}.{version >> 8 & 0xFF}.{version & 0xFF}"


def _load_pinfold(name: str) -> Any:
    try:
        library = load(name)
        found = library.pinfold_version()
    except (OSError, AttributeError, ffi.error) as reason:
        raise ImportError(
            f"the C library of pinfold cannot be loaded: {reason}. Install libpinfold0, or set PINFOLD_LIBRARY to its path"
        ) from reason
    wanted = library.PINFOLD_API_VERSION
    if found < wanted or found >> 16 != wanted >> 16:
        raise ImportError(
            f"{name} is pinfold {_text(found)}, but this package was made for {_text(wanted)}: install the same versions"
        )
    return library


lib: Any = _load_pinfold(os.environ.get("PINFOLD_LIBRARY") or SONAME)
__version__: str = _text(lib.pinfold_version())


def text_of(write: Any, *given: Any) -> str:
    """Returns the text that a function of the library writes like snprintf(3)."""
    room = 1024
    while True:
        text = ffi.new("char[]", room)
        needed: int = write(*given, text, room)
        if needed < room:
            found: bytes = ffi.string(text)
            return found.decode(errors="replace")
        room = needed + 1
