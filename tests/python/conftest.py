# SPDX-License-Identifier: BSD-3-Clause
import gc
import os
import pathlib
import subprocess
import sys
from typing import Callable, Iterator

import pytest

import pinfold
from doubles import RecordingImporter, RecordingRegistrar


@pytest.fixture
def registrar() -> RecordingRegistrar:
    return RecordingRegistrar()


@pytest.fixture
def cache(registrar: RecordingRegistrar) -> Iterator[pinfold.Cache]:
    """A cache over the recording registrar that keeps what it registers until it is told otherwise."""
    with pinfold.Cache(registrar, pinfold.Options(monitor=pinfold.Monitor.MANUAL)) as made:
        yield made
        gc.collect()
        if not made.closed:
            assert made.statistics()["leases_now"] == 0, "a lease was lost"


@pytest.fixture
def importer() -> RecordingImporter:
    return RecordingImporter()


@pytest.fixture
def peers(importer: RecordingImporter) -> Iterator[pinfold.ImportCache]:
    with pinfold.ImportCache(importer) as made:
        yield made


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Callable[..., str]:
    """Runs a program in an interpreter of its own, and returns what it prints."""

    def run_program(program: str, *arguments: str, status: int = 0, **environment: str) -> str:
        file = tmp_path / "program.py"
        file.write_text(program)
        done = subprocess.run(
            [sys.executable, str(file), *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run_program
