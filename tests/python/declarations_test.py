# SPDX-License-Identifier: BSD-3-Clause
"""Holds the package against the headers: what is added there must reach Python."""

import dataclasses
import pathlib
import re

import pinfold
from pinfold._library import ffi, lib

# What Python has other means for.
WITHOUT_A_PLACE = {
    "pinfold_detach",  # Python has a place for the lease
    "pinfold_release_registration",
    "pinfold_release_batch",
    "pinfold_memfd_retire",  # Python waits in slices, so that signals are handled meanwhile
    "pinfold_close_idle_in_process",  # for code that calls the CUDA driver itself
    "pinfold_error_name",  # Code
    "pinfold_event_name",  # EventKind
}
BOOLEANS_IN_PYTHON = {"PERSISTENT", "BYPASS", "FILE", "DUMP_CHAIN"}
PREFIXES = {
    "BOUND_": pinfold.Bound,
    "E_": pinfold.Code,
    "NATIVE_": pinfold.NativeKind,
    "MONITOR_": pinfold.Monitor,
    "FULL_": pinfold.Full,
    "MERGE_": pinfold.Merge,
    "EVENT_": pinfold.EventKind,
    "ORDER_": pinfold.Order,
    "PREFAULT_": pinfold.Prefault,
    "CANCEL_": pinfold.CancelPolicy,
    "RELEASE_": pinfold.ReleaseAnswer,
    "RETIRE_": pinfold.RetireState,
    "SET_": pinfold.SetPolicy,
}


def names(prefix: str) -> set[str]:
    return {name for name in dir(lib) if name.startswith(prefix)}


def fields(structure: str) -> set[str]:
    return {name for name, _ in ffi.typeof(structure).fields} - {"size"}


def test_every_function_is_called() -> None:
    package = pathlib.Path(pinfold.__file__).parent
    sources = "".join(path.read_text() for path in package.glob("*.py") if path.name != "_declarations.py")
    assert names("pinfold_") - set(re.findall(r"\.(pinfold_\w+)", sources)) == WITHOUT_A_PLACE


def test_every_number_has_a_name_in_an_enumeration() -> None:
    missing = set()
    for name in names("PINFOLD_"):
        short = name.removeprefix("PINFOLD_")
        if short.endswith("_BYTES"):
            continue
        kind = next((kind for prefix, kind in PREFIXES.items() if short.startswith(prefix)), None)
        if kind is not None:
            member = short.split("_", 1)[1]
            assert kind[member] == getattr(lib, name), name
        elif (
            not re.match("API_|MEMFD_|CUDA_|VERBS_|REMOTE_KEY_", short)
            and short not in BOOLEANS_IN_PYTHON
            and short != "OK"
        ):
            found = [
                kind[short] for kind in (pinfold.Access, pinfold.Flag, pinfold.Severity) if short in kind.__members__
            ]
            if found != [getattr(lib, name)]:
                missing.add(name)
    assert missing == set()


def test_every_option_can_be_set() -> None:
    ours = {field.name for field in dataclasses.fields(pinfold.Options)} - {"text", "environment"}
    assert ours == fields("pinfold_options") - {"sink_self", "sink_finished", "reserved"}


def test_every_member_of_events_and_entries_is_there() -> None:
    def in_c(kind: type) -> set[str]:
        return {field.name.replace("nbytes", "bytes") for field in dataclasses.fields(kind)}

    assert in_c(pinfold.Event) == fields("pinfold_event")
    assert in_c(pinfold.Entry) == fields("pinfold_entry")


def test_lease_is_two_words_by_value() -> None:
    assert ffi.sizeof("pinfold_lease") == 2 * ffi.sizeof("void *")
    made = ffi.new("pinfold_cache **")
    assert lib.pinfold_create_mlock(ffi.NULL, made) == 0
    memory = bytearray(10_000)
    buffer = ffi.from_buffer(memory)
    leases = [lib.pinfold_acquire(made[0], buffer + 100 * i, 100, 1) for i in range(64)]
    assert [int(ffi.cast("uintptr_t", lease.data)) for lease in leases] == [
        int(ffi.cast("uintptr_t", buffer)) + 100 * i for i in range(64)
    ]
    assert all(lib.pinfold_release(lease) == 0 for lease in leases)
    counters = ffi.new("pinfold_statistics *", {"size": ffi.sizeof("pinfold_statistics")})
    assert lib.pinfold_statistics_of(made[0], counters) == 0
    assert (counters.acquires, counters.leases_now) == (64, 0)
    assert lib.pinfold_release(ffi.new("pinfold_lease *")[0]) == 0, "an empty lease"
    assert lib.pinfold_destroy(made[0]) == 0
