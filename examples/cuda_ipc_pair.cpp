// SPDX-License-Identifier: BSD-3-Clause
// Two processes share GPU memory by CUDA IPC. The child, the exporter, allocates the memory and sends its handle. The
// parent, the importer, reads the memory a thousand times through an import cache, which opens the handle only once.
#include "cuda_by_name.hpp"  // your program: <cuda.h>

#include <pinfold/cuda.hpp>
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/cuda_ipc.hpp>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::size_t buffer_bytes = 65536;
constexpr unsigned char expected_byte = 42;
constexpr int reads = 1000;

// The importer's number for the exporting process. The program chooses it; an MPI program would use the rank.
constexpr pinfold::peer_id exporter_id{.value = 1};

void report(const char* problem, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", problem, reason.c_str());
}

// Makes the first GPU's primary context current. Returns whether there is one.
bool use_first_gpu() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS) return false;
  if (cuDeviceGet(&device, 0) != CUDA_SUCCESS) return false;
  if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return false;
  return cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

// Returns GPU memory full of `expected_byte`, or 0.
CUdeviceptr make_buffer() {
  CUdeviceptr buffer = 0;
  if (cuMemAlloc(&buffer, buffer_bytes) != CUDA_SUCCESS) return 0;
  if (cuMemsetD8(buffer, expected_byte, buffer_bytes) != CUDA_SUCCESS) return 0;
  return cuCtxSynchronize() == CUDA_SUCCESS ? buffer : 0;
}

// Runs in the child. Returns its exit code if it fails.
int export_buffer(int handle_pipe) {
  const CUdeviceptr buffer = use_first_gpu() ? make_buffer() : 0;
  if (buffer == 0) return 1;
  auto exporter = pinfold::cuda_ipc_exporter::create();
  if (!exporter) {
    report("cannot export GPU memory", pinfold::describe(exporter.error()));
    return 1;
  }
  const auto shared = exporter->share(buffer, buffer_bytes);
  if (!shared) {
    report("cannot share the buffer", pinfold::describe(shared.error()));
    return 1;
  }
  // The handle is plain bytes: any channel can carry it.
  if (write(handle_pipe, &*shared, sizeof *shared) != sizeof *shared) return 1;
  pause();  // keeps the memory until the parent kills this process
  return 1;
}

bool read_buffer(pinfold::import_cache<pinfold::cuda_ipc_importer>& cache, const pinfold::cuda_shared& shared) {
  // The first acquire opens the handle. Later ones compare it, all bytes, with that of the open mapping: hits.
  const auto lease = cache.acquire(exporter_id, shared.handle, shared.address, buffer_bytes);
  if (!lease) {
    report("cannot import the buffer", pinfold::describe(lease.error()));
    return false;
  }
  const auto mapped = reinterpret_cast<CUdeviceptr>(lease->data());  // the exporter's memory, in this process
  std::vector<unsigned char> copy(buffer_bytes);
  if (cuMemcpyDtoH(copy.data(), mapped, buffer_bytes) != CUDA_SUCCESS) return false;
  const bool right = copy == std::vector<unsigned char>(buffer_bytes, expected_byte);
  if (!right) report("the imported buffer", "wrong bytes");
  return right;
}

// Runs in the parent. Returns its exit code.
int import_buffer(int handle_pipe) {
  if (!use_first_gpu()) {
    std::printf("skipped: no GPU is available: %s\n", pinfold::cuda_driver_text().c_str());
    return 77;
  }
  pinfold::cuda_shared shared;
  if (read(handle_pipe, &shared, sizeof shared) != sizeof shared) {
    report("no handle", "the exporter failed");
    return 1;
  }
  pinfold::import_cache cache{pinfold::cuda_ipc_importer{}, {.max_count = 512}};
  for (int i = 0; i < reads; ++i) {
    if (!read_buffer(cache, shared)) return 1;
  }
  const std::uint64_t opens = cache.statistics().opens;
  std::printf("read %d x %zu right bytes of another process's GPU; opened %" PRIu64 " time(s)\n", reads, buffer_bytes,
              opens);
  return opens == 1 ? 0 : 1;
}

}  // namespace

int main() {
  int handle_pipe[2];
  if (pipe(handle_pipe) != 0) return 1;
  const pid_t child = fork();  // before any CUDA call: the CUDA driver does not survive a fork
  if (child < 0) return 1;
  if (child == 0) {
    close(handle_pipe[0]);
    return export_buffer(handle_pipe[1]);
  }
  close(handle_pipe[1]);  // so that the read below ends if the child fails
  const int exit_code = import_buffer(handle_pipe[0]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return exit_code;
}
