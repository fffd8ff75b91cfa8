// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/segments.hpp"

#include "monitors/hooks/ranges.hpp"
#include "os/check.hpp"

namespace pinfold::monitors {

void segments::attached(std::uintptr_t at, std::size_t bytes) noexcept {
  PINFOLD_ASSERT(at % ranges::page == 0, "segments are attached to whole pages");
  take(at);  // drops the record of a segment that munmap removed
  const std::uint64_t pages = ranges::up(bytes) / ranges::page;
  if (pages >> size_bits != 0) return;
  any_.store(true, std::memory_order_seq_cst);
  for (auto& each : known_) {
    std::uint64_t none = 0;
    if (each.compare_exchange_strong(none, (at / ranges::page) << size_bits | pages, std::memory_order_seq_cst)) return;
  }
}

range segments::detached(std::uintptr_t at) noexcept {
  const auto pages = take(at);
  return pages == 0 ? range{at, UINTPTR_MAX} : ranges::pages_of_any_size(at, pages * ranges::page);
}

// Removes the record at `at` and returns its number of pages, or 0. At most one record of an address has pages.
std::uint64_t segments::take(std::uintptr_t at) noexcept {
  std::uint64_t pages = 0;
  for (auto& each : known_) {
    auto seen = each.load(std::memory_order_seq_cst);
    if (seen >> size_bits != at / ranges::page || !each.compare_exchange_strong(seen, 0, std::memory_order_seq_cst))
      continue;
    pages = seen & ((std::uint64_t{1} << size_bits) - 1);
  }
  return pages;
}

void segments::forget_all() noexcept {
  any_.store(false, std::memory_order_seq_cst);
  for (auto& each : known_) each.store(0, std::memory_order_seq_cst);
}

}  // namespace pinfold::monitors
