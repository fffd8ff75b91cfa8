# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs of the documents."""

import pathlib
import re
from typing import Callable

import pytest

TOP = pathlib.Path(__file__).parents[2]
PROGRAMS = [
    pytest.param(program, id=f"{page}:{number}")
    for page in (
        "docs/use/python.md",
        "README.md",
        "docs/use/start-up.md",
        "docs/use/release-protocol.md",
        "docs/use/transfer-engines.md",
    )
    for number, program in enumerate(re.findall(r"^```python\n(.*?)^```$", (TOP / page).read_text(), re.M | re.S))
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_of_a_document_runs(run: Callable[..., str], program: str) -> None:
    assert "Warning" not in run(program)


def test_documents_have_programs() -> None:
    assert len(PROGRAMS) > 4


def test_first_example_hits(run: Callable[..., str]) -> None:
    assert "hits=999 " in run(PROGRAMS[0].values[0])
