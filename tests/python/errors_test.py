# SPDX-License-Identifier: BSD-3-Clause
import pickle
from collections.abc import Callable

import pytest

from pinfold import Cache, Code, Error, NativeKind, Options, share


def test_error_has_code_and_origin() -> None:
    error = Error(Code.NOT_PERMITTED, "no right", NativeKind.POSIX, 13)
    assert str(error) == "not_permitted: no right (EACCES 13: Permission denied)"
    assert "?" in str(Error(Code.CLOSED, "no \udcff text"))


def test_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(Error(Code.PEER_GONE, "it ended", NativeKind.POSIX, 3)))
    assert (error.code, error.message, error.native_kind, error.native) == (
        Code.PEER_GONE,
        "it ended",
        NativeKind.POSIX,
        3,
    )


def test_numbers_of_later_versions_are_kept() -> None:
    error = Error(-77, "from the future")
    assert error.code == -77 and error.code.name == "UNKNOWN_-77"
    with pytest.raises(ValueError):
        Code("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("refused", "wrong"),
    [
        (TypeError, lambda: Cache.mlock(Options(max_bytes="x"))),  # type: ignore[arg-type]
        (AttributeError, lambda: Cache.mlock(3)),  # type: ignore[arg-type]
        (OverflowError, lambda: Cache.mlock(Options(max_bytes=-1))),
        (BufferError, lambda: Cache.mlock().acquire(3)),
        (BufferError, lambda: Cache.mlock().acquire(memoryview(bytearray(8))[::2])),
        (ValueError, lambda: share(bytearray(8))),
    ],
)
def test_python_refuses_what_is_no_value_for_the_library(refused: type[Exception], wrong: Callable[[], object]) -> None:
    with pytest.raises(refused):
        wrong()


@pytest.mark.parametrize("code", list(Code))
def test_code_has_the_librarys_name(code: Code) -> None:
    assert str(Error(code)).startswith(code.name.lower())
