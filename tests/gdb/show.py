# SPDX-License-Identifier: BSD-3-Clause
"""In gdb: writes what the script reads as JSON to the file that the environment names."""

import json
import os

from pinfold_gdb import target


def shown(walk, cache):
    entries = sorted(walk.entries(cache), key=lambda one: (one.peer or 0, one.begin))
    rows = [(e.peer or 0, e.begin, e.end, e.bytes, e.state, e.leases, e.hits, e.owner) for e in entries]
    return {
        "name": cache.name,
        "complete": cache.complete,
        "ended": cache.facts.ended,
        "opens": cache.counters["opens"],
        "hits": cache.counters["hits"],
        "bytes": cache.bytes,
        "entries": rows,
        "flags": {e.begin: sorted(e.flags) for e in entries},
    }


caches = [shown(walk, cache) for walk in target.walks() for cache in walk.caches()]
with open(os.environ["PINFOLD_SHOWN"], "w", encoding="ascii") as out:
    json.dump({"caches": caches, "threads": sorted(target.threads()), "core": target.is_core()}, out)
