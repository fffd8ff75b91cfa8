// SPDX-License-Identifier: BSD-3-Clause
// Writes and reads a file through registered buffers: only the first I/O on a buffer registers it.
#include <pinfold/cache.hpp>
#include <pinfold/registrars/io_uring.hpp>

#include <cstdio>
#include <cstdlib>
#include <liburing.h>
#include <unistd.h>
#include <vector>

namespace {

int fail(const char* what, int code) {
  std::fprintf(stderr, "%s: %d\n", what, code);
  return 1;
}

// Submits the prepared request and waits for its completion.
int answer(io_uring& ring) {
  io_uring_submit(&ring);
  io_uring_cqe* done = nullptr;
  if (const int failed = io_uring_wait_cqe(&ring, &done); failed != 0) return failed;
  const int bytes = done->res;
  io_uring_cqe_seen(&ring, done);
  return bytes;
}

}  // namespace

int main() {
  io_uring ring{};
  if (const int failed = io_uring_queue_init(8, &ring, 0); failed != 0)
    return fail("io_uring is not to be had", failed);
  auto registrar = pinfold::io_uring_registrar::create(&ring);
  if (!registrar) return fail(describe(registrar.error()).c_str(), registrar.error().native);
  pinfold::cache cache{std::move(*registrar)};  // its monitors report memory that goes

  char path[] = "/tmp/pinfold-example-XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  std::vector<char> sent(65536, 'p');
  std::vector<char> got(sent.size());
  const auto bytes = static_cast<unsigned>(sent.size());
  for (int round = 0; round < 100; ++round) {
    auto from = cache.acquire(sent);
    auto to = cache.acquire(got);
    if (!from || !to) return fail("a buffer cannot be registered", 0);
    io_uring_prep_write_fixed(io_uring_get_sqe(&ring), file, sent.data(), bytes, 0,
                              static_cast<int>(from->handle().index));
    if (const int wrote = answer(ring); wrote != static_cast<int>(bytes)) return fail("write", wrote);
    io_uring_prep_read_fixed(io_uring_get_sqe(&ring), file, got.data(), bytes, 0, static_cast<int>(to->handle().index));
    if (const int read = answer(ring); read != static_cast<int>(bytes)) return fail("read", read);
  }
  std::puts(sent == got ? describe(cache.statistics()).c_str() : "wrong bytes");
  const bool kept = !cache.monitors().starts_with("none");  // otherwise each request registers
  return sent == got && (!kept || cache.statistics().opens == 2) ? 0 : 1;
}
