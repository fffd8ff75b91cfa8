// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A registrar that records in each registration the last event of its memory before it, and registers with io_uring
/// where the bytes are to be checked.
#pragma once

#include "arena.hpp"

#include <pinfold/registrars/io_uring.hpp>

#include <cerrno>
#include <optional>
#include <sys/mman.h>
#include <utility>

namespace pinfold::testing::hazard_fuzz {

class stamped_registrar {
 public:
  static constexpr const char* name = "stamped";
  struct registration_type {
    std::uint64_t stamp;  ///< the number of the last event of the slot before the registration
    std::uint32_t index;  ///< io_uring's buffer
  };

  /// Without `real` registration is fast, and there are no bytes to check.
  stamped_registrar(const arena& slots, std::optional<io_uring_registrar> real)
      : slots_(&slots), real_(std::move(real)) {}

  [[nodiscard]] registrar_limits limits() const noexcept {
    return real_ ? real_->limits() : registrar_limits{.granularity = page_bytes};
  }

  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    const auto stamp = slots_->now_at(memory.begin);  // before the pages are pinned
    if (!real_) return pinned(memory, stamp);
    const auto made = real_->open(memory, access);
    if (!made) return tl::unexpected(made.error());
    return registration_type{stamp, made->index};
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    return real_ ? real_->close({made.index}) : result<void>{};
  }

 private:
  /// Faults the pages in, as drivers do that pin them; refuses unmapped memory.
  [[nodiscard]] static result<registration_type> pinned(const range& memory, std::uint64_t stamp) noexcept {
    constexpr int populate_write = 23;  // Linux 5.14
    const auto begin = memory.begin / page_bytes * page_bytes;
    if (::madvise(reinterpret_cast<void*>(begin), memory.end - begin, populate_write) != 0)
      return fail_errno(errc::invalid_range, errno, "the memory is not mapped");
    return registration_type{stamp, 0};
  }

  const arena* slots_;
  std::optional<io_uring_registrar> real_;
};

}  // namespace pinfold::testing::hazard_fuzz
