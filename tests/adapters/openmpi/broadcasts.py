# SPDX-License-Identifier: BSD-3-Clause
# mpi4py: broadcasts and reductions of arrays that are allocated anew each time; every byte is compared.
import mmap
import sys

from mpi4py import MPI

rank = MPI.COMM_WORLD.Get_rank()
size = 1 << 20
wrong = 0
for turn in range(10):
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    expected = bytes((turn + k) % 251 for k in range(1024)) * (size // 1024)
    for root in (0, 1, 0, 1):
        if rank == root:
            memory[:] = expected
        MPI.COMM_WORLD.Bcast([memory, size, MPI.BYTE], root=root)
        wrong += memory[:] != expected
        memory[:] = bytes(size)
    memory.close()
print(f"rank {rank}: 40 broadcasts of {size} bytes, {wrong} wrong")
sys.exit(wrong != 0)
