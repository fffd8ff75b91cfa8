// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A thread's record of its pins, in memory of its own, so that hits write no shared memory. Not for users; it may
/// change in any release.
#pragma once

#include <pinfold/detail/record.hpp>
#include <pinfold/export.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#define PINFOLD_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PINFOLD_THREAD_SANITIZER 1
#endif
#endif

namespace pinfold::detail {

/// Orders the store of a pin, and the store that gives it back, before the load of the record's word that follows.
inline void order_on_hit() noexcept {
#if defined(PINFOLD_THREAD_SANITIZER)
  // The thread sanitizer does not support fences: in its builds the stores are sequentially consistent exchanges.
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Stores a pin's word; `order_on_hit` follows.
inline void store_before_barrier(std::atomic<std::uint64_t>& where, std::uint64_t what) noexcept {
#if defined(PINFOLD_THREAD_SANITIZER)
  where.exchange(what, std::memory_order_seq_cst);
#else
  where.store(what, std::memory_order_release);
#endif
}

/// One thread's pins, in all caches, and its recent hits.
///
/// A *cell* has one pin: only the owner fills a cell, when it is empty; the thread that gives the pin back empties it.
/// A *slot* counts further pins. It is one word: a record, and a count: +1 for each pin that this thread took here, -1
/// for each that it gave back, also if another thread took that pin. Only the sum over all ledgers and the entry's own
/// counter has a meaning. This sum is always right, because a slot changes its record at count 0 only, and no ledger is
/// ever freed. When its thread ends, a ledger stays as it is, and a later thread takes it over.
///
/// Only the owner may pin and count hits; any thread may call the other members.
class PINFOLD_EXPORT ledger {
 public:
  /// Returns this thread's ledger; makes it at the first call. Null if there is no memory, if the thread is ending, or
  /// if the kernel has no membarrier: then entries count all pins.
  [[nodiscard]] static ledger* of_this_thread() noexcept { return mine != &no_ledger ? mine : first_of_this_thread(); }

  /// Returns this thread's ledger; null before the first `of_this_thread`, and when the thread is ending.
  [[nodiscard]] static ledger* if_there() noexcept { return mine != &no_ledger ? mine : nullptr; }

  /// Returns this thread's ledger, or, for a thread that has none, one without hints.
  [[nodiscard]] static ledger& for_hints() noexcept { return *mine; }

  /// Returns the cell for this thread's first pin on the record.
  [[nodiscard]] pin_cell& cell_of(const record* one) noexcept { return cells_[number_of(one) % cell_count]; }

  /// Adds one pin to the record's slot, or takes one off. Returns false if the slot is in use for another record: then
  /// the caller must change the entry's own counter.
  [[nodiscard]] bool add(const record* one) noexcept { return change(one, 1, count_mask); }
  [[nodiscard]] bool subtract(const record* one) noexcept { return change(one, std::uint64_t(-1), 0); }

  /// Moves this thread's pin from its cell to the record's slot, from where any thread can give it back without knowing
  /// the cell. Returns false, and changes nothing, if the cell is another thread's, or the slot is in use for another
  /// record.
  [[nodiscard]] bool move_to_slot(pin_cell& cell, const record* one) noexcept;

  /// Returns a record that this thread hit recently under this key, or null. The record may have been reused since.
  [[nodiscard]] record* hint(std::uintptr_t key) noexcept {
    const auto word = std::atomic_ref(hints_[key % hint_count]).load(std::memory_order_relaxed);
    if (static_cast<std::uint16_t>(word) != tag_of(key)) return nullptr;
    return reinterpret_cast<record*>(word >> tag_bits);
  }
  void set_hint(std::uintptr_t key, record* hit) noexcept {
    const auto word = reinterpret_cast<std::uintptr_t>(hit) << tag_bits | tag_of(key);
    std::atomic_ref(hints_[key % hint_count]).store(word, std::memory_order_relaxed);
  }

  /// Counts a hit of a cache. Returns true once in `sampling` calls.
  [[nodiscard, gnu::always_inline]] bool count_hit(std::size_t cache) noexcept {
    const auto now = hits_[cache].load(std::memory_order_relaxed) + 1;
    hits_[cache].store(now, std::memory_order_relaxed);
    return now % sampling == 0;
  }
  static constexpr std::uint64_t sampling = 512;  ///< a smaller value slows hits by a third: threads share the counter

  /// Counts a hit of a cache's `find`, which does not count as an acquire.
  void count_find(std::size_t cache) noexcept {
    finds_[cache].store(finds_[cache].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// Returns the sum of all ledgers' pins on the record. `docs/understand/protocol.md` says what the caller may
  /// conclude from it.
  [[nodiscard]] static std::int64_t sum(const record* one) noexcept;

  /// Returns whether the calling thread has the record pinned.
  [[nodiscard]] static bool held_here(const record* one) noexcept;

  /// Returns the number of other threads that may pin; if pins are not in ledgers, the largest number possible.
  [[nodiscard]] static std::size_t others() noexcept;

  /// Returns the number of hits that all ledgers have ever counted for caches of this number.
  [[nodiscard]] static std::uint64_t hits(std::size_t cache) noexcept;
  [[nodiscard]] static std::uint64_t finds(std::size_t cache) noexcept;  ///< likewise for `find`

  /// Calls `each(const record*, count)` for every cell and slot that has pins, for the cells of a ledger first.
  template <class F>
  static void for_each(F&& each) {
    for (const ledger* one = all.load(std::memory_order_acquire); one != nullptr; one = one->next_) {
      for (const auto& cell : one->cells_)
        if (const auto held = cell.load(std::memory_order_acquire); held != 0) each(record_of(held), std::int64_t{1});
      for (const auto& slot : one->slots_) {
        const auto word = slot.load(std::memory_order_acquire);
        if (const auto count = held_by(word); count != 0) each(record_in(word), count);
      }
    }
  }

  static constexpr std::size_t most_caches = 256;  ///< numbers of caches with hit counts in ledgers; 0 is none

 private:
  // A slot's word: the record's address, below 2^48, above the count with a bias.
  static constexpr unsigned count_bits = 16;
  static constexpr std::uint64_t count_mask = (std::uint64_t{1} << count_bits) - 1;
  static constexpr std::uint64_t bias = std::uint64_t{1} << (count_bits - 1);
  static constexpr std::size_t cell_count = 256;
  static constexpr std::size_t slot_count = 1024;
  // A hint's word: the record's address above a tag. The tag has bits of the key that do not choose the hint's place,
  // so that a thread reads no useless record.
  static constexpr unsigned tag_bits = 16;
  static constexpr std::size_t hint_count = 131072;  // a thread touches only those that it uses

  ledger() noexcept;  // does not write the hints: their memory is zeroed
  constexpr explicit ledger(std::nullptr_t) noexcept : taken_(false), hints_{} {}

  static std::uint16_t tag_of(std::uintptr_t key) noexcept { return static_cast<std::uint16_t>(key / hint_count); }
  static std::size_t number_of(const record* one) noexcept { return reinterpret_cast<std::uintptr_t>(one) / 32; }
  static const record* record_in(std::uint64_t word) noexcept {
    return reinterpret_cast<const record*>(word >> count_bits);
  }
  static std::int64_t held_by(std::uint64_t word) noexcept {
    return static_cast<std::int64_t>(word & count_mask) - static_cast<std::int64_t>(bias);
  }
  [[nodiscard]] bool change(const record* one, std::uint64_t by, std::uint64_t limit) noexcept;

  [[nodiscard]] std::int64_t pins_on(const record* one) const noexcept;

  static ledger* first_of_this_thread() noexcept;
  static ledger* take_one() noexcept;

  static std::atomic<ledger*> all;  // a list, linked by next_, that only grows
  static ledger no_ledger;          // of all threads without one
  [[gnu::tls_model("initial-exec")]] static thread_local constinit ledger* mine;

  friend struct ledger_owner;  // returns the ledger when its thread ends

  alignas(64) std::array<pin_cell, cell_count> cells_{};
  std::array<std::atomic<std::uint64_t>, slot_count> slots_;
  std::array<std::atomic<std::uint64_t>, most_caches> hits_{};
  std::array<std::atomic<std::uint64_t>, most_caches> finds_{};
  std::atomic<bool> taken_{true};
  ledger* next_ = nullptr;
  std::array<std::uint64_t, hint_count> hints_;
};

}  // namespace pinfold::detail
