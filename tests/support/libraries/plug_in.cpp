// SPDX-License-Identifier: BSD-3-Clause
// A plug-in with an io_uring and a cache of registrations for it, over the C interface. Built twice: with a copy of
// pinfold inside, and linked with the shared library. Tests load and unload both.
#include <pinfold/pinfold.h>

#include <cstdint>
#include <liburing.h>

namespace {

struct plug_in {
  io_uring ring{};
  pinfold_cache* cache = nullptr;
};

int write_fixed(io_uring& ring, int file, const void* data, unsigned bytes, int buffer) {
  ::io_uring_prep_write_fixed(::io_uring_get_sqe(&ring), file, data, bytes, 0, buffer);
  if (const int failed = ::io_uring_submit_and_wait(&ring, 1); failed < 0) return failed;
  io_uring_cqe* done = nullptr;
  if (const int failed = ::io_uring_peek_cqe(&ring, &done); failed != 0) return failed;
  const int written = done->res;
  ::io_uring_cqe_seen(&ring, done);
  return written;
}

}  // namespace

#define EXPORTED extern "C" [[gnu::visibility("default")]]

/// Returns a plug-in whose cache relies on the monitors, or null.
EXPORTED void* plug_in_start(std::uint32_t monitor) {
  auto* const made = new plug_in;
  pinfold_options options;
  if (pinfold_options_init(&options, sizeof options) != PINFOLD_OK) return nullptr;
  options.monitor = monitor;
  if (::io_uring_queue_init(4, &made->ring, 0) != 0) return nullptr;
  if (pinfold_create_io_uring(&made->ring, 64, &options, &made->cache) != PINFOLD_OK) return nullptr;
  return made;
}

EXPORTED void plug_in_monitors(const plug_in* used, char* text, std::size_t room) {
  static_cast<void>(pinfold_monitors(used->cache, text, room));
}

/// Has the kernel write registered memory to the start of a file. Returns how many bytes, or a negative errno.
EXPORTED int plug_in_write(plug_in* used, int file, const void* data, unsigned bytes) {
  const auto lease = pinfold_acquire(used->cache, data, bytes, PINFOLD_LOCAL_READ);
  if (lease.pin == 0) return -1000 + pinfold_last_error()->code;
  const auto* const made = static_cast<const pinfold_io_uring_registration*>(pinfold_registration_of(lease));
  const int written = write_fixed(used->ring, file, data, bytes, static_cast<int>(made->index));
  const int released = pinfold_release(lease);
  return released == PINFOLD_OK ? written : -1000 + released;
}

/// Returns how many registrations the cache found.
EXPORTED std::uint64_t plug_in_hits(const plug_in* used) {
  pinfold_statistics now{};
  now.size = sizeof now;
  return pinfold_statistics_of(used->cache, &now) == PINFOLD_OK ? now.hits : 0;
}

EXPORTED void plug_in_stop(plug_in* used) {
  static_cast<void>(pinfold_destroy(used->cache));
  ::io_uring_queue_exit(&used->ring);
  delete used;
}

namespace {
/// As global objects of plug-ins are: it ends when the library is unloaded, or with the program.
struct global_plug_in {
  plug_in* one = nullptr;
  ~global_plug_in() {
    if (one != nullptr) plug_in_stop(one);
  }
} global;
}  // namespace

/// Returns the plug-in that the library itself owns. A library that stays loaded still has it.
EXPORTED plug_in* plug_in_global(std::uint32_t monitor) {
  if (global.one == nullptr) global.one = static_cast<plug_in*>(plug_in_start(monitor));
  return global.one;
}
