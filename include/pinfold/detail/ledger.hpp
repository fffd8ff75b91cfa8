// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where a thread writes down its pins: in memory that only it writes, so that hits share nothing. Not for users; it
/// may change in any release.
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

/// Between the store of a pin and the load of the record's word, and between the store that gives it back and that
/// load.
inline void order_on_hit() noexcept {
#if defined(PINFOLD_THREAD_SANITIZER)
  // It knows no fences: in its builds the stores are sequentially consistent exchanges.
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Stores a pin's word before that.
inline void store_before_barrier(std::atomic<std::uint64_t>& where, std::uint64_t what) noexcept {
#if defined(PINFOLD_THREAD_SANITIZER)
  where.exchange(what, std::memory_order_seq_cst);
#else
  where.store(what, std::memory_order_release);
#endif
}

/// One thread's pins, of all caches, and what it hit lately.
///
/// A *cell* has one pin: only the owner fills it, when it is empty, and whoever gives the pin back empties it. A *slot*
/// is for more of them: one word with a record, and how often it is pinned by this thread less how often this thread
/// gave back what others had in their slots. Only the sum over all ledgers and the entry's own counter means anything,
/// and it is always right: a slot changes its record at count 0 only, and no ledger is ever freed. When its thread
/// ends, a ledger stays as it is and is given to a later thread.
///
/// Pinning and counting hits are for the owner; everything else may be called by any thread.
class PINFOLD_EXPORT ledger {
 public:
  /// This thread's, made at its first call. Null when there is no memory, the thread is at its end, or the kernel has
  /// no barrier for it: then all pins are counted in the entries.
  [[nodiscard]] static ledger* of_this_thread() noexcept { return mine != nullptr ? mine : first_of_this_thread(); }

  /// Null before that call, and at the thread's end.
  [[nodiscard]] static ledger* if_there() noexcept { return mine; }

  /// Where a pin on that record belongs that this thread has no other of.
  [[nodiscard]] pin_cell& cell_of(const record* one) noexcept { return cells_[number_of(one) % cell_count]; }

  /// One pin more, or one fewer, in the record's slot. False when the slot is in use for another record: then the
  /// entry's own counter has to take it.
  [[nodiscard]] bool add(const record* one) noexcept { return change(one, 1, count_mask); }
  [[nodiscard]] bool subtract(const record* one) noexcept { return change(one, std::uint64_t(-1), 0); }

  /// A record that this thread hit lately, near such an address; never null, but it may be anything by now.
  [[nodiscard]] record* guess(std::uintptr_t key) const noexcept { return recent_[key % recent_count]; }
  void remember(std::uintptr_t key, record* hit) noexcept { recent_[key % recent_count] = hit; }

  /// Counts a hit of a cache. True every `sampling` times.
  [[nodiscard, gnu::always_inline]] bool count_hit(std::size_t cache) noexcept {
    const auto now = hits_[cache].load(std::memory_order_relaxed) + 1;
    hits_[cache].store(now, std::memory_order_relaxed);
    return now % sampling == 0;
  }
  static constexpr std::uint64_t sampling = 512;  ///< threads share an entry's counter: more often costs them a third

  /// Counts a hit of a cache's `find`, which is no acquire.
  void count_find(std::size_t cache) noexcept {
    finds_[cache].store(finds_[cache].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// How often all ledgers have the record pinned. What the caller may conclude is for the protocol to say.
  [[nodiscard]] static std::int64_t sum(const record* one) noexcept;

  /// Whether the calling thread has the record pinned.
  [[nodiscard]] static bool held_here(const record* one) noexcept;

  /// How many other threads may pin; where pins are not in ledgers, as many as there can be.
  [[nodiscard]] static std::size_t others() noexcept;

  /// The hits that all ledgers have ever counted for caches of this number.
  [[nodiscard]] static std::uint64_t hits(std::size_t cache) noexcept;
  [[nodiscard]] static std::uint64_t finds(std::size_t cache) noexcept;  ///< the same for `find`

  /// Calls `each(const record*, count)` for everything that is written down.
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

  static constexpr std::size_t most_caches = 256;  ///< alive at the same time, whose hits can be counted

 private:
  // A slot's word: the record's address, below 2^48, above the count with a bias.
  static constexpr unsigned count_bits = 16;
  static constexpr std::uint64_t count_mask = (std::uint64_t{1} << count_bits) - 1;
  static constexpr std::uint64_t bias = std::uint64_t{1} << (count_bits - 1);
  static constexpr std::size_t cell_count = 256;
  static constexpr std::size_t slot_count = 1024;
  static constexpr std::size_t recent_count = 2048;

  ledger() noexcept;

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

  static std::atomic<ledger*> all;  // linked by next_, and only ever longer
  [[gnu::tls_model("initial-exec")]] static thread_local constinit ledger* mine;

  friend struct ledger_owner;  // gives it back at its thread's end

  alignas(64) std::array<pin_cell, cell_count> cells_{};
  std::array<std::atomic<std::uint64_t>, slot_count> slots_;
  std::array<record*, recent_count> recent_;
  std::array<std::atomic<std::uint64_t>, most_caches> hits_{};
  std::array<std::atomic<std::uint64_t>, most_caches> finds_{};
  std::atomic<bool> taken_{true};
  ledger* next_ = nullptr;
};

}  // namespace pinfold::detail
