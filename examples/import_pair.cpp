// SPDX-License-Identifier: BSD-3-Clause
// Two processes: the child owns memory and sends its handle; the parent reads the memory through an import cache.
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>

#include <cstdio>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::size_t bytes = 64 * 1024;
constexpr int reads = 1000;

// Runs in the child: exports one buffer, sends its handle, and keeps the buffer until the parent closes the pipe.
int export_memory(int handles, int parents_end) {
  auto exporter = pinfold::memfd_exporter::create();
  if (!exporter) return 1;
  auto buffer = exporter->allocate(bytes);
  if (!buffer) return 1;
  std::memset(buffer->data(), 42, bytes);
  const auto handle = buffer->handle();  // plain bytes: send them in any way
  char end = 0;
  return write(handles, &handle, sizeof handle) == sizeof handle && read(parents_end, &end, 1) == 0 ? 0 : 1;
}

// Runs in the parent: opens the memory once and then reads it many times.
int import_memory(int handles) {
  pinfold::memfd_handle handle;
  if (read(handles, &handle, sizeof handle) != sizeof handle) return 1;
  pinfold::import_cache peers{pinfold::memfd_importer{}, {.max_count = 512}};
  for (int i = 0; i < reads; ++i) {
    auto lease = peers.acquire({.value = 1}, handle, handle.base, bytes);
    if (!lease) return std::fprintf(stderr, "%s\n", pinfold::describe(lease.error()).c_str()), 1;
    const auto* data = static_cast<const unsigned char*>(lease->data());
    for (std::size_t at = 0; at < bytes; ++at) {
      if (data[at] != 42) return 1;
    }
  }
  const auto seen = peers.statistics();
  std::printf("read %d x %zu right bytes of another process; opened %ju time(s)\n", reads, bytes, seen.opens);
  return seen.opens == 1 ? 0 : 1;
}

}  // namespace

int main() {
  int handles[2], life[2];
  if (pipe(handles) != 0 || pipe(life) != 0) return 1;
  const auto child = fork();
  if (child == 0) return close(handles[0]), close(life[1]), export_memory(handles[1], life[0]);
  close(handles[1]);
  const int outcome = import_memory(handles[0]);
  int status = 0;
  return close(life[1]), waitpid(child, &status, 0) == child && status == 0 ? outcome : 1;
}
