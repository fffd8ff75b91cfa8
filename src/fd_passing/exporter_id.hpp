// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The exporter of a descriptor that another process may fetch.
#pragma once

#include <compare>
#include <cstdint>
#include <sys/types.h>

namespace pinfold::fd_passing {

/// Identifies an exporter, even if its process number is reused.
struct exporter_id {
  std::uint64_t exporter;    ///< random number of the exporter object
  std::uint64_t start_time;  ///< of the exporter's process, in clock ticks since boot (proc(5), field 22)
  std::int32_t pid;          ///< of the exporter's process, in its own PID namespace
  friend auto operator<=>(const exporter_id&, const exporter_id&) noexcept = default;
};

/// One descriptor of an exporter.
struct file_identity {
  dev_t device = 0;
  ino_t inode = 0;  ///< 0: unknown
};

struct fd_request {
  exporter_id from;
  std::uint64_t serial;          ///< the number that a request to the socket carries
  std::int32_t descriptor = -1;  ///< the number for pidfd_getfd(2); -1 if only the socket gives the descriptor
  file_identity file{};          ///< behind `descriptor`
};

/// How to fetch a descriptor.
enum class transport : std::uint8_t {
  automatic,  ///< `pidfd`, and `scm` if pidfd_getfd(2) is not permitted
  pidfd,      ///< pidfd_getfd(2)
  scm,        ///< SCM_RIGHTS over the exporter's socket
};

}  // namespace pinfold::fd_passing
