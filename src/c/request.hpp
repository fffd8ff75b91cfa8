// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Requests for local memory, checked.
#pragma once

#include "c/cache.hpp"

#include <cstdint>

namespace pinfold::c {

struct options_of_request {
  bool persistent = false;
  bool bypass = false;
  int file = -1;
  void* argument = nullptr;
};

/// Returns whether these are bits of access, and at least one.
[[nodiscard]] constexpr bool is_access(std::uint32_t bits) noexcept {
  return bits - 1U < 2U * PINFOLD_REMOTE_ATOMIC - 1;
}

/// Returns the engine's request.
[[nodiscard]] inline result<detail::request> asked(const pinfold_cache& cache, const void* address, std::size_t bytes,
                                                   std::uint32_t access, const options_of_request& how) noexcept {
  const auto wanted = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  if (!wanted) return tl::unexpected(wanted.error());
  if (!is_access(access)) return fail(errc::invalid_argument, "the access is 0, or has unknown bits");
  return detail::request{.wanted = *wanted,
                         .need = static_cast<access_flags>(access),
                         .persistent = how.persistent && cache.keeps,
                         .unshared = how.bypass || !cache.keeps,
                         .unbudgeted = how.bypass,
                         .file = how.file,
                         .argument = how.argument};
}

}  // namespace pinfold::c
