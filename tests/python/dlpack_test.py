# SPDX-License-Identifier: BSD-3-Clause
import ctypes
import gc
import threading
from typing import Any, Iterator

import numpy
import pytest

import pinfold
from pinfold import DType, ImportCache, MemfdExporter, Tensor, dlpack
from pinfold._library import ffi, lib


@pytest.fixture
def peers() -> Iterator[ImportCache]:
    with ImportCache.memfd(writable=True) as made:
        yield made
        dlpack.sweep()
        gc.collect()
        assert made.statistics()["leases_now"] == 0 and not dlpack._exports


@pytest.fixture
def array() -> Any:
    made = MemfdExporter(peers_write=True).array((4, 6), "f4")
    made[:] = numpy.arange(24).reshape(4, 6)
    return made


def is_valid(capsule: Any, name: bytes) -> bool:
    return bool(dlpack._is_valid(capsule, name))


def test_numpy_takes_the_tensor(peers: ImportCache, array: Any) -> None:
    for part in (array, array[:, ::2], array[1:, 3], array[2:3].T, array[1, :1].reshape(())):
        with pinfold.open(pinfold.share(part), cache=peers) as tensor:
            taken = numpy.from_dlpack(tensor)
            assert taken.dtype == part.dtype and taken.shape == part.shape
            assert (taken == part).all()
            assert taken.__array_interface__["data"][0] == tensor.lease.address


def test_consumer_keeps_the_memory(peers: ImportCache, array: Any) -> None:
    with pinfold.open(pinfold.share(array), cache=peers) as tensor:
        taken = numpy.from_dlpack(tensor)
        again = numpy.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert peers.statistics()["leases_now"] == 1
    with pytest.raises(BufferError, match="views of imported memory"):
        peers.close()
    array[0, 0] = 99
    assert taken[0, 0] == 99 and again[0, 0] == 99
    del taken
    assert peers.statistics()["leases_now"] == 1
    del again
    assert peers.statistics()["leases_now"] == 0


def test_capsule_that_is_not_taken_is_let_go(peers: ImportCache, array: Any) -> None:
    with pinfold.open(pinfold.share(array), cache=peers) as tensor:
        capsules = [tensor.__dlpack__() for _ in range(3)]
        assert all(is_valid(capsule, b"dltensor") for capsule in capsules)
        assert len(dlpack._exports) == 3
        del capsules
    assert not dlpack._exports and peers.statistics()["leases_now"] == 0


def test_failure_of_a_consumer_keeps_its_exception(peers: ImportCache) -> None:
    """Also where the consumer drops the capsule while its exception is on its way."""
    buffer = MemfdExporter(peers_write=True).allocate(4096)
    with peers.acquire(1, buffer.handle, buffer.address, 100) as lease:
        with Tensor(lease.share(), DType(lib.kDLBfloat, 16), (50,), (2,)) as bfloat:
            with pytest.raises(RuntimeError, match="dtype"):
                numpy.from_dlpack(bfloat)
            with pytest.raises(ZeroDivisionError):
                [bfloat.__dlpack__(), 1 // 0]


def test_consumer_may_delete_on_any_thread(peers: ImportCache, array: Any) -> None:
    with pinfold.open(pinfold.share(array), cache=peers) as tensor:
        taken = [numpy.from_dlpack(tensor) for _ in range(20)]
    threads = [threading.Thread(target=taken.pop) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert peers.statistics()["leases_now"] == 0


def test_read_only_memory_needs_a_consumer_that_knows_of_it() -> None:
    array = pinfold.memfd_array(10)
    with ImportCache.memfd() as peers, pinfold.open(pinfold.share(array), cache=peers) as tensor:
        with pytest.raises(BufferError, match="DLPack 1.0"):
            numpy.from_dlpack(tensor)
        capsule = tensor.__dlpack__(max_version=(1, 0))
        managed = managed_of(capsule)
        assert managed.flags & lib.DLPACK_FLAG_BITMASK_READ_ONLY
        take(capsule, managed)


def test_versioned_capsule(peers: ImportCache, array: Any) -> None:
    with pinfold.open(pinfold.share(array), cache=peers) as tensor:
        capsule: Any = tensor.__dlpack__(max_version=(1, 2), dl_device=(1, 0), copy=False)
        managed = managed_of(capsule)
        assert (managed.major, managed.minor, managed.flags) == (1, 0, 0)
        c = managed.dl_tensor
        assert (c.device.device_type, c.device.device_id, c.ndim, c.byte_offset) == (1, 0, 2, 0)
        assert (c.dtype.code, c.dtype.bits, c.dtype.lanes) == (lib.kDLFloat, 32, 1)
        assert list(c.shape[0:2]) == [4, 6] and list(c.strides[0:2]) == [6, 1]
        assert int(ffi.cast("uintptr_t", c.data)) == tensor.lease.address
        take(capsule, managed)


def managed_of(capsule: Any) -> Any:
    return ffi.cast("DLManagedTensorVersioned *", dlpack._pointer(capsule, b"dltensor_versioned"))


def take(capsule: Any, managed: Any) -> None:
    """Takes the tensor as a consumer does, and deletes it."""
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b"used_dltensor_versioned")
    dlpack.sweep()
    assert len(dlpack._exports) == 1, "what a consumer has taken is not let go"
    managed.deleter(managed)


def test_requests_that_cannot_be_met(peers: ImportCache, array: Any) -> None:
    with pinfold.open(pinfold.share(array), cache=peers) as tensor:
        assert tensor.__dlpack_device__() == (1, 0)
        for wrong, error in (
            ({"stream": 1}, ValueError),
            ({"copy": True}, BufferError),
            ({"dl_device": (2, 0)}, BufferError),
        ):
            with pytest.raises(error):
                tensor.__dlpack__(**wrong)  # type: ignore[arg-type]
        assert not hasattr(tensor, "__cuda_array_interface__")
        odd = Tensor(tensor.lease.share(), DType(lib.kDLFloat, 32), (3,), (6,))
        with odd, pytest.raises(BufferError, match="elements"):
            odd.__dlpack__()


def test_released_tensor_has_no_capsule(peers: ImportCache, array: Any) -> None:
    tensor = pinfold.open(pinfold.share(array), cache=peers)
    tensor.release()
    with pytest.raises(ValueError, match="was released"):
        tensor.__dlpack__()
