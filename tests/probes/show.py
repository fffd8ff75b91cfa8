# SPDX-License-Identifier: BSD-3-Clause
"""For gdb: prints a line of JSON for each probe that the program passes."""

import json

import gdb

TEXTS = {"miss": [0], "open": [0], "close": [0], "evict": [0], "invalidate": [0], "stale": [0], "quarantine": [0]}
TEXTS |= {"monitor": [0, 1], "gone": []}


class Probe(gdb.Breakpoint):
    """A probe, attached as bpftrace does it: gdb also sets the semaphore."""

    def __init__(self, name: str) -> None:
        super().__init__(f"-probe-stap pinfold:{name}")
        self.silent = True
        self.probe = name

    def stop(self) -> bool:
        count = int(gdb.parse_and_eval("$_probe_argc"))
        seen = []
        for number in range(count):
            value = gdb.parse_and_eval(f"$_probe_arg{number}")
            if number in TEXTS[self.probe]:
                seen.append(value.cast(gdb.lookup_type("char").pointer()).string())
            else:
                seen.append(int(value))
        print("probe " + json.dumps([self.probe, *seen]), flush=True)
        return False


for each in TEXTS:
    Probe(each)
