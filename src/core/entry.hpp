// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The cache's record of one registration, and the transitions that its state may make.
#pragma once

#include "core/barrier.hpp"
#include "core/check.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/ledger.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

using detail::engine;

/// Why the next request for the same memory will have to open it again.
enum class miss_reason : std::uint8_t { cold, invalidated, rights, extent, evicted };

/// One registration: all that a hit does not need. Its memory is type-stable: it is reused for other entries, and freed
/// only with the engine.
///
/// Guard: everything is guarded by the engine's mutex, except what `detail::record` says, and what the driver works on,
/// which is the business of the one thread that made the entry `opening` or `closing`.
struct entry {
  detail::record* hot = nullptr;                  ///< its part that hits and leases look at; always the same
  std::atomic<std::int32_t>* own_pins = nullptr;  ///< those in no thread's ledger; changed by any thread

  entry_state state = entry_state::free;

  // The key. Constant while the entry is in an index.
  peer_id peer{};
  range covered{};

  // Links. An entry is in at most one list.
  entry* left = nullptr;
  entry* right = nullptr;
  peer_id furthest_peer{};  ///< of this subtree, with `furthest_end` the largest (peer, end)
  std::uintptr_t furthest_end = 0;
  std::uint32_t sequence = 0;  ///< when it was inserted in its index
  entry* previous = nullptr;
  entry* next = nullptr;  ///< also links free entries

  rights access = rights::none;
  bool doomed = false;      ///< opening, and not to be found when it will be open
  bool persistent = false;  ///< never evicted: it is closed only when it is told to go
  bool unshared = false;    ///< for one lease: never found by another request
  bool bypass = false;      ///< outside the budget, closed by its last release
  bool queued = false;      ///< draining, and its close is due
  bool in_driver = false;   ///< opening, and the driver is at work on it now
  bool disturbed = false;   ///< opening, and something that overlaps it was closed since the driver was asked

  std::size_t bytes = 0;               ///< what it counts, in the budget or as bypass
  bool counted = false;                ///< whether the budget holds a place for it
  void* data = nullptr;                ///< where `covered.begin` is in this process
  error failure{};                     ///< why the open failed, for those who waited for it
  std::atomic<std::uint64_t> hits{0};  ///< sampled by any thread
  std::chrono::steady_clock::time_point opened_at{};
  std::int32_t owner_thread = 0;

  [[nodiscard]] entry_state now() const noexcept { return state; }

  /// Whether requests may find it.
  [[nodiscard]] bool findable() const noexcept {
    return state == entry_state::live || state == entry_state::evicting || (state == entry_state::opening && !doomed);
  }

  /// All pins: leases, the opener, and who waits for the opener. Exact when no hit can come in: the entry is not
  /// hittable, and everybody knows (`order_everywhere`). It then only falls, and 0 is final.
  ///
  /// Where hits are counted here alone, adding nothing orders this look after the word's last change and before every
  /// later hit: both sides change the one variable.
  [[nodiscard]] std::int64_t pins() const noexcept {
    const bool alone = barrier_in_use() == barrier_policy::fences;
    const auto own =
        alone ? own_pins->fetch_add(0, std::memory_order_acq_rel) : own_pins->load(std::memory_order_acquire);
    return own + detail::ledger::sum(hot);
  }

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
};

}  // namespace pinfold::core
