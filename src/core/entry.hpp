// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The cache's record of one registration, and the transitions that its state may make.
#pragma once

#include "core/barrier.hpp"
#include "core/check.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/ledger.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

using detail::engine;

/// Why the next request for the same memory will have to open it again.
enum class miss_reason : std::uint8_t { cold, invalidated, rights, extent, evicted };

/// The pins in an entry's own counter. Where hits are counted there alone, adding nothing orders this look after the
/// word's last change and before every later hit: both sides change the one variable.
[[nodiscard]] inline std::int32_t counted_in(std::atomic<std::int32_t>& own_pins) noexcept {
  const bool alone = barrier_in_use() == barrier_policy::fences;
  return alone ? own_pins.fetch_add(0, std::memory_order_acq_rel) : own_pins.load(std::memory_order_acquire);
}

/// One registration: all that a hit does not need. Its memory is type-stable: it lies in the page of its record, and is
/// reused for other entries. Where is said by `record_page`, so that no entry spends room on it.
///
/// Guard: everything is guarded by the engine's mutex, except what `detail::record` says, and what the driver works on,
/// which is the business of the one thread that made the entry `opening` or `closing`.
struct entry {
  // Links. An entry is in at most one list.
  entry* previous = nullptr;
  entry* next = nullptr;  ///< also links free entries

  std::size_t bytes = 0;                          ///< what it counts, in the budget or as bypass
  std::atomic<std::uint64_t> owner_and_hits = 0;  ///< hits sampled by any thread, above them the thread that opened it
  std::uint32_t opened_at = 0;                    ///< in `ticks`

  entry_state state = entry_state::free;
  rights access = rights::none;
  bool doomed : 1 = false;      ///< opening, and not to be found when it will be open
  bool persistent : 1 = false;  ///< never evicted: it is closed only when it is told to go
  bool unshared : 1 = false;    ///< for one lease: never found by another request
  bool bypass : 1 = false;      ///< outside the budget, closed by its last release
  bool queued : 1 = false;      ///< draining, and its close is due
  bool in_driver : 1 = false;   ///< opening, and the driver is at work on it now
  bool near : 1 = false;        ///< opening, and there is or was something else that can be found and overlaps it
  bool disturbed : 1 = false;   ///< opening, and something that overlaps it was closed since the driver was asked
  bool counted : 1 = false;     ///< whether the budget holds a place for it
  bool spared : 1 = false;      ///< to be spared by eviction's hand: hit, but the sweep asked first
  bool used : 1 = true;         ///< to be spared by the next sweep: new, or hit, but the hand asked first

  [[nodiscard]] entry_state now() const noexcept { return state; }

  // Its record and what stands there: the key is constant while the entry is in the index.
  [[nodiscard]] detail::record* hot() const noexcept;
  [[nodiscard]] peer_id peer() const noexcept;
  [[nodiscard]] range covered() const noexcept { return hot()->covered(); }
  void cover(const range& where) noexcept;

  /// Where `covered().begin` is in this process.
  [[nodiscard]] std::uintptr_t data() const noexcept;

  /// Tells what was there before a piece of news from what came after it (engine_news.cpp). At most `last_era`.
  [[nodiscard]] std::uint32_t era() const noexcept;
  void set_era(std::uint32_t now) noexcept;
  static constexpr std::uint32_t last_era = (1U << 24U) - 1;

  /// The pins that are in no thread's ledger; changed by any thread.
  [[nodiscard]] std::atomic<std::int32_t>& own_pins() const noexcept;

  void count_hits(std::uint64_t more) noexcept { owner_and_hits.fetch_add(more, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t hits() const noexcept {
    return owner_and_hits.load(std::memory_order_relaxed) & ((std::uint64_t{1} << hit_bits) - 1);
  }
  /// Kernel thread ids have 22 bits at most (PID_MAX_LIMIT). No hits are counted yet.
  void set_owner(std::int32_t thread) noexcept {
    owner_and_hits.store(static_cast<std::uint64_t>(thread) << hit_bits, std::memory_order_relaxed);
  }
  [[nodiscard]] std::int32_t owner() const noexcept {
    return static_cast<std::int32_t>(owner_and_hits.load(std::memory_order_relaxed) >> hit_bits);
  }

  /// Whether it was hit since eviction's hand passed, for the hand.
  [[nodiscard]] bool visited_since_hand() noexcept {
    const bool visited = take_visit() || spared;
    spared = false;
    return visited;
  }
  /// Whether it was hit since the last sweep for what is idle, for the sweep.
  [[nodiscard]] bool visited_since_sweep() noexcept {
    const bool visited = take_visit() || used;
    used = false;
    return visited;
  }

  /// Whether requests may find it.
  [[nodiscard]] bool findable() const noexcept {
    return state == entry_state::live || state == entry_state::evicting || (state == entry_state::opening && !doomed);
  }

  /// All pins: leases, the opener, and who waits for the opener. Exact when no hit can come in: the entry is not
  /// hittable, and everybody knows (`order_everywhere`). It then only falls, and 0 is final.
  [[nodiscard]] std::int64_t pins() const noexcept { return counted_in(own_pins()) + detail::ledger::sum(hot()); }

  /// Makes a transition of the table in `docs/protocol.md`; any other is a broken invariant.
  void become(entry_state next_state) noexcept {
    PINFOLD_INVARIANT(may_become(now(), next_state), "a transition that the protocol does not have");
    state = next_state;
  }

  [[nodiscard]] static constexpr bool may_become(entry_state from, entry_state to) noexcept {
    using enum entry_state;
    switch (from) {
      case free: return to == opening;
      case opening: return to == live || to == draining || to == failed || to == quarantined;
      case failed: return to == free;
      case live: return to == evicting || to == draining || to == closing;
      case evicting: return to == live || to == draining || to == closing;
      case draining: return to == closing;
      case closing: return to == free || to == quarantined;
      case quarantined: return to == closing;
    }
    return false;
  }

 private:
  // Hits set one flag; two look for it, at different times.
  [[nodiscard]] bool take_visit() noexcept {
    auto& visited = hot()->visited;
    if (visited.load(std::memory_order_relaxed) == 0) return false;
    visited.store(0, std::memory_order_relaxed);
    return spared = used = true;
  }

  static constexpr unsigned hit_bits = 42;
};

/// While hits come in, the sum may be off by those that come and go.
[[nodiscard]] inline std::uint64_t pins_of(const entry& one) noexcept {
  const auto pins = one.pins();
  return pins < 0 ? 0 : static_cast<std::uint64_t>(pins);
}

}  // namespace pinfold::core
