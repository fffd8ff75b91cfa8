// SPDX-License-Identifier: BSD-3-Clause
// Finding entries for requests, and pins on them.
#include "core/entry_table.hpp"

#include <cstring>

namespace pinfold::core {

bool entry_table::same_token(const entry& one, const void* token) const noexcept {
  const auto* own = reinterpret_cast<const std::byte*>(one.hot()) + token_offset_;
  return token_bytes_ == 0 || std::memcmp(own, token, token_bytes_) == 0;
}

void entry_table::scan(const request& what, const range& extent, lookup_result& seen) const noexcept {
  seen.match = seen.other_token = seen.twin = nullptr;
  seen.around = access_flags::none;
  seen.beside = seen.near = false;
  seen.alone = index_.find_alone(what.peer, extent, seen.place);
  if (seen.alone) return;
  if (ignores_hidden()) return scan_local(what, extent, seen);
  index_.find_overlap(what.peer, extent, [&](entry& one) {
    if (!one.findable()) {
      if (!allows_duplicates_ && seen.twin == nullptr && same_token(one, what.token)) seen.twin = &one;
      return false;
    }
    seen.near = true;
    if (what.persistent && one.bypass) return false;  // it ends with its last lease
    seen.beside = seen.beside || one.covered().overlaps(what.wanted);
    if (!one.covered().contains(what.wanted)) return false;
    if (!same_token(one, what.token)) {
      if (seen.other_token == nullptr) seen.other_token = &one;
      return false;
    }
    seen.around = seen.around | one.access;
    if (!contains_all(one.access, what.need)) return false;
    seen.match = &one;
    return one.now() != entry_state::opening;
  });
}

// Scans where no hidden entry is in the way of a request. Visits one by one only the entries that contain the request:
// of the others it matters only whether there is one.
void entry_table::scan_local(const request& what, const range& extent, lookup_result& seen) const noexcept {
  const auto usable = [&](const entry& one) {
    return one.findable() && !(what.persistent && one.bypass);  // a bypass ends with its last lease
  };
  index_.find_overlap(what.peer, extent, [&](const entry& one) {
    seen.near = seen.near || one.findable();
    return seen.beside = usable(one) && one.covered().overlaps(what.wanted);
  });
  if (!seen.beside) return;
  index_.find_containing(what.peer, what.wanted, [&](entry& one) {
    if (!usable(one)) return false;
    seen.around = seen.around | one.access;
    if (!contains_all(one.access, what.need)) return false;
    seen.match = &one;
    return one.now() != entry_state::opening;
  });
}

const entry* entry_table::opening_there(peer_id peer, const range& where) const noexcept {
  const auto is_opening = [](const entry& one) { return one.findable() && one.now() == entry_state::opening; };
  return index_.find_overlap(peer, where, is_opening);
}

bool entry_table::is_pinned_there(peer_id peer, const range& where) const noexcept {
  bool pinned = false;
  visit_overlaps(peer, where, [&](const entry& one) { return pinned = index::pins_of(one) > 0; });
  return pinned;
}

bool entry_table::may_be_transient(const entry& pinned) noexcept {
  using detail::ledger;
  const auto pins = pinned.pins();
  return pins > 0 && !ledger::held_here(pinned.hot()) && static_cast<std::size_t>(pins) <= ledger::others();
}

void entry_table::note_pinned(const entry& kept_open) noexcept {
  saw_transient_ = saw_transient_ || may_be_transient(kept_open);
}

}  // namespace pinfold::core
