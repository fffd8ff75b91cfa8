// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Pinning a record for the calling thread, without the mutex.
#pragma once

#include "index/record_page.hpp"

#include <pinfold/detail/ledger.hpp>

#include <atomic>
#include <cstdint>

namespace pinfold::core {

/// Pins the record in the thread's cell for it. Returns 0 if the cell is taken.
[[nodiscard, gnu::always_inline]] inline detail::pin pin_in_cell(detail::ledger& mine, detail::record* one) noexcept {
  detail::pin_cell& cell = mine.cell_of(one);
  if (cell.load(std::memory_order_acquire) != 0) [[unlikely]]
    return 0;
  detail::store_before_barrier(cell, reinterpret_cast<std::uintptr_t>(one));
  return reinterpret_cast<detail::pin>(&cell) | detail::in_cell;
}

/// Pins the record in its entry's own counter.
[[nodiscard]] inline detail::pin pin_in_entry(detail::record* one) noexcept {
  index::record_page::entry_of(one).own_pins().fetch_add(1, std::memory_order_seq_cst);
  return reinterpret_cast<detail::pin>(one) | detail::in_entry;
}

/// Pins the record where there is room: in a cell, in a slot, in its entry. `mine`: null for a thread without a ledger.
[[nodiscard]] inline detail::pin pin_now(detail::ledger* mine, detail::record* one) noexcept {
  if (mine == nullptr) return pin_in_entry(one);
  if (const auto held = pin_in_cell(*mine, one); held != 0) return held;
  return mine->add(one) ? reinterpret_cast<detail::pin>(one) : pin_in_entry(one);
}

}  // namespace pinfold::core
