# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C at each line that makes or ends what threads of the library use meanwhile."""

from typing import Any, Callable

import pytest

from pinfold import Cache, CacheSet

INTERRUPTED = """
import gc, itertools, sys, time, pinfold
sys.path.insert(0, sys.argv[1])
from doubles import RecordingRegistrar

gc.disable()  # a finalizer that it calls would lose the interrupt

def interrupted(work, line):
    left = line

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename == __file__ or frame.f_code.co_name == "_call":
            return None  # between the lines of `_call`, the call would stay counted
        left -= 1
        if left < 0:
            raise KeyboardInterrupt  # as a handler of Ctrl-C does
        return trace

    made = None  # until it is no longer traced
    sys.settrace(trace)
    try:
        made = work()
    except KeyboardInterrupt:
        pass
    sys.settrace(None)
    return left < 0
"""

THREADS_USE_IT = """
class Slow(RecordingRegistrar):
    def open(self, request):
        time.sleep(0.001)
        return super().open(request)

def make():
    return cache.{make}(bytearray(1 << 18), {how}, argument=object())

cache = pinfold.Cache(Slow(), pinfold.Options(monitor=pinfold.Monitor.MANUAL))
make().{end}()  # what is done once
for line in itertools.count():
    if not interrupted(make, line):
        break
    cache.flush()
cache.close()
print("made", flush=True)
cache = pinfold.Cache(Slow(), pinfold.Options(monitor=pinfold.Monitor.MANUAL))
for line in itertools.count():
    made = make()
    if not interrupted(made.{end}, line):
        break
    del made
    time.sleep(0.01)  # for the threads
    cache.flush()
print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("make", "how", "end"),
    [
        ("acquire_chunks", "chunk_bytes=1 << 14, workers=2", "close"),
        ("register_in_background", "piece_bytes=1 << 14, workers=2, progress=lambda done, total: None", "release"),
    ],
)
def test_interrupt_leaves_alive_what_threads_use(
    run: Callable[..., str], request: Any, make: str, how: str, end: str
) -> None:
    program = INTERRUPTED + THREADS_USE_IT.format(make=make, how=how, end=end)
    assert run(program, str(request.path.parent)).split() == ["made", "ended"]


def test_interrupted_cache_has_its_registrar_until_its_end(run: Callable[..., str], request: Any) -> None:
    program = """
def make():
    return pinfold.Cache(RecordingRegistrar(), pinfold.Options(monitor=pinfold.Monitor.MANUAL))

make().close()  # what is done once
for line in itertools.count():
    if not interrupted(make, line):
        break
print("made")
"""
    assert run(INTERRUPTED + program, str(request.path.parent)).split() == ["made"]


class Interrupted(list[int]):
    """Ctrl-C just after a thread was added, where the interpreter looks for signals."""

    def append(self, thread: int) -> None:
        super().append(thread)
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "call",
    [
        lambda cache: cache.flush(),
        lambda cache: cache.acquire(bytearray(1)),
        lambda cache: CacheSet([cache, cache]).acquire(bytearray(1)),
    ],
    ids=["call", "acquire", "set"],
)
def test_interrupted_call_is_not_counted(cache: Cache, call: Callable[[Cache], object]) -> None:
    cache._state.calls = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        call(cache)
    assert not cache._state.calls
    cache._state.calls = []
