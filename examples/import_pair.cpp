// SPDX-License-Identifier: BSD-3-Clause
// Two processes share memory. The child, the exporter, owns a buffer and sends its handle. The parent, the importer,
// reads the buffer a thousand times through an import cache, which maps the memory only once.
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::size_t buffer_bytes = 65536;
constexpr unsigned char expected_byte = 42;
constexpr int reads = 1000;

// The importer's number for the exporting process. The program chooses it; an MPI program would use the rank.
constexpr pinfold::peer_id exporter_id{.value = 1};

struct pipe_ends {
  int read = -1;
  int write = -1;
};

void report(const char* problem, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", problem, reason.c_str());
}

bool make_pipe(pipe_ends& made) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  made = {.read = ends[0], .write = ends[1]};
  return true;
}

// Runs in the child. Returns its exit code.
int export_buffer(int handle_pipe, int end_pipe) {
  auto exporter = pinfold::memfd_exporter::create();
  if (!exporter) {
    report("cannot export memory", pinfold::describe(exporter.error()));
    return 1;
  }
  const auto buffer = exporter->allocate(buffer_bytes);
  if (!buffer) {
    report("cannot allocate a buffer", pinfold::describe(buffer.error()));
    return 1;
  }
  std::memset(buffer->data(), expected_byte, buffer_bytes);

  const pinfold::memfd_handle handle = buffer->handle();  // plain bytes: any channel can carry them
  if (write(handle_pipe, &handle, sizeof handle) != sizeof handle) return 1;

  // The buffer lives until the parent closes its end of the pipe, which ends this read.
  char nothing = 0;
  return read(end_pipe, &nothing, sizeof nothing) == 0 ? 0 : 1;
}

bool read_buffer(pinfold::import_cache<pinfold::memfd_importer>& cache, const pinfold::memfd_handle& handle) {
  // The first acquire opens the handle. Later ones compare it, all bytes, with that of the open mapping: hits.
  const auto lease = cache.acquire(exporter_id, handle, handle.base, buffer_bytes);
  if (!lease) {
    report("cannot import the buffer", pinfold::describe(lease.error()));
    return false;
  }
  const std::span bytes(static_cast<const unsigned char*>(lease->data()), buffer_bytes);
  const bool right = std::ranges::all_of(bytes, [](unsigned char byte) { return byte == expected_byte; });
  if (!right) report("the imported buffer", "wrong bytes");
  return right;
}

// Runs in the parent. Returns its exit code.
int import_buffer(int handle_pipe) {
  pinfold::memfd_handle handle;
  if (read(handle_pipe, &handle, sizeof handle) != sizeof handle) {
    report("no handle", "the exporter failed");
    return 1;
  }
  pinfold::import_cache cache{pinfold::memfd_importer{}, {.max_count = 512}};
  for (int i = 0; i < reads; ++i) {
    if (!read_buffer(cache, handle)) return 1;
  }
  const std::uint64_t opens = cache.statistics().opens;
  std::printf("read %d x %zu right bytes of another process; opened %" PRIu64 " time(s)\n", reads, buffer_bytes, opens);
  return opens == 1 ? 0 : 1;
}

}  // namespace

int main() {
  pipe_ends handles;  // carries the handle from the child to the parent
  pipe_ends end;      // carries nothing: the parent closes it to end the child
  if (!make_pipe(handles) || !make_pipe(end)) return 1;

  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    close(handles.read);
    close(end.write);
    return export_buffer(handles.write, end.read);
  }
  close(handles.write);
  close(end.read);
  const int importer_code = import_buffer(handles.read);

  close(end.write);
  int exporter_status = 0;
  if (waitpid(child, &exporter_status, 0) != child || exporter_status != 0) return 1;
  return importer_code;
}
