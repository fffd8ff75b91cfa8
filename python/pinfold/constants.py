# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of the C interface, as enumerations. pinfold.h explains each."""

from __future__ import annotations

import enum

from pinfold._library import ffi, lib

UNLIMITED: int = int(ffi.cast("size_t", -1))
"""No limit, for `Options.max_bytes` and `max_count`."""

MEMFD_HANDLE_BYTES: int = lib.PINFOLD_MEMFD_HANDLE_BYTES
CUDA_HANDLE_BYTES: int = lib.PINFOLD_CUDA_HANDLE_BYTES
RELEASE_MESSAGE_BYTES: int = lib.PINFOLD_RELEASE_MESSAGE_BYTES


class _Extensible(enum.IntEnum):
    """Keeps numbers that a later version of the library may return."""

    @classmethod
    def _missing_(cls, value: object) -> _Extensible | None:
        if not isinstance(value, int):
            return None
        unknown = int.__new__(cls, value)
        unknown._name_ = f"UNKNOWN_{value}"
        unknown._value_ = value
        return unknown


class Code(_Extensible):
    """The code of an error."""

    INVALID_RANGE = lib.PINFOLD_E_INVALID_RANGE
    INVALID_HANDLE = lib.PINFOLD_E_INVALID_HANDLE
    INVALID_ARGUMENT = lib.PINFOLD_E_INVALID_ARGUMENT
    TOO_LARGE = lib.PINFOLD_E_TOO_LARGE
    NOT_PERMITTED = lib.PINFOLD_E_NOT_PERMITTED
    OVER_BUDGET = lib.PINFOLD_E_OVER_BUDGET
    LARGER_THAN_BUDGET = lib.PINFOLD_E_LARGER_THAN_BUDGET
    OUT_OF_RESOURCES = lib.PINFOLD_E_OUT_OF_RESOURCES
    IN_USE_CONFLICT = lib.PINFOLD_E_IN_USE_CONFLICT
    ALREADY_MAPPED = lib.PINFOLD_E_ALREADY_MAPPED
    STALE_HANDLE = lib.PINFOLD_E_STALE_HANDLE
    PEER_GONE = lib.PINFOLD_E_PEER_GONE
    UNSUPPORTED = lib.PINFOLD_E_UNSUPPORTED
    TIMED_OUT = lib.PINFOLD_E_TIMED_OUT
    DRIVER_ERROR = lib.PINFOLD_E_DRIVER_ERROR
    CLOSED = lib.PINFOLD_E_CLOSED


class NativeKind(_Extensible):
    """The origin of a native code."""

    NONE = lib.PINFOLD_NATIVE_NONE
    POSIX = lib.PINFOLD_NATIVE_POSIX
    CUDA = lib.PINFOLD_NATIVE_CUDA
    LIBFABRIC = lib.PINFOLD_NATIVE_LIBFABRIC


class Access(enum.IntFlag):
    """The access to registered memory."""

    LOCAL_READ = lib.PINFOLD_LOCAL_READ
    LOCAL_WRITE = lib.PINFOLD_LOCAL_WRITE
    REMOTE_READ = lib.PINFOLD_REMOTE_READ
    REMOTE_WRITE = lib.PINFOLD_REMOTE_WRITE
    REMOTE_ATOMIC = lib.PINFOLD_REMOTE_ATOMIC


class Monitor(enum.IntFlag):
    """Monitors that notify a cache when memory of this process is freed, unmapped or replaced."""

    AUTOMATIC = lib.PINFOLD_MONITOR_AUTOMATIC
    MANUAL = lib.PINFOLD_MONITOR_MANUAL
    HOOKS = lib.PINFOLD_MONITOR_HOOKS
    USERFAULTFD = lib.PINFOLD_MONITOR_USERFAULTFD
    BPF = lib.PINFOLD_MONITOR_BPF
    NONE = lib.PINFOLD_MONITOR_NONE


class Full(enum.IntEnum):
    """What an acquire does if the budget is used up and no entry is idle."""

    FAIL = lib.PINFOLD_FULL_FAIL
    WAIT = lib.PINFOLD_FULL_WAIT
    BYPASS = lib.PINFOLD_FULL_BYPASS


class Merge(enum.IntEnum):
    """The extent of the registration for a request that overlaps registrations."""

    NONE = lib.PINFOLD_MERGE_NONE
    RIGHTS = lib.PINFOLD_MERGE_RIGHTS
    OVERLAPS = lib.PINFOLD_MERGE_OVERLAPS


class Order(enum.IntEnum):
    """The order in which several buffers are registered in the background."""

    AS_GIVEN = lib.PINFOLD_ORDER_AS_GIVEN
    LARGEST_FIRST = lib.PINFOLD_ORDER_LARGEST_FIRST


class Prefault(enum.IntEnum):
    """The thread that makes the pages of a piece present."""

    NONE = lib.PINFOLD_PREFAULT_NONE
    PAGES = lib.PINFOLD_PREFAULT_PAGES
    HUGE_PAGES = lib.PINFOLD_PREFAULT_HUGE_PAGES


class CancelPolicy(enum.IntEnum):
    """What a cancelled background registration does with its registered part."""

    KEEP = lib.PINFOLD_CANCEL_KEEP
    GIVE_BACK = lib.PINFOLD_CANCEL_GIVE_BACK


class SetPolicy(enum.IntEnum):
    """The order in which the caches of a set are tried."""

    ALL = lib.PINFOLD_SET_ALL
    NEAR_FIRST = lib.PINFOLD_SET_NEAR_FIRST
    FIXED_ORDER = lib.PINFOLD_SET_FIXED_ORDER


class RetireState(_Extensible):
    """The state of retired memory."""

    ASKING = lib.PINFOLD_RETIRE_ASKING
    LIMBO = lib.PINFOLD_RETIRE_LIMBO
    FREED = lib.PINFOLD_RETIRE_FREED
    OVER_BUDGET = lib.PINFOLD_RETIRE_OVER_BUDGET
    ABANDONED = lib.PINFOLD_RETIRE_ABANDONED


class ReleaseAnswer(_Extensible):
    """The answer of an importer to the request to let memory go."""

    SILENT = lib.PINFOLD_RELEASE_SILENT
    LEASED = lib.PINFOLD_RELEASE_LEASED


class Flag(enum.IntFlag):
    """Flags of a cache."""

    NO_RETAIN = lib.PINFOLD_NO_RETAIN
    STRICT = lib.PINFOLD_STRICT
    ALLOCATOR_HINTS = lib.PINFOLD_ALLOCATOR_HINTS
    PROGRAM_DATA = lib.PINFOLD_PROGRAM_DATA
    DEFERRED_CLOSES = lib.PINFOLD_DEFERRED_CLOSES
    REAPER = lib.PINFOLD_REAPER
    ENTRY_STATISTICS = lib.PINFOLD_ENTRY_STATISTICS
    STATISTICS_AT_EXIT = lib.PINFOLD_STATISTICS_AT_EXIT
    TRACE_REQUESTS = lib.PINFOLD_TRACE_REQUESTS
    SERIAL = lib.PINFOLD_SERIAL
    PUBLISH_STATISTICS = lib.PINFOLD_PUBLISH_STATISTICS


class EventKind(_Extensible):
    """The kind of an event."""

    EVICTED = lib.PINFOLD_EVENT_EVICTED
    REPLACED = lib.PINFOLD_EVENT_REPLACED
    CONFLICT = lib.PINFOLD_EVENT_CONFLICT
    INVALIDATED_WHILE_LEASED = lib.PINFOLD_EVENT_INVALIDATED_WHILE_LEASED
    CLOSE_FAILED = lib.PINFOLD_EVENT_CLOSE_FAILED
    LEASES_OUTLIVE_CACHE = lib.PINFOLD_EVENT_LEASES_OUTLIVE_CACHE
    STATISTICS = lib.PINFOLD_EVENT_STATISTICS
    AUDIT_FAILED = lib.PINFOLD_EVENT_AUDIT_FAILED
    CLOSES_OUTLIVE_CACHE = lib.PINFOLD_EVENT_CLOSES_OUTLIVE_CACHE
    REQUESTED = lib.PINFOLD_EVENT_REQUESTED
    NOT_KEPT = lib.PINFOLD_EVENT_NOT_KEPT
    MONITOR_DEGRADED = lib.PINFOLD_EVENT_MONITOR_DEGRADED
    WAITS_FOR_NODE_BUDGET = lib.PINFOLD_EVENT_WAITS_FOR_NODE_BUDGET
    REFUSED_BY_NODE_BUDGET = lib.PINFOLD_EVENT_REFUSED_BY_NODE_BUDGET


class Severity(_Extensible):
    """The severity of an event."""

    DEBUG = lib.PINFOLD_DEBUG
    INFO = lib.PINFOLD_INFO
    WARNING = lib.PINFOLD_WARNING
    FAILURE = lib.PINFOLD_FAILURE


class Bound(_Extensible):
    """The limit that binds a process: of the account, RLIMIT_MEMLOCK, or the cgroup's memory.max."""

    ACCOUNT = lib.PINFOLD_BOUND_ACCOUNT
    MEMLOCK = lib.PINFOLD_BOUND_MEMLOCK
    CGROUP = lib.PINFOLD_BOUND_CGROUP
