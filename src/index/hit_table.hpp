// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The hash table in which a hit finds its record, without a lock; a look-up touches one cache line.
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

/// A hash table of records, by granules. A record whose size, rounded up to a power of two, is 2^s touches one or two
/// granules of 2^s bytes and is in the table under each. A look-up tries its first address's granule in every class in
/// use that is not smaller than the request. The word of a slot has the record's address, a few bits of the hash, and
/// which part of the granule the record covers, in 1/16. So a look-up hardly reads any record but the matching one, and
/// `erase` reads only the erased one.
///
/// Where many records overlap, a search of their granule takes long, and the granule has no room for all. Records after
/// the first few are also under another *key*, or only there: the page of their first byte, that byte, or their whole
/// range, the first of these that has room. A look-up tries the keys that are in use first, and so finds a record of
/// exactly its range however many overlap it.
///
/// The high bits of the hash give the slot at which the search begins, the *home*. Slots are ordered by hash, without
/// gaps between a home and the slots inserted for it. So a search ends at the first later hash, and records end up in
/// the same slots in whatever order they were inserted.
///
/// The table may be incomplete: a look-up that finds nothing proves nothing. The record that it finds may be any record
/// until it is pinned and compared. The shard's mutex guards `insert`, `erase`, `grow` and `move`.
///
/// A table doubles in steps, so that no request waits for the whole move: look-ups use the smaller table until the
/// larger one has every slot too. The larger table has the same slots in the same order of hashes; the next hash bit
/// stored in the slot picks the new home. `move` reads the records only when these bits are used up, at every seventh
/// doubling.
class hit_table {
 public:
  explicit hit_table(bool imported) : imported_(imported) { tables_.reserve(most_tables); }

  /// Zeroed memory for a table with 3 * 2^step homes, all of it present.
  class memory {
   public:
    /// Allocates; holds null if there is no memory.
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

  /// Returns the step that the table should grow to before the next insert; 0 if there is room, or if the table grows
  /// already or will grow.
  [[nodiscard]] unsigned wants() const noexcept { return used_ < crowded_from_ || will_grow_ ? 0 : next_step(); }
  /// Announces that the caller allocates the memory for that step, and then calls `grow`.
  void say_will_grow() noexcept { will_grow_ = true; }
  [[nodiscard]] bool growing() const noexcept { return next_.slots != nullptr; }

  /// Begins to grow, if there was memory. If the table is `growing` then, the caller must call `move` until it is not.
  void grow(memory larger) noexcept;

  /// Puts the next few slots into the larger table. Requires that the table is `growing`.
  void move() noexcept;

  /// Returns false if there is no room, or too much under each key: the record is then found only under the mutex.
  bool insert(record* added) noexcept;

  /// Requires that the record is in the table, with the range that it was inserted with.
  void erase(record* gone) noexcept;

  /// Calls `stop(record*)` for records that may cover `wanted`, until it returns true; returns that record, or null.
  /// Any thread.
  template <class F>
  record* find(peer_id peer, const range& wanted, F&& stop) const noexcept {
    for (auto keys = classes_.load(std::memory_order_acquire) & other_keys; keys != 0; keys &= keys - 1) {
      const auto hash = hash_under(peer, wanted, static_cast<key>(std::countr_zero(keys)));
      if (record* found = find_at(hash, is_under_key, stop)) return found;
    }
    return find_by_granules(peer, wanted, stop);
  }
  /// As `find`, without the records that are under another key.
  template <class F>
  [[gnu::always_inline]] record* find_by_granules(peer_id peer, const range& wanted, F&& stop) const noexcept {
    auto classes = classes_.load(std::memory_order_acquire) & ~std::uint64_t{0} << class_of(wanted.size());
    for (; classes != 0; classes &= classes - 1) {
      const auto size_class = static_cast<unsigned>(std::countr_zero(classes));
      if (record* found = find_in_class(peer, wanted.begin, size_class, stop)) return found;
    }
    return nullptr;
  }
  [[nodiscard]] bool uses_other_keys() const noexcept {
    return (classes_.load(std::memory_order_relaxed) & other_keys) != 0;
  }

  /// Returns the size of the table in use.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  // A slot:
  //   bits 51 to 63  part of the hash: the low bits of the home, and below them at most `extra_bits`
  //   bits 47 to 50  the first 1/16 of the granule that the record covers
  //   bits 43 to 46  the last 1/16
  //   bits 0 to 42   the record's address / 32
  // Under another key than a granule, the first part is 15 and the last one 0: no search of a granule stops there.
  static constexpr unsigned record_shift = 5;
  static constexpr unsigned last_shift = 43;
  static constexpr unsigned first_shift = 47;
  static constexpr unsigned tag_shift = 51;
  static constexpr unsigned extra_bits = 7;  // leaves 6 bits of the home: enough for the distances below
  static constexpr std::size_t home_mask = 63;
  static constexpr std::size_t crowd = 8;          // a record after so many of its granule is also under another key
  static constexpr std::size_t farthest = 30;      // distance of a slot from its home: a search compares homes 31 apart
  static constexpr std::size_t slots_behind = 32;  // after the homes; the very last slot is 0
  static constexpr std::uintptr_t layout_mask = 4095;  // in the word of a table: its two shifts
  static constexpr std::size_t most_tables = 48;       // each is larger than the one before

  // The keys other than granules. The classes of granules begin at 3: the numbers below stand for these keys.
  enum key : unsigned { by_page, by_begin, by_range };
  static constexpr std::uint64_t other_keys = 7;
  static constexpr std::uint64_t parts_under_key = std::uint64_t{15} << first_shift;
  static bool is_under_key(std::uint64_t slot) noexcept {
    return (slot & std::uint64_t{255} << last_shift) == parts_under_key;
  }

  // A granule of class s has 2^(s + 1) bytes, at least 16.
  static unsigned class_of(std::size_t bytes) noexcept {
    return static_cast<unsigned>(std::countl_zero((bytes - 1) | 15U)) ^ 63U;
  }
  static std::uintptr_t granule_of(std::uintptr_t address, unsigned size_class) noexcept {
    return address >> size_class >> 1U;
  }
  static std::uint64_t part_of(std::uintptr_t address, unsigned size_class) noexcept {
    return address >> (size_class - 3) & 15U;
  }
  // Below 3 * 2^62, so that a shift makes it the home in a table with 3 * 2^step homes.
  static std::uint64_t hash_of(peer_id peer, std::uintptr_t address, unsigned size_class) noexcept {
    return hash_in(peer, granule_of(address, size_class), size_class);
  }
  static std::uint64_t hash_in(peer_id peer, std::uint64_t what, unsigned size_class) noexcept {
    const auto all = what + peer.value * 0x51ed270b9f1ULL + (std::uint64_t{size_class} << 57U);
    return (all * 0x9e3779b97f4a7c15ULL >> 2U) * 3;
  }
  static std::uint64_t hash_under(peer_id peer, const range& where, key which) noexcept {
    constexpr unsigned page_bits = 12;
    if (which == by_page) return hash_in(peer, where.begin >> page_bits, which);
    return hash_in(peer, which == by_begin ? where.begin : where.begin + where.end * 0xc2b2ae3d27d4eb4fULL, which);
  }
  static constexpr std::size_t homes_in(unsigned step) noexcept { return std::size_t{3} << step; }
  static std::size_t bytes_of(unsigned step) noexcept;
  // The distances of slots that a search compares have fewer bits than the part of the hash in a slot.
  static bool is_before(std::uint64_t slot, std::uint64_t tag) noexcept {
    return static_cast<std::int64_t>(slot - tag) < 0;
  }
  static record* record_of(std::uint64_t slot) noexcept {
    return reinterpret_cast<record*>(slot << (64 - last_shift) >> (64 - last_shift - record_shift));
  }

  /// A granule that a record touches: its hash, and the record's slot without the part of the hash.
  struct place {
    std::uint64_t hash;
    std::uint64_t slot;
  };
  class places;
  enum class outcome : std::uint8_t { no_room, put, behind_others };  // of the same hash: `crowd` at least

  /// A table: its slots, how many bits of a hash are below the home, and how many below the part stored in a slot.
  struct layout {
    std::atomic<std::uint64_t>* slots = nullptr;
    unsigned home_shift = 0;
    unsigned tag_from = 0;

    layout() = default;
    explicit layout(const memory& of) noexcept;
    [[gnu::always_inline]] explicit layout(std::uintptr_t word) noexcept
        : slots(reinterpret_cast<std::atomic<std::uint64_t>*>(word & ~layout_mask)),
          home_shift(word & 63U),
          tag_from(word >> 6U & 63U) {}
    [[nodiscard]] std::uintptr_t word() const noexcept {
      return reinterpret_cast<std::uintptr_t>(slots) | tag_from << 6U | home_shift;
    }
    [[nodiscard]] std::size_t homes() const noexcept { return homes_in(62 - home_shift); }
    [[nodiscard]] std::size_t home_of(std::uint64_t hash) const noexcept { return hash >> home_shift; }
    [[nodiscard]] std::uint64_t tag_of(std::uint64_t hash) const noexcept { return hash >> tag_from << tag_shift; }
    // Returns the home of the slot's content at that index.
    [[nodiscard]] std::size_t home_at(std::size_t index, std::uint64_t slot) const noexcept {
      return index - ((index - (slot >> (tag_shift + home_shift - tag_from))) & home_mask);
    }
    [[nodiscard]] outcome put(const place& at) noexcept;
    [[nodiscard]] bool any_at_farthest(const std::atomic<std::uint64_t>* from,
                                       const std::atomic<std::uint64_t>* to) const noexcept;
    void take_out(const place& at) noexcept;
  };

  template <class F>
  [[gnu::always_inline]] record* find_in_class(peer_id peer, std::uintptr_t address, unsigned size_class,
                                               F& stop) const noexcept {
    const auto part = part_of(address, size_class);
    const auto has_part = [part](std::uint64_t slot) {
      return part >= (slot >> first_shift & 15U) && part <= (slot >> last_shift & 15U);
    };
    return find_at(hash_of(peer, address, size_class), has_part, stop);
  }

  template <class G, class F>
  [[gnu::always_inline]] record* find_at(std::uint64_t hash, const G& may_match, F& stop) const noexcept {
    const layout in(table_.load(std::memory_order_acquire));
    const auto tag = in.tag_of(hash);
    for (const auto* at = in.slots + in.home_of(hash);; ++at) {
      const auto slot = at->load(std::memory_order_acquire);
      if (slot == 0) return nullptr;
      if (is_before(slot, tag)) continue;
      if ((slot ^ tag) >> tag_shift != 0) return nullptr;
      if (!may_match(slot)) continue;
      if (record* candidate = record_of(slot); stop(candidate)) return candidate;
    }
  }

  [[nodiscard]] outcome put(const place& at) noexcept;
  [[nodiscard]] bool put_second(const record& added) noexcept;
  [[nodiscard]] bool insert_under_key(record& added, std::uint32_t as) noexcept;
  void erase_under_key(record& gone) noexcept;
  [[nodiscard]] place place_under(const record& one, key which) const noexcept;
  void count(unsigned size_class) noexcept;
  void discount(unsigned size_class) noexcept;
  void put_into_next(place at) noexcept;
  void take_out(const place& at) noexcept;
  template <class F>
  void for_each_next(std::size_t end, F&& each) const noexcept;
  void copy(std::size_t end) noexcept;
  void read_again(std::size_t end) noexcept;
  [[nodiscard]] unsigned next_step() const noexcept;
  void change_over() noexcept;

  // Read by hits, written rarely: the word of the table in use.
  std::atomic<std::uintptr_t> table_{reinterpret_cast<std::uintptr_t>(&nothing) | layout_of_nothing};
  std::atomic<std::uint64_t> classes_{0};

  const bool imported_;
  alignas(64) layout now_;
  std::size_t used_ = 0;          // slots
  std::size_t crowded_from_ = 0;  // the table should grow at this number of used slots
  std::size_t full_from_ = 0;
  layout next_;                 // while the table grows: has exactly the slots whose home in `now_` is below `moved_`
  std::size_t moved_ = 0;       // 0 while the table does not grow
  bool will_grow_ = false;      // as soon as the memory is allocated
  std::vector<memory> tables_;  // the last one is in use, or will be
  std::array<std::uint32_t, 64> in_class_{};

  static constexpr std::uintptr_t layout_of_nothing = 63;  // all homes are 0 or 1
  alignas(layout_mask + 1) inline static std::array<std::atomic<std::uint64_t>, 2> nothing{};
};

}  // namespace pinfold::index
