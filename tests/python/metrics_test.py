# SPDX-License-Identifier: BSD-3-Clause
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pinfold
from pinfold import Cache, Error

PROGRAM = """
import time
import pinfold
from doubles import RecordingRegistrar

cache = pinfold.Cache(RecordingRegistrar(), pinfold.Options(name="from Python", monitor=pinfold.Monitor.MANUAL))
memory = bytearray(8192)
for _ in range(3):
    cache.acquire(memory).release()
text = ""
for _ in range(1200):
    text = pinfold.open_metrics()
    if "pinfold_hits_total{" in text and text.split("pinfold_hits_total{")[1].split("\\n")[0].endswith("} 2"):
        break
    time.sleep(0.05)
print(text, end="")
"""


def test_open_metrics_has_the_counters_of_this_process(tmp_path: Path) -> None:
    settings = {**os.environ, "PINFOLD_STATS": "on", "PINFOLD_STATS_DIR": str(tmp_path)}
    settings["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), settings.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    hits = [line for line in done.stdout.splitlines() if line.startswith("pinfold_hits_total{")]
    assert len(hits) == 1 and hits[0].endswith("} 2") and 'cache="from Python"' in hits[0]
    assert done.stdout.endswith("\n# EOF\n")


def test_open_metrics_says_that_no_cache_publishes(cache: Cache) -> None:
    if os.environ.get("PINFOLD_STATS") == "on":
        pytest.skip("PINFOLD_STATS=on")
    with pytest.raises(Error) as caught:
        pinfold.open_metrics()
    assert caught.value.native == errno.ENOENT
