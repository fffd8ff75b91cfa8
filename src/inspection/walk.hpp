// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Walks over the caches and entries that a table describes, in memory that may change or be damaged.
#pragma once

#include "debugging/table.hpp"
#include "inspection/memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pinfold::inspection {

/// One entry as it was found.
struct seen_entry {
  std::uint64_t peer = 0;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uintptr_t data = 0;  ///< the local address of `begin`
  std::uint64_t bytes = 0;
  std::int64_t pins = 0;  ///< the sum over the entry and all ledgers
  std::uint64_t hits = 0;
  std::uint32_t opened_at = 0;  ///< in ticks of the monotonic clock
  std::int32_t owner = 0;
  std::uintptr_t record = 0;  ///< the address of its record
  std::uintptr_t entry = 0;   ///< the address of the entry itself
  std::uint8_t state = 0;     ///< `entry_state`
  std::uint8_t access = 0;
  bool doomed = false;
  bool persistent = false;
  bool unshared = false;
  bool bypass = false;
  bool in_driver = false;
  bool hittable = false;
  bool stale = false;
  bool revoked = false;
};

/// One cache as it was found, without its entries.
struct seen_cache {
  static constexpr std::size_t most_counters = 64;

  debugging::facts about;
  bool ended = false;
  bool of_parent = false;  ///< the process is a child of the one that created the cache
  std::uint32_t ticks_per_second = 1;
  std::uint32_t locked_shards = 0;
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::array<std::uint64_t, 8> closed{};   ///< remembered closes, by `core::miss_reason`
  std::array<char, 1024> counter_names{};  ///< separated by blanks
  std::array<std::uint64_t, most_counters> counters{};

  /// Calls `each(name, value)`.
  template <class F>
  void for_each_counter(F&& each) const {
    std::string_view names(counter_names.data());
    for (std::size_t number = 0; !names.empty() && number < most_counters; ++number) {
      const auto length = std::min(names.find(' '), names.size());
      each(names.substr(0, length), counters[number]);
      names.remove_prefix(std::min(length + 1, names.size()));
    }
  }
};

/// Receives what is found. It may be called in a signal handler.
class visitor {
 public:
  virtual void cache(const seen_cache& found) noexcept = 0;
  virtual void entry(const seen_entry& found) noexcept = 0;
  /// Called at the end of a cache, with the address of each record that was closed under leases.
  virtual void revoked(std::uintptr_t /*record*/) noexcept {}
  /// Ends a cache. `complete`: all its memory could be read, made sense, and was no other cache's at the end.
  virtual void end(bool complete) noexcept = 0;

 protected:
  ~visitor() = default;
};

/// A walk over the caches of one table, and its buffers, because signal stacks are small.
class walk {
 public:
  enum class outcome : std::uint8_t {
    done,
    not_a_table,    ///< no table at that address
    other_version,  ///< the table is of a release that this one cannot read
    unfinished,     ///< part of the list of caches could not be read, or the limit of `from` was reached
  };

  /// Visits everything, whatever is in the memory. The limit of `from` bounds the time and what the visitor receives:
  /// an entry counts as a step. One thread at a time.
  [[nodiscard]] outcome over(memory& from, std::uintptr_t table, visitor& to) noexcept;

 private:
  static constexpr std::size_t page_bytes = 16384;
  static constexpr std::size_t most_records = page_bytes / 32;
  static constexpr std::size_t most_shards = 4096;
  static constexpr std::size_t chunk = 1024;
  static constexpr std::uint64_t steps_of_cache = 64;  // its counters take as much memory as this many entries

  [[nodiscard]] outcome read_table(std::uintptr_t at) noexcept;
  void read_names(std::uintptr_t at) noexcept;
  [[nodiscard]] bool is_sensible() const noexcept;
  [[nodiscard]] bool visit_cache(std::uintptr_t at, visitor& to) noexcept;
  [[nodiscard]] bool add_shard(const debugging::shard& part) noexcept;
  void count_ledgers() noexcept;
  void add_to_counter(std::string_view name, std::uint64_t more) noexcept;
  [[nodiscard]] bool visit_entries(const debugging::shard& part, visitor& to) noexcept;
  [[nodiscard]] bool visit_page(std::uintptr_t at, const debugging::shard& part, visitor& to) noexcept;
  [[nodiscard]] bool page_is_sensible(const debugging::shard& part) noexcept;
  [[nodiscard]] bool any_used() const noexcept;
  void add_pins(std::uintptr_t page) noexcept;
  void add_pins_of(std::uintptr_t ledger, std::uintptr_t page) noexcept;
  void add_pin(std::uintptr_t record, std::uintptr_t page, std::int64_t count) noexcept;
  [[nodiscard]] seen_entry entry_at(std::uintptr_t page, std::size_t number) const noexcept;
  /// Calls `each(address)` along the list from `first`, until `each` returns false, the list ends, or it is cyclic.
  /// Returns whether the end was reached.
  template <class F>
  [[nodiscard]] bool follow(std::uintptr_t first, std::uint64_t next, F&& each) noexcept;
  template <class F>
  void for_each_word(std::uintptr_t from, std::size_t count, F&& each) noexcept;
  template <class T>
  [[nodiscard]] T in_page(std::size_t offset) const noexcept;

  memory* from_ = nullptr;
  debugging::table table_{};
  debugging::record_layout records_{};
  debugging::ledger_layout ledgers_{};
  seen_cache cache_{};
  struct {
    std::uint32_t stride, made, entries_from;
  } page_now_{};
  alignas(64) std::array<std::byte, page_bytes> page_{};
  std::array<std::int64_t, most_records> pins_{};
  std::array<std::uint64_t, chunk> words_{};
};

}  // namespace pinfold::inspection
