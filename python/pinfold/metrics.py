# SPDX-License-Identifier: BSD-3-Clause
"""This process's statistics for Prometheus."""

from __future__ import annotations

from pinfold._library import lib, text_of
from pinfold.errors import last_failure


def open_metrics() -> str:
    """Returns the published statistics of this process's caches (`PINFOLD_STATS=on` in the environment) as OpenMetrics
    1.0, at most about 0.1 s old. `docs/operate/metrics.md` lists the names. Any thread. Raises the library's error for
    ENOENT if no cache publishes its statistics."""
    text = text_of(lib.pinfold_open_metrics)
    if not text:
        raise last_failure()
    return text
