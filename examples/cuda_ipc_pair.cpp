// SPDX-License-Identifier: BSD-3-Clause
// Two processes: the child owns GPU memory and sends its handle; the parent reads the memory through an import cache.
#include "cuda_by_name.hpp"  // your program: <cuda.h>

#include <pinfold/cuda.hpp>
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/cuda_ipc.hpp>

#include <csignal>
#include <cstdio>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

constexpr std::size_t bytes = 64 * 1024;
constexpr int reads = 1000;

static bool use_device() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  return cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
         cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

static int export_memory(int handles) {
  CUdeviceptr memory = 0;
  if (!use_device() || cuMemAlloc(&memory, bytes) != CUDA_SUCCESS) return 1;
  if (cuMemsetD8(memory, 42, bytes) != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_SUCCESS) return 1;
  auto exporter = pinfold::cuda_ipc_exporter::create();
  const auto shared = exporter ? exporter->share(memory, bytes) : tl::unexpected(exporter.error());
  return shared && write(handles, &*shared, sizeof *shared) > 0 ? pause() : 1;  // plain bytes: send them in any way
}

static int import_memory(int handles) {
  pinfold::cuda_shared shared;
  if (!use_device()) return std::puts(pinfold::cuda_driver_text().c_str()), 77;
  if (read(handles, &shared, sizeof shared) != sizeof shared) return 1;
  pinfold::import_cache peers{pinfold::cuda_ipc_importer{}, {.max_count = 512}};
  for (int i = 0; i < reads; ++i) {
    auto lease = peers.acquire({.value = 1}, shared.handle, shared.address, bytes);
    if (!lease) return std::puts(pinfold::describe(lease.error()).c_str()), 1;
    std::vector<unsigned char> here(bytes);
    if (cuMemcpyDtoH(here.data(), CUdeviceptr(lease->data()), bytes) != CUDA_SUCCESS) return 1;
    if (here != std::vector<unsigned char>(bytes, 42)) return 1;
  }
  const auto opens = peers.statistics().opens;
  return std::printf("read %d x %zu right bytes of another process's GPU; opened %ju time(s)\n", reads, bytes, opens),
         opens != 1;
}

int main() {
  int handles[2];
  if (pipe(handles) != 0) return 1;
  const auto child = fork();  // before any CUDA call: the CUDA driver does not survive a fork
  if (child == 0) return export_memory(handles[1]);
  close(handles[1]);
  const int outcome = import_memory(handles[0]);
  return kill(child, SIGKILL), waitpid(child, nullptr, 0), outcome;
}
