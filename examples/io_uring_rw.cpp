// SPDX-License-Identifier: BSD-3-Clause
// Writes a file and reads it back with registered ("fixed") buffers of an io_uring. Every request acquires its buffer
// anew, as a library does that gets buffers from its callers. The cache registers each buffer only once.
#include <pinfold/cache.hpp>
#include <pinfold/registrars/io_uring.hpp>

#include <cstdio>
#include <cstdlib>
#include <liburing.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using buffer_cache = pinfold::cache<pinfold::io_uring_registrar>;
using ring_closer = std::unique_ptr<io_uring, decltype(&io_uring_queue_exit)>;

constexpr unsigned buffer_bytes = 65536;
constexpr int rounds = 100;

void report(const char* problem, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", problem, reason.c_str());
}

// Returns a file without a name, or a negative number. The system deletes the file when this process ends.
int open_temporary_file() {
  char path[] = "/tmp/pinfold-example-XXXXXX";
  const int file = mkstemp(path);
  if (file >= 0) unlink(path);
  return file;
}

// Submits the prepared sqe and waits for its cqe. Returns the request's result: bytes, or a negative errno.
int submit_and_wait(io_uring& ring) {
  if (const int submitted = io_uring_submit(&ring); submitted < 0) return submitted;
  io_uring_cqe* cqe = nullptr;
  if (const int error = io_uring_wait_cqe(&ring, &cqe); error != 0) return error;
  const int result = cqe->res;
  io_uring_cqe_seen(&ring, cqe);
  return result;
}

bool write_file(io_uring& ring, buffer_cache& cache, int file, const std::vector<char>& data) {
  const auto lease = cache.acquire(data);  // const memory: the kernel may read it, and not write it
  if (!lease) {
    report("cannot register the buffer to write from", pinfold::describe(lease.error()));
    return false;
  }
  const int buffer_index = static_cast<int>(lease->registration().index);
  io_uring_sqe* sqe = io_uring_get_sqe(&ring);
  io_uring_prep_write_fixed(sqe, file, data.data(), buffer_bytes, 0, buffer_index);
  // The lease lives until after the completion: until then the kernel uses the registration.
  const int result = submit_and_wait(ring);
  if (result == static_cast<int>(buffer_bytes)) return true;
  report("write", "result " + std::to_string(result));
  return false;
}

bool read_file(io_uring& ring, buffer_cache& cache, int file, std::vector<char>& data) {
  const auto lease = cache.acquire(data);
  if (!lease) {
    report("cannot register the buffer to read into", pinfold::describe(lease.error()));
    return false;
  }
  const int buffer_index = static_cast<int>(lease->registration().index);
  io_uring_sqe* sqe = io_uring_get_sqe(&ring);
  io_uring_prep_read_fixed(sqe, file, data.data(), buffer_bytes, 0, buffer_index);
  const int result = submit_and_wait(ring);
  if (result == static_cast<int>(buffer_bytes)) return true;
  report("read", "result " + std::to_string(result));
  return false;
}

}  // namespace

int main() {
  io_uring ring{};
  if (const int error = io_uring_queue_init(8, &ring, 0); error != 0) {
    report("io_uring is unavailable", "error " + std::to_string(error));
    return 77;
  }
  // Declared before the cache, so that the cache unregisters its buffers before the ring is closed.
  const ring_closer closer(&ring, io_uring_queue_exit);
  auto registrar = pinfold::io_uring_registrar::create(&ring);
  if (!registrar) {
    report("io_uring registers no buffers", pinfold::describe(registrar.error()));
    return 1;
  }
  buffer_cache cache{std::move(*registrar)};  // by default its monitors report memory that goes
  const int file = open_temporary_file();
  if (file < 0) {
    std::perror("cannot create a file");
    return 1;
  }

  const std::vector<char> sent(buffer_bytes, 'p');
  std::vector<char> received(buffer_bytes);
  for (int round = 0; round < rounds; ++round) {
    if (!write_file(ring, cache, file, sent)) return 1;
    if (!read_file(ring, cache, file, received)) return 1;
  }
  const auto statistics = cache.statistics();
  std::puts(sent == received ? pinfold::describe(statistics).c_str() : "wrong bytes");

  // The cache registered two buffers, once each. If no monitor works here, it keeps nothing: each request registers.
  const bool cache_keeps = !cache.monitors().starts_with("none");
  const bool right_count = statistics.opens == 2 || !cache_keeps;
  return sent == received && right_count ? 0 : 1;
}
