// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The engine's calls of its cache's driver.
#pragma once

#include "core/open_watch.hpp"
#include "core/reporter.hpp"
#include "os/check.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/record.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

namespace pinfold::core {

/// The driver's functions: called by one thread at a time if the cache is `serial` (R63), timed if the reporter asks
/// for it. Thread-safe. The calls that open and close require that the thread holds no mutex of the cache.
class driver_calls {
 public:
  using opened = detail::opened;
  using time_point = open_watch::time_point;

  /// Keeps `backend` until `take_backend`.
  driver_calls(const detail::driver& table, std::shared_ptr<void> backend, bool serial, reporter& to) noexcept
      : table_(table), token_offset_(offset_in(table)), serial_(serial), reporter_(to), backend_(std::move(backend)) {}

  [[nodiscard]] const detail::driver& table() const noexcept { return table_; }
  [[nodiscard]] const char* name() const noexcept { return table_.name; }
  /// Returns whether the driver opens other processes' memory.
  [[nodiscard]] bool imports() const noexcept { return table_.token_bytes > 0; }
  [[nodiscard]] std::size_t token_bytes() const noexcept { return table_.token_bytes; }
  [[nodiscard]] const std::byte* token_of(const detail::record& one) const noexcept {
    return reinterpret_cast<const std::byte*>(&one) + token_offset_;
  }
  /// The bytes of a record with its token.
  [[nodiscard]] std::size_t record_bytes() const noexcept { return token_offset_ + table_.token_bytes; }

  [[nodiscard]] result<range> check(const detail::request& what) const noexcept {
    return table_.check(table_.self, what);
  }
  [[nodiscard]] result<opened> open(const detail::open_request& what) noexcept {
    const auto start = open_watch::now(reporter_.times_opens());
    auto made = [&] {
      const auto mine = turn();
      return table_.open(table_.self, what);
    }();
    if (start != time_point{}) [[unlikely]]
      reporter_.note_open(start, what.extent, made);
    return made;
  }
  [[nodiscard]] bool opens_many() const noexcept { return table_.open_many != nullptr; }
  /// Requires `opens_many`.
  void open_many(std::span<const detail::open_request> what, std::span<result<opened>> made) noexcept {
    PINFOLD_ASSERT(opens_many() && what.size() == made.size(), "each request has a place for its result");
    const auto start = open_watch::now(reporter_.is_observed());
    {
      const auto mine = turn();
      table_.open_many(table_.self, what, made);
    }
    if (start != time_point{}) reporter_.note_group(what, made, start);
  }
  [[nodiscard]] result<void> close(const detail::registration& object, const range& where) noexcept {
    const auto start = open_watch::now(reporter_.is_observed());
    auto closed = [&] {
      const auto mine = turn();
      return table_.close(table_.self, object);
    }();
    if (start != time_point{}) [[unlikely]]
      reporter_.note_close(start, where, closed);
    return closed;
  }
  /// Returns whether the driver wants to know which memory is gone.
  [[nodiscard]] bool wants_invalidated() const noexcept { return table_.invalidated != nullptr; }
  void invalidated(const detail::registration& object) const noexcept {
    if (wants_invalidated()) table_.invalidated(table_.self, object);
  }
  [[nodiscard]] bool tells_ends() const noexcept { return table_.tell_ends != nullptr; }
  /// Requires `tells_ends`. Throws `std::bad_alloc`.
  void tell_ends(std::function<void(peer_id, range, const void* token)> to) const {
    PINFOLD_ASSERT(tells_ends(), "the driver learns of ends");
    table_.tell_ends(table_.self, std::move(to));
  }

  /// The number of closes when the driver was asked.
  struct closes_known {
    std::uint64_t done;
    unsigned asked = 0;       ///< how often the driver was asked before
    unsigned most_asked = 0;  ///< an open that lacks resources is refused then; 0: it was not refused yet
  };
  [[nodiscard]] closes_known closes_now() const noexcept { return {closes_done_.load(std::memory_order_acquire)}; }
  /// The same, of an open for which the driver is asked again.
  [[nodiscard]] closes_known closes_now(const closes_known& before) const noexcept {
    return {closes_done_.load(std::memory_order_acquire), before.asked + 1, before.most_asked};
  }
  [[nodiscard]] bool closed_since(const closes_known& before) const noexcept {
    return closes_now().done != before.done;
  }
  /// Counts a close, after the table's transition.
  void count_close() noexcept { closes_done_.fetch_add(1, std::memory_order_acq_rel); }

  [[nodiscard]] std::shared_ptr<void> take_backend() noexcept { return std::move(backend_); }

 private:
  static std::size_t offset_in(const detail::driver& table) noexcept {
    const auto object = table.token_bytes > 0 ? detail::imported_object_offset : detail::local_object_offset;
    return detail::token_offset(object, table.object_bytes);
  }
  [[nodiscard]] std::unique_lock<std::recursive_mutex> turn() noexcept {
    return serial_ ? std::unique_lock(turn_) : std::unique_lock<std::recursive_mutex>();
  }

  const detail::driver table_;
  const std::size_t token_offset_;
  const bool serial_;
  reporter& reporter_;
  std::shared_ptr<void> backend_;
  std::recursive_mutex turn_;  // recursive: a callback of the driver may release a lease, which may close
  alignas(64) std::atomic<std::uint64_t> closes_done_{0};  // in all shards
};

}  // namespace pinfold::core
