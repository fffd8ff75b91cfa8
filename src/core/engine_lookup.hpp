// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Hits without the mutex.
#pragma once

#include "core/engine_closing.hpp"
#include "os/probes.hpp"

namespace pinfold::detail {

class engine_lookup : public engine_closing {
 public:
  using engine_closing::engine_closing;

  [[nodiscard]] grant look_up(std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept;
  [[nodiscard]] grant look_up(peer_id peer, range wanted, const void* token) noexcept;
  [[nodiscard]] grant look_up(const request& what) noexcept;
  [[nodiscard]] static const hit_view& no_hits() noexcept;
  /// Returns the view for the inline hits of caches: one that never hits if a monitor has to be asked first.
  [[nodiscard]] const hit_view& inline_view() const noexcept { return monitors_.strict() ? no_hits() : view_; }

 protected:
  [[nodiscard]] grant look_up_any(std::uintptr_t begin, std::uintptr_t end, access_flags need, asked_by caller,
                                  pin failed) noexcept;
  [[nodiscard]] grant look_up_any(peer_id peer, range wanted, const void* token, asked_by caller, pin failed) noexcept;
  void count_hit(ledger* mine, record* found, std::uintptr_t key, asked_by caller) noexcept;

 private:
  [[nodiscard]] static record* first_that_covers(const shard& in, peer_id peer, const range& wanted) noexcept;
  [[nodiscard]] grant hit_first(record* one, std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept;
  [[nodiscard]] grant hit_again(record* one, std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept;
  [[nodiscard]] grant hit_again(record* one, peer_id peer, range wanted, const void* token) noexcept;
  [[nodiscard]] bool serves(const record& one, peer_id peer, const range& wanted, const void* token) const noexcept;
  [[nodiscard]] grant finish_hit(ledger& mine, record* found, std::uintptr_t key, grant got) const noexcept;

  /// Calls `stop(record*)` for records that may cover `wanted`, until it returns true; returns that record, or null.
  template <class F>
  [[gnu::always_inline]] record* find_record(peer_id peer, const range& wanted, F&& stop) const noexcept {
    const auto& map = shards_.map();
    if (!map.smallest_only()) [[unlikely]]
      return find_in_cells(peer, wanted, stop);
    return shards_[map.shard_at_smallest(wanted.begin)].hits.find(peer, wanted, stop);
  }
  template <class F>
  [[gnu::noinline]] record* find_in_cells(peer_id peer, const range& wanted, F& stop) const noexcept {
    const auto& map = shards_.map();
    record* found = nullptr;
    map.for_levels_from(map.level_of(wanted), [&](unsigned level) {
      found = shards_[map.shard_at(level, wanted.begin)].hits.find(peer, wanted, stop);
      return found != nullptr;
    });
    return found;
  }
};

}  // namespace pinfold::detail
