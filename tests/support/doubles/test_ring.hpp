// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An io_uring for tests, single I/Os on it, and its registrar.
#pragma once

#include <pinfold/registrars/io_uring.hpp>

#include <liburing.h>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace pinfold::testing {

/// A ring at a fixed place.
class test_ring {
 public:
  /// Throws std::system_error with the kernel's error, which is ENOMEM where the user has reached RLIMIT_MEMLOCK.
  explicit test_ring(unsigned flags = 0) {
    if (const int refused = ::io_uring_queue_init(8, &ring_, flags); refused != 0)
      throw std::system_error(-refused, std::generic_category(), "no io_uring here");
  }
  ~test_ring() { ::io_uring_queue_exit(&ring_); }
  test_ring(const test_ring&) = delete;
  test_ring& operator=(const test_ring&) = delete;

  [[nodiscard]] ::io_uring* get() noexcept { return &ring_; }

  /// Returns the kernel's answer to one write from a registered buffer: bytes, or a negative errno.
  int write(int file, const void* data, unsigned bytes, std::uint64_t offset, std::uint32_t index) {
    ::io_uring_prep_write_fixed(::io_uring_get_sqe(&ring_), file, data, bytes, offset, static_cast<int>(index));
    return finish();
  }
  int read(int file, void* data, unsigned bytes, std::uint64_t offset, std::uint32_t index) {
    ::io_uring_prep_read_fixed(::io_uring_get_sqe(&ring_), file, data, bytes, offset, static_cast<int>(index));
    return finish();
  }

 private:
  int finish() {
    ::io_uring_submit(&ring_);
    ::io_uring_cqe* done = nullptr;
    if (const int failed = ::io_uring_wait_cqe(&ring_, &done); failed != 0) return failed;
    const int answer = done->res;
    ::io_uring_cqe_seen(&ring_, done);
    return answer;
  }

  ::io_uring ring_{};
};

/// Returns a registrar on the ring. Throws where the kernel has none.
inline io_uring_registrar registrar_on(test_ring& ring, unsigned slots = io_uring_registrar_options{}.slots) {
  auto made = io_uring_registrar::create(ring.get(), {.slots = slots});
  if (!made) throw std::runtime_error(describe(made.error()));
  return std::move(*made);
}

}  // namespace pinfold::testing
