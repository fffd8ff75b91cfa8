# SPDX-License-Identifier: BSD-3-Clause
"""Types of elements, by the numbers of DLPack, and by the names in other interfaces."""

from __future__ import annotations

import sys
from typing import NamedTuple

from pinfold._library import lib

_KINDS = {
    "i": lib.kDLInt,
    "u": lib.kDLUInt,
    "f": lib.kDLFloat,
    "c": lib.kDLComplex,
    "b": lib.kDLBool,
}
_FORMATS = {"bhilqn": "i", "BHILQN": "u", "efd": "f", "?": "b"}
_NATIVE = "<" if sys.byteorder == "little" else ">"


class DType(NamedTuple):
    """A type of elements. Types without a name, such as bfloat16, have a code of DLPack too."""

    code: int
    bits: int

    @property
    def itemsize(self) -> int:
        return self.bits // 8

    @property
    def name(self) -> str:
        """The name in numpy's and CUDA's array interfaces, such as "<f4"."""
        for kind, code in _KINDS.items():
            if code == self.code:
                return f"{_NATIVE if self.itemsize > 1 else '|'}{kind}{self.itemsize}"
        raise TypeError(
            f"numpy has no type for DLPack's code {self.code} with {self.bits} bits: use DLPack, or the bytes"
        )

    @classmethod
    def named(cls, name: str) -> DType:
        """Returns the type of a name such as "<f4"."""
        order, kind, size = name[:1], name[1:2], name[2:]
        if kind not in _KINDS or not size.isdecimal() or (order != _NATIVE and order not in "|=") or not order:
            raise TypeError(f"no type of elements that can be shared: {name!r}")
        return cls(_KINDS[kind], 8 * int(size))

    @classmethod
    def of_format(cls, format: str, itemsize: int) -> DType:
        """Returns the type of a format of the buffer protocol, such as "f"."""
        letter = format.lstrip("@=" + _NATIVE)
        if letter in ("Zf", "Zd"):
            return cls(lib.kDLComplex, 8 * itemsize)
        for letters, kind in _FORMATS.items():
            if letter and letter in letters:
                return cls(_KINDS[kind], 8 * itemsize)
        raise TypeError(f"no type of elements that can be shared: format {format!r}")
