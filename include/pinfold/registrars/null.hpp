// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A registrar that does nothing, to measure the cost of the cache itself.
#pragma once

#include <pinfold/registrar.hpp>

#include <cstdint>

namespace pinfold {

/// A registrar for benchmarks. Grants all access to any range; the registration's key is the range's address.
class null_registrar {
 public:
  static constexpr const char* name = "null";         ///< shown in events and dumps
  static constexpr bool cancellation_points = false;  ///< it makes no system call
  /// What an open makes.
  struct registration_type {
    std::uint64_t key;  ///< the first address
  };

  /// Returns limits without a limit.
  [[nodiscard]] registrar_limits limits() const noexcept {
    return {.supported =
                local_access | access_flags::remote_read | access_flags::remote_write | access_flags::remote_atomic};
  }
  /// Returns the key. Errors: those of `check_request`.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
    return registration_type{memory.begin};
  }
  /// Does nothing.
  [[nodiscard]] result<void> close(const registration_type& /*registration*/) noexcept { return {}; }
};

}  // namespace pinfold
