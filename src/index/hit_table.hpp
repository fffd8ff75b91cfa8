// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The hash table in which a hit finds its record. It is read without a lock, and a look-up touches one cache line.
#pragma once

#include <pinfold/detail/record.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pinfold::index {

using detail::record;

/// A hash table of records, by granules. A record of class *s* (its size rounded up to 2^s) touches one or two granules
/// of 2^s bytes and stands in the table under each. A look-up tries its first address's granule in every class that is
/// in use and not smaller than the request. The word of a slot has the record's address, a few bits of the hash, where
/// the slot's run begins, and which part of the granule the record covers, in 1/64: so a look-up hardly reads any
/// record but the matching one, and `erase` reads only the erased one.
///
/// The table need not be complete: it says where to look, never that there is nothing. What it finds may be any record
/// until it is pinned and compared. `insert`, `erase`, `grow` and `move` are guarded by the shard's mutex.
///
/// A table grows in steps, so that no request waits until all records are in the larger table: look-ups use the smaller
/// table until every record is in the larger one too.
class hit_table {
 public:
  explicit hit_table(bool imported) : imported_(imported) { tables_.reserve(most_tables); }

  /// Zeroed memory for a table of the size `step`, all of it present. Steps are halves: 2, 3, 4, 6, 8, 12 ... slots.
  class memory {
   public:
    /// Allocates; holds null when there is no memory.
    explicit memory(unsigned step) noexcept;
    memory(memory&& other) noexcept : slots_(std::exchange(other.slots_, nullptr)), step_(other.step_) {}
    memory& operator=(memory&& other) noexcept {
      std::swap(slots_, other.slots_);
      std::swap(step_, other.step_);
      return *this;
    }
    ~memory();
    explicit operator bool() const noexcept { return slots_ != nullptr; }

   private:
    friend class hit_table;
    std::atomic<std::uint64_t>* slots_;
    unsigned step_;
  };

  /// Returns the step that the table should grow to before another record goes in, 0 when there is room, or when it
  /// grows already, or will.
  [[nodiscard]] unsigned wants() const noexcept {
    return now_.used < now_.crowded_from || will_grow_ ? 0 : next_step();
  }
  /// Says that the caller gets the memory for that step, and then calls `grow`.
  void say_will_grow() noexcept { will_grow_ = true; }
  [[nodiscard]] bool growing() const noexcept { return next_.slots != nullptr; }

  /// Begins to grow, if there was memory. If it is `growing` then, the caller has to call `move` until it is not.
  void grow(memory larger) noexcept;

  /// Puts a few records into the larger table: those that `next()` returns, `most` at most. `next` goes over every
  /// record that was in the table when it began to grow, and then returns null.
  template <class Next>
  void move(std::size_t most, Next&& next) noexcept {
    for (; most > 0; --most) {
      record* const one = next();
      if (one == nullptr) return change_over();
      if (one->is(record::listed)) relist(*one);
    }
  }

  /// Returns false when there is no room, or too much in one place: then the record is found under the mutex only.
  bool insert(record* added) noexcept;

  /// Requires that the record is in the table, with the range that it was inserted with.
  void erase(record* gone) noexcept;

  /// Calls `stop(record*)` for records that may cover `wanted`, until it returns true; returns that record, or null.
  /// Any thread.
  template <class F>
  [[gnu::always_inline]] record* find(peer_id peer, const range& wanted, F&& stop) const noexcept {
    auto classes = classes_.load(std::memory_order_acquire) >> class_of(wanted.size());
    for (unsigned size_class = class_of(wanted.size()); classes != 0; ++size_class, classes >>= 1U) {
      const auto skipped = static_cast<unsigned>(std::countr_zero(classes));
      size_class += skipped;
      classes >>= skipped;
      if (record* found = find_in_class(peer, wanted.begin, size_class, stop)) return found;
    }
    return nullptr;
  }

  /// Returns the size of the table in use.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  // A slot:
  //   bits 21 to 63  the record's address / 32
  //   bits 17 to 20  part of the hash
  //   bits 12 to 16  the low bits of the index at which the search for it begins
  //   bits 6 to 11   the first 1/64 of the granule that the record covers
  //   bits 0 to 5    the last 1/64
  static constexpr unsigned record_shift = 5;
  static constexpr unsigned address_shift = 21;
  static constexpr std::uint64_t hash_mask = 0xfULL << 17U;
  static constexpr unsigned home_shift = 12;
  static constexpr std::uint64_t tag_mask = 0x1ffULL << home_shift;
  static constexpr std::size_t longest_probe =
      32;  // no search begins in the last so many slots, and the very last is 0
  static constexpr std::uintptr_t step_mask = 127;  // in the word of a table
  static constexpr std::uintptr_t step_of_nothing = 10;
  static constexpr std::size_t most_tables = 64;  // each is larger than the one before

  static unsigned class_of(std::size_t bytes) noexcept {
    const auto exact = static_cast<unsigned>(std::bit_width(bytes - 1));
    return exact > 63 ? 63 : exact;
  }
  static std::uint64_t hash_of(peer_id peer, std::uintptr_t address, unsigned size_class) noexcept {
    const auto key = (address >> size_class) + peer.value * 0x51ed270b9f1ULL + (std::uint64_t{size_class} << 57U);
    return key * 0x9e3779b97f4a7c15ULL;
  }
  static constexpr std::size_t slots_in(std::uintptr_t step) noexcept { return (2 | (step & 1U)) << (step >> 1U); }
  static std::size_t bytes_of(std::uintptr_t step) noexcept;
  // Returns where the search for a hash begins in a table. The hash's high bits decide.
  static std::size_t home_of(std::uint64_t hash, std::uintptr_t step) noexcept {
    return home_among(hash, slots_in(step) - longest_probe);
  }
  static std::size_t home_among(std::uint64_t hash, std::size_t homes) noexcept {
    __extension__ typedef unsigned __int128 wide;
    return static_cast<std::size_t>(wide{hash} * homes >> 64U);
  }
  static std::uint64_t tag_of(std::uint64_t hash, std::size_t home) noexcept {
    return (hash >> 7U & hash_mask) | (home % longest_probe) << home_shift;
  }
  static std::uint64_t part_of(std::uintptr_t address, unsigned size_class) noexcept {
    return (size_class < 6 ? address : address >> (size_class - 6)) & 63U;
  }
  static record* record_of(std::uint64_t slot) noexcept {
    return reinterpret_cast<record*>(slot >> address_shift << record_shift);
  }

  template <class F>
  [[gnu::always_inline]] record* find_in_class(peer_id peer, std::uintptr_t address, unsigned size_class,
                                               F& stop) const noexcept {
    const auto table = table_.load(std::memory_order_acquire);
    const auto hash = hash_of(peer, address, size_class);
    const auto home = home_of(hash, table & step_mask);
    const auto tag = tag_of(hash, home);
    const auto part = part_of(address, size_class);
    const auto* slots = slots_of(table) + home;
    for (std::size_t probe = 0; probe < longest_probe; ++probe) {
      const auto slot = slots[probe].load(std::memory_order_acquire);
      if (slot == 0) return nullptr;
      if (((slot ^ tag) & tag_mask) == 0 && part >= (slot >> 6U & 63U) && part <= (slot & 63U)) {
        if (record* candidate = record_of(slot); stop(candidate)) return candidate;
      }
    }
    return nullptr;
  }

  static std::atomic<std::uint64_t>* slots_of(std::uintptr_t table) noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(table & ~step_mask);
  }

  /// A table as the mutex's holder changes it.
  struct slots_of_step {
    std::atomic<std::uint64_t>* slots = nullptr;
    std::size_t homes = 0;         // slots in which a search may begin
    std::size_t used = 0;          // slots
    std::size_t crowded_from = 0;  // the table should grow when so many slots are used
    std::size_t full_from = 0;

    slots_of_step() = default;
    explicit slots_of_step(const memory& of) noexcept;
    template <bool perhaps_there>
    [[nodiscard]] bool put(std::uint64_t hash, std::uint64_t slot) noexcept;
    [[nodiscard]] bool has(std::uint64_t hash, std::uint64_t slot) const noexcept;
    void take_out(std::uint64_t hash, std::uint64_t slot) noexcept;
  };

  struct places;
  template <bool perhaps_there>
  [[nodiscard]] static bool put_all(slots_of_step& into, const places& at) noexcept;
  [[nodiscard]] static bool has_all(const slots_of_step& in, const places& at) noexcept;
  static void take_all_out(slots_of_step& of, const places& at) noexcept;
  [[nodiscard]] unsigned next_step() const noexcept;
  void relist(record& one) noexcept;
  void unlist(record& gone, unsigned size_class) noexcept;
  void change_over() noexcept;

  // Read by hits, written rarely: slots, and step.
  std::atomic<std::uintptr_t> table_{reinterpret_cast<std::uintptr_t>(&nothing) | step_of_nothing};
  std::atomic<std::uint64_t> classes_{0};

  const bool imported_;
  alignas(64) slots_of_step now_;
  slots_of_step next_;          // while the table grows
  bool will_grow_ = false;      // as soon as there is memory
  std::vector<memory> tables_;  // the last one is in use, or will be
  std::array<std::uint32_t, 64> in_class_{};

  alignas(step_mask + 1) inline static std::array<std::atomic<std::uint64_t>, 2 << step_of_nothing / 2> nothing{};
};

}  // namespace pinfold::index
