// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A device that works in every process, even where io_uring is forbidden: vmsplice(2) puts the pages themselves into a
/// pipe, and a read from the pipe returns their content at that time.
#pragma once

#include <pinfold/registrar.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {

/// Registers up to 16 pages. Not for memory of a process that forks while they are registered.
class pipe_registrar {
 public:
  static constexpr const char* name = "pipe";
  struct registration_type {
    int out = -1;
    int in = -1;
    std::size_t bytes = 0;
  };

  [[nodiscard]] registrar_limits limits() const noexcept { return {.granularity = 4096, .max_bytes = 65536}; }

  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    if (auto fine = check_request(limits(), memory, access); !fine) return tl::unexpected(fine.error());
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return fail_errno(errc::out_of_resources, errno, "no pipe");
    const registration_type made{ends[0], ends[1], memory.size()};
    const iovec pages{reinterpret_cast<void*>(memory.begin), memory.size()};
    if (::vmsplice(made.in, &pages, 1, 0) == static_cast<ssize_t>(memory.size())) return made;
    const int native = errno;
    static_cast<void>(close(made));
    return fail_errno(errc::driver_error, native, "the pages cannot be put into a pipe");
  }

  [[nodiscard]] result<void> close(const registration_type& registration) noexcept {
    ::close(registration.out);
    ::close(registration.in);
    return {};
  }
};

/// Returns what a device would send: the bytes of the registered pages. Empty when they cannot be read.
inline std::vector<char> bytes_behind(const pipe_registrar::registration_type& registration) {
  std::array<int, 2> copy{};
  if (::pipe2(copy.data(), O_CLOEXEC | O_NONBLOCK) != 0) return {};
  std::vector<char> found(registration.bytes);
  const auto there = ::tee(registration.out, copy[1], registration.bytes, SPLICE_F_NONBLOCK);
  const auto got = there > 0 ? ::read(copy[0], found.data(), found.size()) : -1;
  ::close(copy[0]);
  ::close(copy[1]);
  if (got != static_cast<ssize_t>(registration.bytes)) return {};
  return found;
}

}  // namespace pinfold::testing
