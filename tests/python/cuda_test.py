# SPDX-License-Identifier: BSD-3-Clause
"""GPU memory between two processes. Over the emulated driver, unless there is a GPU and PINFOLD_CUDA_LIBRARY is unset."""

import gc
import multiprocessing
import os
import random
from typing import Any, Callable, Iterator

import pytest

import pinfold
from cuda import SEGMENT, Array, Dlpack, Driver
from pinfold import Code, CudaExporter, DType, Error, Handle, Place, dlpack
from pinfold._library import lib

spawn = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def driver() -> Driver:
    try:
        return Driver()
    except OSError as reason:
        pytest.skip(f"no CUDA driver: {reason}")


@pytest.fixture(scope="module")
def peer() -> Iterator[Any]:
    with spawn.Pool(1) as pool:
        yield lambda function, *given: pool.apply(function, given)


def open_and_read(handle: Handle) -> tuple[bytes, dict[str, Any], tuple[int, int], tuple[Any, ...]]:
    """In the peer."""
    driver = Driver()
    with pinfold.open(handle) as tensor:
        interface = tensor.__cuda_array_interface__
        address, *described = dlpack.description_of(tensor)
        assert interface["data"] == (tensor.lease.address, False) == (address, False)
        with pytest.raises(BufferError):
            tensor.memory
        return driver.read(address, handle.nbytes), interface, tensor.__dlpack_device__(), tuple(described)


def test_tensor_of_another_process_is_read(driver: Driver, peer: Callable[..., Any]) -> None:
    data = random.randbytes(1 << 20)
    address = driver.allocate(data)
    handle = pinfold.share(Array(address + 4096, (16, 8), "<f4"))
    assert handle.place is Place.CUDA and handle.nbytes == 512
    read, interface, device, described = peer(open_and_read, handle)
    assert read == data[4096 : 4096 + 512]
    assert (interface["shape"], interface["typestr"], interface["strides"]) == ((16, 8), "<f4", None)
    assert device == (dlpack.CUDA, 0)
    assert described == (DType(lib.kDLFloat, 32), (16, 8), (32, 4))
    driver.free(address)


def test_strided_tensor(driver: Driver, peer: Callable[..., Any]) -> None:
    data = random.randbytes(4096)
    address = driver.allocate(data)
    handle = pinfold.share(Array(address, (4, 2), "|u1", (1000, 3)))
    read, interface, _, described = peer(open_and_read, handle)
    assert read == data[:3004] and interface["strides"] == (1000, 3)
    assert described == (DType(lib.kDLUInt, 8), (4, 2), (1000, 3))
    driver.free(address)


def open_bfloat(handle: Handle) -> tuple[bytes, bool, tuple[Any, ...]]:
    """In the peer."""
    with pinfold.open(handle) as tensor:
        address, *described = dlpack.description_of(tensor)
        return Driver().read(address, handle.nbytes), hasattr(tensor, "__cuda_array_interface__"), tuple(described)


def test_types_without_a_name_travel_by_dlpack(driver: Driver, peer: Callable[..., Any]) -> None:
    data = random.randbytes(2000)
    address = driver.allocate(data)
    bfloat16 = DType(lib.kDLBfloat, 16)
    tensor = Dlpack(address, bfloat16, (10, 100), (100, 1))
    read, has_interface, described = peer(open_bfloat, pinfold.share(tensor))
    assert tensor.streams == [-1], "the exporter waits for no stream"
    assert read == data and not has_interface and described == (bfloat16, (10, 100), (200, 2))
    driver.free(address)
    dlpack.sweep()


def open_twice(first: Handle, second: Handle) -> tuple[int, int, bool]:
    """In the peer. Arrays that were made through the array interface keep the tensor, and it the memory."""
    array = pinfold.open(first)
    peers = array.lease.cache
    opens = peers.statistics()["opens"]
    array.__cuda_array_interface__
    array.release()
    with pinfold.open(second):
        leases = peers.statistics()["leases_now"]
    with pytest.raises(BufferError):
        peers.close()
    del array
    gc.collect()
    return leases, peers.statistics()["opens"] - opens, peers.statistics()["leases_now"] == 0


def test_allocation_is_opened_once_for_all_its_tensors(driver: Driver, peer: Callable[..., Any]) -> None:
    address = driver.allocate(bytes(1 << 16))
    first, second = (pinfold.share(Array(address + at, (100,), "<f4")) for at in (0, 4096))
    assert first.token == second.token
    assert peer(open_twice, first, second) == (2, 0, True)
    driver.free(address)


def opens_with(handle: Handle) -> Any:
    """In the peer: the code of the failure."""
    try:
        with pinfold.open(handle):
            return None
    except Error as refused:
        return refused


def test_freed_memory_is_stale(driver: Driver, peer: Callable[..., Any]) -> None:  # R4
    address = driver.allocate(bytes(1 << 16))
    old = pinfold.share(Array(address, (100,), "<f4"))
    assert peer(opens_with, old) is None
    driver.free(address)
    new = driver.allocate(b"\1" * (1 << 16))
    if new == address:
        handle = pinfold.share(Array(new, (100,), "|u1"))
        assert handle.token != old.token and peer(open_and_read, handle)[0] == b"\1" * 100
    failure = peer(opens_with, old)
    assert isinstance(failure, Error) and failure.code is Code.STALE_HANDLE
    driver.free(new)


def test_memory_of_this_process_needs_no_import(driver: Driver) -> None:
    address = driver.allocate(bytes(4096))
    refused = opens_with(pinfold.share(Array(address, (10,), "<f4")))
    assert refused.code is Code.UNSUPPORTED
    driver.free(address)


def test_what_is_no_gpu_memory_is_refused(driver: Driver) -> None:
    with pytest.raises(Error) as caught:
        CudaExporter().share(4096, 10)
    assert caught.value.code is Code.INVALID_ARGUMENT
    array = Array(4096, (10,), "<f4")
    array.interface["mask"] = array
    with pytest.raises(TypeError, match="mask"):
        pinfold.share(array)
    with pytest.raises(TypeError, match="no type of elements"):
        pinfold.share(Array(4096, (10,), "<M8"))


def imports_until_told(handle: bytes, address: int, orders: Any, answers: Any) -> None:
    driver = Driver()
    with pinfold.ImportCache.cuda_ipc(releasing=True) as peers:
        with peers.acquire(1, handle, address, 4096) as lease:
            answers.put(driver.read(lease.address, 4096))
            orders.get()
        answers.put(None)
        orders.get()


def test_retired_memory_is_freed_by_agreement(driver: Driver) -> None:  # R66
    data = random.randbytes(4096)
    address = driver.allocate(data)
    exporter = CudaExporter(release=True)
    handle = exporter.share(address, 4096)
    orders, answers = spawn.SimpleQueue(), spawn.SimpleQueue()
    child = spawn.Process(target=imports_until_told, args=(handle, address, orders, answers), daemon=True)
    child.start()
    assert answers.get() == data
    freed: list[int] = []
    ticket = exporter.begin_retire(address, 0.05, lambda: freed.append(address))
    report = ticket.wait(0.2)
    assert report.state is pinfold.RetireState.LIMBO and [one.pid for one in report.holders] == [child.pid]
    assert not freed
    orders.put("release")
    assert answers.get() is None
    assert ticket.wait(60).all_let_go and freed == [address]
    orders.put("end")
    child.join(300)
    assert child.exitcode == 0
    assert exporter.retirements()["freed"] == 1
    driver.free(address)


def test_announced_free_is_counted_by_its_holders(driver: Driver) -> None:  # R66
    address = driver.allocate(bytes(4096))
    exporter = CudaExporter(release=True)
    handle = exporter.share(address, 4096)
    orders, answers = spawn.SimpleQueue(), spawn.SimpleQueue()
    child = spawn.Process(target=imports_until_told, args=(handle, address, orders, answers), daemon=True)
    child.start()
    answers.get()
    assert pinfold.announce_cuda_free(address, 4096, timeout=5) == 1  # a lease
    assert pinfold.announce_cuda_free(address, 4096) == 1  # it is still there
    driver.free(address)
    assert pinfold.announce_cuda_free(address, 4096) == 0
    orders.put("release")
    answers.get()
    orders.put("end")
    child.join(300)
    assert child.exitcode == 0
    with pytest.raises(Error) as caught:
        pinfold.announce_cuda_free(2**64 - 1, 4096)
    assert caught.value.code is Code.INVALID_RANGE


def test_failure_of_the_free_is_in_the_report(driver: Driver) -> None:
    def refuse() -> None:
        raise OSError(5, "not now")

    address = driver.allocate(bytes(4096))
    exporter = CudaExporter(release=True)
    exporter.share(address, 4096)
    failure = exporter.retire(address, 5, refuse).failure
    assert isinstance(failure, Error) and isinstance(failure.__cause__, OSError)
    for release, code in ((True, Code.INVALID_ARGUMENT), (False, Code.UNSUPPORTED)):
        with pytest.raises(Error) as caught:
            CudaExporter(release=release).retire(address, 1, refuse)
        assert caught.value.code is code
    driver.free(address)


def test_memory_is_freed_before_the_interpreter_ends(run: Callable[..., str], request: Any) -> None:
    program = """
import multiprocessing, sys
sys.path.insert(0, sys.argv[1])
import cuda, cuda_test, pinfold
if __name__ == "__main__":
    try:
        driver = cuda.Driver()
    except OSError:
        print("freed")
        sys.exit()
    address = driver.allocate(bytes(4096))
    exporter = pinfold.CudaExporter(release=True)
    handle = exporter.share(address, 4096)
    orders, answers = cuda_test.spawn.SimpleQueue(), cuda_test.spawn.SimpleQueue()
    given = (handle, address, orders, answers)
    child = cuda_test.spawn.Process(target=cuda_test.imports_until_told, args=given, daemon=True)
    child.start()
    answers.get()
    exporter.begin_retire(address, 100, lambda: print("freed", flush=True))
"""
    assert run(program, str(request.path.parent)) == "freed\n"


exporters: list[CudaExporter] = []  # of the peer, as long as it runs


def export_segments(parts: list[bytes]) -> tuple[int, list[bytes], int]:
    """In the peer."""
    exporters.append(CudaExporter())
    address = Driver().map_segments(parts)
    handles = exporters[-1].share_segments(address, len(parts) * SEGMENT)
    assert exporters[-1].share_segments(address + SEGMENT, 1) == handles[1:2]
    return os.getpid(), handles, address


def test_segments_of_another_process_are_read(driver: Driver, peer: Callable[..., Any]) -> None:
    parts = [random.randbytes(100) for _ in range(20)]
    process, handles, address = peer(export_segments, parts)
    assert len(set(handles)) == 20
    with pinfold.ImportCache.cuda_ipc() as peers:
        peers.can_open(handles[0])
        with peers.acquire_segments(process, handles, address, 20 * SEGMENT) as segments:
            assert [driver.read(one.lease.address, 100) for one in segments] == parts
            assert segments.at(address + 3 * SEGMENT) is segments[3]
        with pytest.raises(Error) as caught:
            peers.acquire_segments(process, handles[:-1], address, 20 * SEGMENT)
        assert caught.value.code is Code.INVALID_RANGE and peers.statistics()["leases_now"] == 0


def test_memory_that_is_not_mapped_in_segments_has_one_handle(driver: Driver) -> None:
    address = driver.allocate(bytes(1 << 16))
    exporter = CudaExporter()
    assert len(exporter.share_segments(address, 1 << 16)) == 1
    with pytest.raises(Error) as caught:
        exporter.share_segments(address, 1 << 30)
    assert caught.value.code is Code.INVALID_RANGE
    driver.free(address)


def test_host_memory_for_the_gpu(driver: Driver) -> None:
    memory = bytearray(1 << 16)
    with pinfold.Cache.cuda_host() as cache:
        with cache.acquire(memory) as lease:
            assert lease.registration["device_address"] != 0
            number = lease.registration["number"]
        with cache.acquire(memory) as lease:
            assert lease.registration["number"] == number
        cache.flush()


def test_no_driver_is_a_clear_error(run: Callable[..., str]) -> None:
    program = """
import pinfold
try:
    pinfold.CudaExporter()
except pinfold.Error as refused:
    print(refused.code.name)
"""
    assert run(program, PINFOLD_CUDA_LIBRARY="/nonexistent/libcuda.so.1") == "UNSUPPORTED\n"


def in_forked_child(handle: Handle, queue: Any) -> None:
    try:
        CudaExporter()
    except Error as refused:
        queue.put((refused.code, opens_with(handle).code))


def test_driver_does_not_survive_a_fork(driver: Driver) -> None:
    address = driver.allocate(bytes(4096))
    handle = pinfold.share(Array(address, (10,), "<f4"))
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    child = fork.Process(target=in_forked_child, args=(handle, queue), daemon=True)
    child.start()
    assert queue.get() == (Code.UNSUPPORTED, Code.UNSUPPORTED)
    child.join(300)
    assert child.exitcode == 0
    driver.free(address)
