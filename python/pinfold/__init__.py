# SPDX-License-Identifier: BSD-3-Clause
"""pinfold: a registration cache that never hands out a stale registration.

`Cache` registers this process's memory once for a device, `ImportCache` opens other processes' memory once; both hand out
leases. `share` and `open` pass tensors between processes. docs/use/python.md is the guide.
"""

from pinfold._cache import Entry
from pinfold._library import __version__
from pinfold._memory import range_of
from pinfold.background import Background, BackgroundProgress
from pinfold.batch import Batch
from pinfold.cache import Cache, announce_gone, dump_on_signal
from pinfold.carried import ReleaseId, ReleaseListener, ReleaseRegistry
from pinfold.cache_set import CacheSet, SetLease
from pinfold.chunks import Chunks
from pinfold.constants import (
    CUDA_HANDLE_BYTES,
    MEMFD_HANDLE_BYTES,
    RELEASE_MESSAGE_BYTES,
    UNLIMITED,
    Access,
    CancelPolicy,
    Bound,
    Code,
    EventKind,
    Flag,
    Full,
    Merge,
    Monitor,
    NativeKind,
    Order,
    SetPolicy,
    Prefault,
    ReleaseAnswer,
    RetireState,
    Severity,
)
from pinfold.dtype import DType
from pinfold.errors import Error
from pinfold.events import Event, Sink
from pinfold.exporters import CudaExporter, MemfdBuffer, MemfdExporter, announce_cuda_free
from pinfold.handle import Handle
from pinfold.import_cache import ImportCache, ImportLease, Place
from pinfold.importer import Imported, Importer
from pinfold.large import LargeLease, Part
from pinfold.lease import Lease
from pinfold.metrics import open_metrics
from pinfold.node_budget import Member, NodeBudget
from pinfold.options import Options
from pinfold.registrar import OpenRequest, Registrar
from pinfold.release import ReleaseHolder, RetireReport, Retirement
from pinfold.restoration import Restoration, RestoreProgress
from pinfold.remote_keys import RemoteKey, RemoteKeys
from pinfold.segmented_lease import Segment, SegmentedLease
from pinfold.segments import MemfdSegments, Window
from pinfold.sharing import memfd_array, open, share
from pinfold.tensor import Tensor

__all__ = [
    "Access",
    "Background",
    "BackgroundProgress",
    "Batch",
    "Bound",
    "CUDA_HANDLE_BYTES",
    "Cache",
    "CancelPolicy",
    "CacheSet",
    "Chunks",
    "Code",
    "CudaExporter",
    "DType",
    "Entry",
    "Error",
    "Event",
    "EventKind",
    "Flag",
    "Full",
    "Handle",
    "ImportCache",
    "ImportLease",
    "Imported",
    "Importer",
    "LargeLease",
    "Lease",
    "MEMFD_HANDLE_BYTES",
    "Member",
    "MemfdBuffer",
    "MemfdExporter",
    "MemfdSegments",
    "Merge",
    "Monitor",
    "NativeKind",
    "NodeBudget",
    "OpenRequest",
    "Options",
    "Order",
    "Prefault",
    "Part",
    "Place",
    "RELEASE_MESSAGE_BYTES",
    "Registrar",
    "ReleaseAnswer",
    "ReleaseHolder",
    "ReleaseId",
    "ReleaseListener",
    "ReleaseRegistry",
    "RemoteKey",
    "RemoteKeys",
    "Restoration",
    "RestoreProgress",
    "RetireReport",
    "RetireState",
    "Retirement",
    "Segment",
    "SegmentedLease",
    "SetLease",
    "SetPolicy",
    "Severity",
    "Sink",
    "Tensor",
    "UNLIMITED",
    "Window",
    "__version__",
    "announce_cuda_free",
    "announce_gone",
    "dump_on_signal",
    "memfd_array",
    "open",
    "open_metrics",
    "range_of",
    "share",
]
