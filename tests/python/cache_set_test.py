# SPDX-License-Identifier: BSD-3-Clause
"""Sets of caches, and keys for peers."""

from __future__ import annotations

import threading
from typing import Iterator

import pytest

import pinfold
from doubles import RecordingRegistrar
from pinfold import Cache, CacheSet, Code, Error, Monitor, Options, RemoteKey, RemoteKeys, SetPolicy


@pytest.fixture
def rails() -> list[RecordingRegistrar]:
    return [RecordingRegistrar() for _ in range(3)]


@pytest.fixture
def caches(rails: list[RecordingRegistrar]) -> Iterator[list[Cache]]:
    made = [Cache(rail, Options(monitor=Monitor.MANUAL)) for rail in rails]
    yield made
    for one in made:
        one.close()


def opens(rails: list[RecordingRegistrar]) -> list[int]:
    return [len(rail.opened) for rail in rails]


def leases(caches: list[Cache]) -> list[int]:
    return [one.statistics()["leases_now"] for one in caches]


def test_all_or_nothing(rails: list[RecordingRegistrar], caches: list[Cache]) -> None:
    memory = bytearray(8192)
    every = CacheSet(caches)
    for _ in range(2):
        with every.acquire(memory) as got:
            assert len(got) == 3 and got.pending == 0 and got.failures == []
            assert [member for member, _ in got.registrations] == [0, 1, 2]
    assert opens(rails) == [1, 1, 1]
    rails[1].refuse = Error(Code.DRIVER_ERROR, "dead", pinfold.NativeKind.POSIX, 5)
    other = bytearray(8192)
    with pytest.raises(Error) as caught:
        every.acquire(other)
    assert caught.value.code is Code.DRIVER_ERROR and caught.value.native == 5
    assert leases(caches) == [0, 0, 0]


def test_partial_success(rails: list[RecordingRegistrar], caches: list[Cache]) -> None:
    rails[0].refuse = Error(Code.DRIVER_ERROR, "dead", pinfold.NativeKind.POSIX, 5)
    with CacheSet(caches).acquire(bytearray(8192), required=1) as got:
        assert [member for member, _ in got.registrations] == [1, 2]
        assert [(member, why.native) for member, why in got.failures] == [(0, 5)]
        assert got[0] is None
        with pytest.raises(Error):
            got.at(0)


def test_failures_have_their_causes(rails: list[RecordingRegistrar], caches: list[Cache]) -> None:
    for number, rail in enumerate(rails[:2]):
        rail.name = f"rail {number}"
        rail.refuse = KeyError(number)
    for policy in (SetPolicy.ALL, SetPolicy.FIXED_ORDER):
        with CacheSet(caches).acquire(bytearray(8192), policy=policy, required=1, argument="argument") as got:
            assert [why.__cause__ for _, why in got.failures] == [rail.refuse for rail in rails[:2]]
        assert [rail.opened[-1].argument for rail in rails] == ["argument"] * 3
        with pytest.raises(Error) as caught:
            CacheSet(caches).acquire(bytearray(8192), policy=policy)
        assert caught.value.__cause__ is rails[0].refuse
    with pytest.raises(Error) as caught:
        CacheSet(caches).acquire(bytearray(8192), members=[2, 1])
    assert caught.value.__cause__ is rails[1].refuse, "it was raised on a thread of the library"


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), SystemExit(3)])
def test_interrupt_ends_the_call(ends: BaseException, rails: list[RecordingRegistrar], caches: list[Cache]) -> None:
    rails[2].refuse = ends
    for required in (0, 1):
        for policy in (SetPolicy.ALL, SetPolicy.FIXED_ORDER):
            with pytest.raises(type(ends)) as caught:
                CacheSet(caches).acquire(bytearray(8192), policy=policy, required=required)
            assert caught.value is ends
            assert leases(caches) == [0, 0, 0]
    rails[0].refuse = KeyError("the first failure")
    with pytest.raises(type(ends)):
        CacheSet(caches).acquire(bytearray(8192))


def test_near_first_and_late(rails: list[RecordingRegistrar], caches: list[Cache]) -> None:
    memory = bytearray(8192)
    every = CacheSet(caches, distances=[20, 10, 30])
    with every.acquire(memory, policy=SetPolicy.NEAR_FIRST) as got:
        assert opens(rails) == [0, 1, 0] and got.pending == 2
        assert got.at(2).registration == ("registration", 1)
        assert got.at(2) is got[2] and opens(rails) == [0, 1, 1]
        every.invalidate(*pinfold.range_of(memory))
        with pytest.raises(Error) as caught:
            got.at(0)
        assert caught.value.code is Code.STALE_HANDLE
    assert leases(caches) == [0, 0, 0]
    with every.acquire(memory, policy=SetPolicy.NEAR_FIRST, distances=[0, 9, 9]) as got:
        assert got[0] is not None


def test_late_lease_needs_another_one_to_compare_with(rails: list[RecordingRegistrar], caches: list[Cache]) -> None:
    every = CacheSet(caches, distances=[0, 1, 2])
    for release_one in (True, False):
        got = every.acquire(bytearray(8192), policy=SetPolicy.NEAR_FIRST)
        before = opens(rails)
        first = got[0]
        assert first is not None
        first.release() if release_one else got.release()
        with pytest.raises(ValueError):
            got.at(1)
        assert opens(rails) == before
        got.release()


def test_members_in_a_fixed_order(rails: list[RecordingRegistrar], caches: list[Cache]) -> None:
    with CacheSet(caches).acquire(bytearray(100), members=[2, 0], policy=SetPolicy.FIXED_ORDER) as got:
        assert [member for member, _ in got.registrations] == [2, 0]
    assert opens(rails) == [1, 0, 1]


def test_bad_input(caches: list[Cache]) -> None:
    for named in ({"required": 4}, {"policy": 9}, {"members": []}):
        with pytest.raises(Error) as caught:
            CacheSet(caches).acquire(bytearray(100), **named)  # type: ignore[arg-type]
        assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(IndexError):
        CacheSet(caches).acquire(bytearray(100), members=[3])
    with pytest.raises(ValueError):
        CacheSet(caches, [1])


def test_a_closed_cache(caches: list[Cache]) -> None:
    every = CacheSet(caches)
    caches[1].close()
    with pytest.raises(Error) as caught:
        every.acquire(bytearray(100))
    assert caught.value.code is Code.CLOSED
    assert leases([caches[0], caches[2]]) == [0, 0]


def test_threads_ask_for_late_members_at_the_same_time(caches: list[Cache]) -> None:
    every = CacheSet(caches, distances=[0, 1, 2])
    for _ in range(50):
        found: list[object] = []
        with every.acquire(bytearray(4096), policy=SetPolicy.NEAR_FIRST) as got:
            threads = [threading.Thread(target=lambda i=i: found.append(got.at(i % 3))) for i in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == 6 and len(set(map(id, found))) == 3
    assert leases(caches) == [0, 0, 0]


def test_a_withdrawn_key_is_not_current() -> None:
    keys = RemoteKeys(4)
    token = keys.issue(0x1000, 64, 77)
    peer = RemoteKey.decode(token.encode())
    assert peer == token and peer.is_current(keys.words)
    assert keys.memory[1] == 32
    keys.withdraw(token)
    assert not peer.is_current(keys.words)
    with pytest.raises(Error) as caught:
        keys.withdraw(token)
    assert caught.value.code is Code.STALE_HANDLE
    damaged = bytearray(token.encode())
    damaged[9] ^= 1
    with pytest.raises(Error) as caught:
        RemoteKey.decode(bytes(damaged))
    assert caught.value.code is Code.INVALID_HANDLE
