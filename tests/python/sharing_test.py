# SPDX-License-Identifier: BSD-3-Clause
import array
import copy
import gc
import pickle
import random
import zlib
from typing import Any, Callable

import numpy
import pytest

import pinfold
from pinfold import Code, DType, Error, Handle, MemfdExporter, Place
from pinfold._library import lib


def test_array_is_opened_with_its_shape() -> None:
    array = pinfold.memfd_array((4, 6), "f4")
    array[:] = numpy.arange(24).reshape(4, 6)
    for part in (
        array,
        array[1:3],
        array[:, ::2],
        array[2, 3:],
        array.T,
        array[0, :1].reshape(()),
        array.view("u1")[::2, ::8],
    ):
        handle = pickle.loads(pickle.dumps(pinfold.share(part)))
        with pinfold.open(handle) as tensor:
            opened = tensor.numpy()
            assert opened.dtype == part.dtype and opened.shape == part.shape and opened.strides == part.strides
            assert (opened == part).all()
            assert not opened.flags.writeable
            assert not tensor.stale


def test_memory_that_was_freed_is_read_only_where_it_is_open() -> None:
    array = pinfold.memfd_array(8, "u1")
    array[:] = 7
    handle = pinfold.share(array)
    with pinfold.open(handle):
        pass
    del array
    gc.collect()
    with pinfold.open(handle) as tensor:
        assert (tensor.numpy() == 7).all()
    with pinfold.ImportCache.memfd() as another, pytest.raises(Error) as caught:
        pinfold.open(handle, cache=another)
    assert caught.value.code is Code.STALE_HANDLE
    assert MemfdExporter().allocate(100).nbytes == 4096


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_type_survives(dtype: str) -> None:
    array = pinfold.memfd_array(5, dtype)
    array[:] = [0, 1, 0, 1, 1]
    with pinfold.open(bytes(pinfold.share(array))) as tensor:
        assert tensor.numpy().dtype == array.dtype and (tensor.numpy() == array).all()


def test_types_that_cannot_be_shared() -> None:
    buffer = MemfdExporter().allocate(4096).memory
    for dtype in (">f4", "M8[s]", "S4", "U2", [("a", "f4")], "f16"):
        try:
            handle = pinfold.share(numpy.frombuffer(buffer, dtype))
        except TypeError as refused:
            assert "no type of elements that can be shared" in str(refused)
        else:
            assert handle.dtype == DType(lib.kDLFloat, 128)


def test_any_buffer_of_an_exporter_is_shared() -> None:
    memory = MemfdExporter().allocate(4096).memory
    memory[:4] = b"\1\0\2\0"
    handle = pinfold.share(memory.cast("H")[:2])
    assert (handle.dtype, handle.shape) == (DType(lib.kDLUInt, 16), (2,))
    with pinfold.open(handle) as tensor:
        assert list(tensor.numpy()) == [1, 2] and bytes(tensor.memory) == b"\1\0\2\0"
    for format, kind in (("d", lib.kDLFloat), ("b", lib.kDLInt), ("?", lib.kDLBool)):
        assert pinfold.share(memory.cast(format)).dtype.code == kind


class OnlyDLPack:
    """As tensors of libraries without a buffer protocol."""

    def __init__(self, array: Any, kind: int = 1) -> None:
        self.array = array
        self.kind = kind

    def __dlpack__(self, stream: None = None) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)


def test_tensor_of_another_library_is_shared() -> None:
    array = pinfold.memfd_array((3, 4), "i4")
    array[:] = numpy.arange(12).reshape(3, 4)
    for part in (array, array[1:, ::3]):
        handle = pinfold.share(OnlyDLPack(part))
        assert handle == pinfold.share(part)


def test_memory_of_no_exporter_is_refused_with_advice() -> None:
    pinfold.memfd_array(10)
    for tensor in (numpy.zeros(4), bytearray(10), array.array("f", [1])):
        with pytest.raises(ValueError, match=r"allocate it with pinfold.memfd_array\(shape, dtype\), or copy it"):
            pinfold.share(tensor)
    for nothing in (5, "text", object()):
        with pytest.raises(BufferError):
            pinfold.share(nothing)
    with pytest.raises(TypeError, match="kind 10 cannot be shared"):
        pinfold.share(OnlyDLPack(numpy.zeros(4), kind=10))
    shared = pinfold.memfd_array(10)
    with pytest.raises(ValueError, match="negative strides"):
        pinfold.share(shared[::-1])
    with pytest.raises(ValueError, match="has no memory"):
        pinfold.share(shared[:0])


def test_equal_memory_has_equal_handles() -> None:
    array = pinfold.memfd_array((4, 4), "f4")
    assert pinfold.share(array) == pinfold.share(array) != pinfold.share(array[1:])
    assert pinfold.share(array[1:]).token == pinfold.share(array).token, "peers open an allocation once"


def array_at(address: int, make: Callable[[], Any]) -> Any:
    """Makes arrays, which take the place of freed ones, until one is there. Keeps the others until then."""
    others: list[Any] = []
    while len(others) < 1000:
        if (array := make()).ctypes.data == address:
            return array
        others.append(array)
    pytest.skip("other memory took the address")


def test_replaced_tensor_is_stale() -> None:  # R4, R6
    old = pinfold.memfd_array(1000, "f4")
    handle, address = pinfold.share(old), old.ctypes.data
    del old
    new = array_at(address, lambda: pinfold.memfd_array(1000, "f4"))
    new[:] = 1
    with pytest.raises(Error) as caught:
        pinfold.open(handle)
    assert caught.value.code is Code.STALE_HANDLE
    with pinfold.open(pinfold.share(new)) as tensor:
        assert (tensor.numpy() == 1).all()


def test_tensor_in_use_keeps_its_old_memory() -> None:  # R5
    exporter = MemfdExporter()
    old = exporter.array(1000, "f4")
    with pinfold.open(pinfold.share(old)) as tensor:
        view, address = tensor.numpy(), old.ctypes.data
        del old
        new = array_at(address, lambda: exporter.array(1000, "f4"))
        new[:] = 1
        with pytest.raises(Error) as caught:
            pinfold.open(pinfold.share(new))
        assert caught.value.code is Code.IN_USE_CONFLICT
        assert tensor.stale and (view == 0).all()
    del view, caught
    with pinfold.open(pinfold.share(new)) as tensor:
        assert (tensor.numpy() == 1).all()


def test_own_cache_has_to_be_of_the_right_kind() -> None:
    handle = pinfold.share(pinfold.memfd_array(10))
    with pinfold.ImportCache.cuda_ipc() as gpu, pytest.raises(ValueError, match="does not import host memory"):
        pinfold.open(handle, cache=gpu)


def test_tensor_owns_its_memory() -> None:
    array = pinfold.memfd_array(1000, "u1")
    array[:] = 7
    with pinfold.ImportCache.memfd() as peers:
        opened = pinfold.open(pinfold.share(array), cache=peers).numpy()
        gc.collect()
        assert (opened == 7).all() and peers.statistics()["leases_now"] == 1
        del opened
        assert peers.statistics()["leases_now"] == 0
        tensor = pinfold.open(pinfold.share(array), cache=peers)
        tensor.release()
        tensor.release()
        with pytest.raises(ValueError, match="was released"):
            tensor.numpy()
        assert peers.statistics()["leases_now"] == 0


def test_lease_as_tensor() -> None:
    buffer = MemfdExporter().allocate(4096)
    with pinfold.ImportCache.memfd() as peers, peers.acquire(1, buffer.handle, buffer.address, 24) as lease:
        assert lease.tensor().numpy().shape == (24,)
        assert lease.tensor("<f4", (2, 3)).numpy().shape == (2, 3)
        with pytest.raises(ValueError, match="do not fit"):
            lease.tensor("<f4", (7,))
        for wrong in ("f4", "<x4", "", "<f", "<f-4"):
            with pytest.raises(TypeError):
                lease.tensor(wrong)
        del lease
        gc.collect()


def test_copies_of_handles_are_equal() -> None:
    handle = pinfold.share(pinfold.memfd_array((2, 3), "f4"))
    assert copy.deepcopy(handle) == handle == Handle.from_bytes(bytes(handle))
    assert handle.place is Place.HOST and handle.shape == (2, 3) and handle.nbytes == 24


def test_damaged_handles_are_refused() -> None:  # R59
    good = bytes(pinfold.share(pinfold.memfd_array((2, 3), "f4")))
    bad = [b"", good[:-1], good + b"x", good[1:], bytes(len(good))]
    bad += [good[:at] + bytes([good[at] ^ 1 << random.randrange(8)]) + good[at + 1 :] for at in range(len(good))]
    for data in bad:
        with pytest.raises(Error) as caught:
            pinfold.open(data)
        assert caught.value.code is Code.INVALID_HANDLE
    with pytest.raises(Error, match="version 2; this package reads 1"):
        pinfold.open(good[:7] + b"\2" + good[8:])
    for other in (5, None, "text"):
        with pytest.raises(TypeError):
            pinfold.open(other)  # type: ignore[arg-type]


def test_forged_handles_are_refused() -> None:  # R59
    """A checksum is no protection against intent: no valid form may lead out of the memory."""
    good = bytes(pinfold.share(pinfold.memfd_array((2, 3), "f4")))
    rounds = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    for _ in range(5000):
        data = bytearray(good[:-4])
        for _ in range(rounds.randrange(1, 4)):
            data[rounds.randrange(8, len(data))] = rounds.choice([0, 1, 2, 4, 127, 128, 255])
        forged = bytes(data) + zlib.crc32(data).to_bytes(4, "little")
        try:
            tensor = pinfold.open(forged)
        except Error:
            continue
        with tensor:
            assert memoryview(tensor.numpy()).nbytes <= 4096
            tensor.numpy().sum()


def test_handle_describes_its_memory() -> None:
    handle = pinfold.share(pinfold.memfd_array((2, 3), "f4"))
    wrong: list[dict[str, Any]] = [
        {"shape": (2, 4)},
        {"shape": (2,)},
        {"strides": (12, -4)},
        {"nbytes": 25},
        {"token": b""},
        {"dtype": DType(2, 7)},
        {"device": -1},
        {"address": 1 << 64},
    ]
    for changed in wrong:
        with pytest.raises(Error) as caught:
            Handle(**{**handle.__dict__, **changed})
        assert caught.value.code is Code.INVALID_HANDLE
