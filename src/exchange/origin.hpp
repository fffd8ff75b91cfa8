// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Who has a descriptor that another process may fetch.
#pragma once

#include <compare>
#include <cstdint>

namespace pinfold::exchange {

/// An exporter, known again although process numbers are reused.
struct origin {
  std::uint64_t exporter;    ///< random number of the exporter object
  std::uint64_t start_time;  ///< of its process, in clock ticks since boot (proc(5), field 22)
  std::int32_t pid;          ///< of its process, in its own PID namespace
  friend auto operator<=>(const origin&, const origin&) noexcept = default;
};

/// One descriptor of an exporter.
struct wanted {
  origin from;
  std::uint64_t serial;          ///< what its socket is asked for
  std::int32_t descriptor = -1;  ///< the number that pidfd_getfd(2) is asked for; -1 when only the socket has it
};

/// How to fetch it.
enum class way : std::uint8_t {
  automatic,  ///< `pidfd`, and `scm` where that is not permitted
  pidfd,      ///< pidfd_getfd(2)
  scm,        ///< SCM_RIGHTS over the exporter's socket
};

}  // namespace pinfold::exchange
