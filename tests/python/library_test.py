# SPDX-License-Identifier: BSD-3-Clause
"""Which C library the package loads, and what it says of a wrong one."""

import pathlib
import shutil
import subprocess
from typing import Callable

import pytest

import pinfold
from pinfold._library import lib

PROGRAM = "import pinfold; print(pinfold.__version__)"


def test_version_is_the_headers() -> None:
    assert pinfold.__version__ == ".".join(str(lib.PINFOLD_API_VERSION >> at & 0xFF) for at in (16, 8, 0))


def test_environment_names_another_library(run: Callable[..., str]) -> None:
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "/libpinfold.so" in line)
    assert run(PROGRAM, PINFOLD_LIBRARY=path, LD_LIBRARY_PATH="/nonexistent") == pinfold.__version__ + "\n"


@pytest.mark.parametrize("name", ["/nonexistent/libpinfold.so.0", "libc.so.6"])
def test_missing_library_is_an_import_error(run: Callable[..., str], name: str) -> None:
    said = run(PROGRAM, status=1, PINFOLD_LIBRARY=name)
    assert "ImportError: the C library of pinfold cannot be loaded" in said
    assert "Install libpinfold0, or set PINFOLD_LIBRARY to its path" in said


@pytest.mark.parametrize(
    ("version", "fits"), [(0x000100, False), (0x010000, False), (lib.PINFOLD_API_VERSION + 1, True)]
)
def test_library_of_another_version(run: Callable[..., str], tmp_path: pathlib.Path, version: int, fits: bool) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "libpinfold.so.0"
    source = f"unsigned pinfold_version(void) {{ return {version}; }}"
    subprocess.run([compiler, "-shared", "-fPIC", "-xc", "-", f"-o{library}"], input=source, text=True, check=True)
    said = run(PROGRAM, status=1, PINFOLD_LIBRARY=str(library))
    assert fits == ("symbol 'pinfold_" in said), "a later version is used, and this one lacks all functions"
    if not fits:
        assert f"ImportError: {library} is pinfold {version >> 16}.{version >> 8 & 255}.0, but" in said
        assert "install the same versions" in said


def test_process_gets_no_writable_code_before_it_needs_callbacks(run: Callable[..., str]) -> None:  # R54
    """Hooks alone suffice only while all code of the process is known, so as in a container without userfaultfd."""
    program = """
import pinfold

def writable_code():
    with open("/proc/self/maps") as maps:
        return [line for line in maps if "wx" in line.split()[1]]

before = writable_code()
with pinfold.Cache.mlock() as cache, cache.acquire(bytearray(100)) as lease, lease.share():
    cache.statistics()
array = pinfold.memfd_array(10)
with pinfold.open(pinfold.share(array)) as tensor:
    tensor.numpy()
assert writable_code() == before
cache = pinfold.Cache.mlock(pinfold.Options(sink=print))
assert writable_code() != before, "cffi's callbacks are not in writable code here: then docs/use/python.md is wrong"
"""
    assert run(program) == ""
