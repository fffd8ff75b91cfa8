// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The calls that change a ring's table of buffers. They use libc and not liburing, which enters the kernel by
/// instructions of its own, past the hooks, and must not be loaded into every process with this library.
#pragma once

#include <cerrno>
#include <cstdint>
#include <liburing.h>
#include <span>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace pinfold::uring {

/// Calls io_uring_register(2). Returns a negative errno on failure.
inline int change(const ::io_uring& ring, unsigned what, const void* argument, unsigned count) noexcept {
  constexpr unsigned by_registered_number = 1U << 31U;  // Linux 6.3: for a ring whose descriptor was closed
  const bool closed = ring.ring_fd < 0;
  const int number = closed ? ring.enter_ring_fd : ring.ring_fd;
  const auto done =
      ::syscall(SYS_io_uring_register, number, closed ? what | by_registered_number : what, argument, count);
  return done < 0 ? -errno : static_cast<int>(done);
}

/// Makes a table of `slots` empty slots.
inline int make_table(const ::io_uring& ring, unsigned slots) noexcept {
  io_uring_rsrc_register argument{};
  argument.nr = slots;
  argument.flags = IORING_RSRC_REGISTER_SPARSE;
  return change(ring, IORING_REGISTER_BUFFERS2, &argument, sizeof argument);
}

inline int drop_table(const ::io_uring& ring) noexcept { return change(ring, IORING_UNREGISTER_BUFFERS, nullptr, 0); }

/// Puts buffers into the slots from `first` on. Returns how many were changed.
inline int change_slots(const ::io_uring& ring, unsigned first, std::span<const iovec> to) noexcept {
  io_uring_rsrc_update2 argument{};
  argument.offset = first;
  argument.data = reinterpret_cast<std::uintptr_t>(to.data());
  argument.nr = static_cast<unsigned>(to.size());
  return change(ring, IORING_REGISTER_BUFFERS_UPDATE, &argument, sizeof argument);
}

}  // namespace pinfold::uring
