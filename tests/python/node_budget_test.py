# SPDX-License-Identifier: BSD-3-Clause
import os
from typing import Iterator

import pytest
from doubles import RecordingRegistrar

import pinfold
from pinfold import Bound, Cache, Code, Error, Monitor, NodeBudget, Options


@pytest.fixture
def name() -> Iterator[str]:
    account = f"python-{os.getpid()}"
    yield account
    NodeBudget.remove(account)


def test_account_has_a_maximum(name: str) -> None:
    budget = NodeBudget(name, 1 << 20, pins=False)
    assert (budget.max_bytes, budget.used_bytes) == (1 << 20, 0)
    budget.take(1 << 20)
    with pytest.raises(Error) as caught:
        budget.take(1)
    assert caught.value.code is Code.OVER_BUDGET
    assert budget.bytes_here == 1 << 20
    budget.give(1 << 20)
    budget.trim()
    budget.max_bytes = 1 << 16
    assert (NodeBudget(name).max_bytes, budget.used_bytes) == (1 << 16, 0)


def test_members_are_listed(name: str) -> None:
    budget = NodeBudget(name, 1 << 20, member="trainer", pins=False)
    other = NodeBudget(name, separate=True, pins=False)
    other.take(4096)
    members = budget.members()
    assert [one.name for one in members][0] == "trainer" and len(members) == 2
    assert members[1].bytes >= 4096 and members[1].pid == os.getpid() and members[1].refused == 0


def test_limits_say_which_one_binds(name: str) -> None:
    limits = NodeBudget(name, 1 << 20).limits()
    assert limits["account_max"] == 1 << 20 and isinstance(limits["binds"], Bound)


def test_bad_input_is_refused(name: str) -> None:
    for bad, max_bytes in (("a/b", 4096), (name, 0), (name, 1)):
        with pytest.raises(Error) as caught:
            NodeBudget(bad, max_bytes)
        assert caught.value.code is Code.INVALID_ARGUMENT
    NodeBudget(name, 4096)  # for `remove`


def test_cache_takes_from_the_account(name: str) -> None:
    budget = NodeBudget(name, 1 << 16, pins=False)
    memory = bytearray(1 << 18)
    choices: list[NodeBudget | str] = [budget, name]
    for given in choices:
        with Cache(RecordingRegistrar(), Options(monitor=Monitor.MANUAL, node_budget=given)) as cache:
            with cache.acquire(memoryview(memory)[: 1 << 14]):
                assert budget.bytes_here >= 1 << 14
            with pytest.raises(Error) as caught:
                cache.acquire(memory)
            assert caught.value.code is pinfold.Code.LARGER_THAN_BUDGET
        assert budget.bytes_here == 0
