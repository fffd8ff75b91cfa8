// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The cache's record of one registration, and the transitions that its state may make.
#pragma once

#include "os/barrier.hpp"
#include "os/check.hpp"

#include <pinfold/access.hpp>
#include <pinfold/detail/ledger.hpp>
#include <pinfold/statistics.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::index {

/// Returns the pins in an entry's own counter. Under the policy `fences` all hits pin there. Adding 0 then orders this
/// read after the word's last change and before every later hit, since both sides modify the same variable.
[[nodiscard]] inline std::int32_t counted_in(std::atomic<std::int32_t>& own_pins) noexcept {
  const bool alone = os::barrier_in_use() == os::barrier_policy::fences;
  return alone ? own_pins.fetch_add(0, std::memory_order_acq_rel) : own_pins.load(std::memory_order_acquire);
}

/// The lists that an entry may be in, at most one at a time.
enum class list_id : std::uint8_t {
  none,
  reusable,     ///< live: eviction's hand goes round it
  leased,       ///< live, and pinned when last checked: its next release puts it back into the ring
  chosen,       ///< evicting, not yet sorted by its pins since hits were stopped
  evicting,     ///< evicting: closed when room is needed
  retired,      ///< draining, not yet sorted by its pins since hits were stopped
  held,         ///< draining, and pinned when last checked
  queued,       ///< draining without a pin: its close is due
  quarantined,  ///< the driver refused to close it
};

struct entry;

/// The address of an entry, or null, in 4 bytes. Usable on any thread that may know the entry (`record_page`).
class entry_link {
 public:
  entry_link() noexcept = default;
  entry_link(const entry* to) noexcept;
  [[nodiscard]] entry* get() const noexcept;

 private:
  std::uint32_t number_ = 0;
};

/// One registration, without the part that a hit reads. Its memory is type-stable: it lies in the page of its record,
/// and is reused only for entries. `record_page` computes the address, so that no entry stores it.
///
/// The shard's mutex guards everything except what `detail::record` names and the fields that the driver works on,
/// which belong to the thread that made the entry `opening` or `closing`.
struct entry {
  // Links of the list `in`.
  entry_link previous;
  entry_link next;  ///< also links free entries

  std::size_t bytes = 0;                          ///< counted bytes, in the budget or as bypass
  std::atomic<std::uint64_t> owner_and_hits = 0;  ///< low: hits sampled by any thread; above: the opener's thread id
  std::uint32_t opened_at = 0;                    ///< in `ticks`

  entry_state state = entry_state::free;
  access_flags access = access_flags::none;
  bool doomed : 1 = false;      ///< opening, and hidden from requests, also once it is open
  bool persistent : 1 = false;  ///< never evicted or flushed, until `unpersist`
  bool unshared : 1 = false;    ///< for one lease: never found by another request
  bool bypass : 1 = false;      ///< outside the budget, closed by its last release
  bool in_driver : 1 = false;   ///< opening, and in the driver now
  bool near : 1 = false;        ///< opening, and overlaps an entry that was findable when the later of them was claimed
  bool merged : 1 = false;      ///< opening, and covers more than its opener requested
  bool disturbed : 1 = false;   ///< opening, and an overlapping entry was closed since the driver was called
  list_id in : 4 = list_id::none;
  bool counted : 1 = false;  ///< counted in the budget
  bool apart : 1 = false;    ///< in the index of entries that only leases hold
  bool spared : 1 = false;   ///< hit, but the sweep read `visited` first: eviction's hand spares it
  bool used : 1 = true;      ///< new, or hit, but the hand read `visited` first: the next sweep spares it

  [[nodiscard]] entry_state now() const noexcept { return state; }

  // The record and its fields. The key is constant while the entry is in the index.
  [[nodiscard]] detail::record* hot() const noexcept;
  [[nodiscard]] peer_id peer() const noexcept;
  [[nodiscard]] range covered() const noexcept { return hot()->covered(); }
  void cover(const range& where) noexcept;

  /// Returns a pointer to the time when eviction's hand last found the entry in use; null: not kept.
  [[nodiscard]] std::uint32_t* used_at() const noexcept;

  /// Returns the local address of `covered().begin`.
  [[nodiscard]] std::uintptr_t data() const noexcept;

  /// Returns the era: it distinguishes an entry claimed before an invalidation was read from one claimed after it
  /// (engine_events.cpp). At most `last_era`.
  [[nodiscard]] std::uint32_t era() const noexcept;
  void set_era(std::uint32_t now) noexcept;
  static constexpr std::uint32_t last_era = (1U << 24U) - 1;

  /// Returns the count of pins that are not in a ledger; any thread changes it.
  [[nodiscard]] std::atomic<std::int32_t>& own_pins() const noexcept;

  void count_hits(std::uint64_t more) noexcept { owner_and_hits.fetch_add(more, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t hits() const noexcept {
    return owner_and_hits.load(std::memory_order_relaxed) & ((std::uint64_t{1} << hit_bits) - 1);
  }
  /// Sets the owner, and the hits to 0. Kernel thread ids have at most 22 bits (PID_MAX_LIMIT).
  void set_owner(std::int32_t thread) noexcept {
    PINFOLD_ASSERT(thread >= 0 && thread >> (64 - hit_bits) == 0, "the id of a thread fits above the hits");
    owner_and_hits.store(static_cast<std::uint64_t>(thread) << hit_bits, std::memory_order_relaxed);
  }
  static constexpr unsigned hit_bits = 42;  ///< of `owner_and_hits`
  [[nodiscard]] std::int32_t owner() const noexcept {
    return static_cast<std::int32_t>(owner_and_hits.load(std::memory_order_relaxed) >> hit_bits);
  }

  /// Returns, for eviction's hand, whether the entry was hit since the hand last passed.
  [[nodiscard]] bool visited_since_hand() noexcept {
    const bool visited = take_visit() || spared;
    spared = false;
    return visited;
  }
  /// Returns, for the idle sweep, whether the entry was hit since the last sweep.
  [[nodiscard]] bool visited_since_sweep() noexcept {
    const bool visited = take_visit() || used;
    used = false;
    return visited;
  }

  /// Returns whether requests may find the entry.
  [[nodiscard]] bool findable() const noexcept {
    return state == entry_state::live || state == entry_state::evicting || (state == entry_state::opening && !doomed);
  }

  /// Returns all pins: leases, and threads that wait for the opener. Exact if no hit can add a pin: the entry is not
  /// hittable, and a barrier (`order_everywhere`) followed. From then on the sum only falls, and 0 is final.
  [[nodiscard]] std::int64_t pins() const noexcept { return counted_in(own_pins()) + detail::ledger::sum(hot()); }

  /// Makes a transition of the table in `docs/understand/protocol.md`; any other is a broken invariant.
  void become(entry_state next_state) noexcept {
    PINFOLD_INVARIANT(may_become(now(), next_state), "the protocol allows this change of state");
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
  // Hits set one flag, which eviction's hand and the idle sweep read at different times: each records a visit for the
  // other.
  [[nodiscard]] bool take_visit() noexcept {
    auto& visited = hot()->visited;
    if (visited.load(std::memory_order_relaxed) == 0) return false;
    visited.store(0, std::memory_order_relaxed);
    return spared = used = true;
  }
};

/// Returns the pins, at least 0, plus 1 for the opener of an entry that is being opened. While the entry is hittable,
/// concurrent hits and releases make the sum inexact.
[[nodiscard]] inline std::uint64_t pins_of(const entry& one) noexcept {
  const auto pins = one.pins() + (one.now() == entry_state::opening ? 1 : 0);
  return pins < 0 ? 0 : static_cast<std::uint64_t>(pins);
}

}  // namespace pinfold::index
