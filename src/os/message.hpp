// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Messages with descriptors between two processes, over a SOCK_SEQPACKET socket.
///
/// Nothing here allocates or locks: all of it may run in the child of a multi-threaded process that forked.
#pragma once

#include "os/file.hpp"

#include <cstddef>
#include <span>
#include <sys/socket.h>
#include <sys/types.h>

namespace pinfold::os {

inline constexpr std::size_t most_passed = 8;  ///< descriptors in one message

/// Sends one message, with the descriptors. Returns 0 or an `errno` value.
[[nodiscard]] int send_message(int socket, std::span<const std::byte> body, std::span<const int> descriptors,
                               int flags) noexcept;

struct received_message {
  ssize_t bytes;       ///< 0 if the other end hung up; negative on failure, with `errno` set
  std::size_t passed;  ///< how many descriptors came with it
  bool cut_off;        ///< the kernel dropped descriptors: this process has no room for them, or asked for fewer
  bool longer;         ///< the message was longer than `body`
};

/// Receives one message, and at most as many descriptors as `passed` has room for.
[[nodiscard]] received_message receive_message(int socket, std::span<std::byte> body, std::span<file> passed,
                                               int flags) noexcept;

/// Makes the kernel refuse messages with descriptors to this socket, and to connections made to it from now on: the
/// sender of a descriptor decides how long its close takes. Returns false before Linux 6.16, which cannot.
bool refuse_descriptors(const file& socket) noexcept;
void accept_descriptors(const file& socket) noexcept;

/// Returns whether the next message to read has descriptors. Receives nothing.
[[nodiscard]] bool next_has_descriptors(const file& socket) noexcept;

/// Returns the user and process at the other end, as the kernel recorded them at connect and listen.
[[nodiscard]] result<ucred> other_end(const file& socket) noexcept;

/// Returns a pidfd of the process at the other end, which may have ended. `unsupported` before Linux 6.5.
[[nodiscard]] result<file> other_process(const file& socket) noexcept;

/// Returns whether to serve the other end and trust its answers: it is of this process's user, or root. A process of
/// root trusts no other user. A process of the overflow user needs a pidfd: `out_of_resources` without a descriptor.
[[nodiscard]] result<bool> is_trusted(const file& socket, const ucred& other) noexcept;

}  // namespace pinfold::os
