// SPDX-License-Identifier: BSD-3-Clause
// The room that entries take in the budget, or outside of it as a bypass (R7, R12).
#include "core/transition.hpp"

namespace pinfold::core {

void entry_table::go_without_room(entry& opening, std::size_t bytes) noexcept {
  PINFOLD_ASSERT(!opening.counted, "bytes are in the budget or beside it");
  opening.bytes += bytes;
  parts_.counts.add(counter::bypass_bytes, bytes);
}

void entry_table::turn_into_bypass(entry& opening, std::size_t more_bytes) noexcept {
  const transition of(*this, opening);
  PINFOLD_ASSERT(opening.now() == entry_state::opening && !opening.persistent, "a bypass ends with its last lease");
  if (opening.counted) parts_.room.give(opening.bytes, 1);
  opening.counted = false;
  opening.bypass = true;
  opening.bytes += more_bytes;
  parts_.counts.add(counter::bypasses);
  parts_.counts.add(counter::bypass_bytes, opening.bytes);
}

void entry_table::shrink(entry& opening, std::size_t bytes) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening, "the room of an open entry is constant");
  PINFOLD_ASSERT(bytes <= opening.bytes, "an entry shrinks");
  const std::size_t less = opening.bytes - bytes;
  opening.bytes = bytes;
  if (opening.counted) parts_.room.give(less, 0);
  if (!opening.counted) parts_.counts.subtract(counter::bypass_bytes, less);
}

void entry_table::charge(entry& opening, std::size_t bytes) noexcept {
  PINFOLD_ASSERT(opening.now() == entry_state::opening, "the room of an open entry is constant");
  if (!opening.counted) return go_without_room(opening, bytes);
  parts_.room.charge(bytes);
  opening.bytes += bytes;
}

void entry_table::give_room_back(entry& closed) noexcept {
  if (closed.counted) parts_.room.give(closed.bytes, 1);
  if (closed.bypass && !closed.counted) parts_.counts.subtract(counter::bypass_bytes, closed.bytes);
  closed.counted = false;
}

}  // namespace pinfold::core
