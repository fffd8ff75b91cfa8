// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The part of its process's page that one cache writes.
#pragma once

#include "observation/page.hpp"

#include <pinfold/error.hpp>
#include <pinfold/observation/layout.hpp>
#include <pinfold/range.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

namespace pinfold::observation {

/// The constant part of a slot.
struct cache_description {
  std::string_view name;
  std::string_view kind;
  std::string_view monitors;
  std::size_t max_bytes;
  std::size_t max_count;
  std::size_t shards;
  bool serial;
};

/// A cache's slot. If all slots of the page are in use, it only counts the cache. All members but `start` and `stop`
/// are callable on any thread, take no lock, and allocate nothing.
class cache_page {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  /// Makes the process's page if there is none. If that fails, prints a line on standard error and returns null: the
  /// cache works without. Throws `std::bad_alloc`.
  [[nodiscard]] static std::unique_ptr<cache_page> make(const cache_description& of);
  ~cache_page();
  cache_page(const cache_page&) = delete;
  cache_page& operator=(const cache_page&) = delete;

  /// Publishes the cache's counters from now on, until `stop`.
  void start(const counter_source& from) noexcept;
  void stop() noexcept;

  void missed(std::uint64_t bytes, nanoseconds took) noexcept;
  void acquire_failed(const range& wanted, const error& why) noexcept;
  void waited(nanoseconds took) noexcept;
  void opened(const range& where, nanoseconds took, const error* failure) noexcept;
  void closed(const range& where, nanoseconds took, const error* failure) noexcept;
  void evicted(nanoseconds age, std::uint64_t hits) noexcept;
  void evicted_idle(nanoseconds idle) noexcept;
  void failed(driver_call call, const range& where, const error& why) noexcept;
  void add_event(event_id kind, const event_details& what) noexcept;

 private:
  cache_page(page& on, cache_slot* at) noexcept;
  void called(std::array<histogram, size_classes>& to, std::array<slow_call, most_slow_calls>& slowest,
              const range& where, nanoseconds took) noexcept;

  page& page_;
  cache_slot* const slot_;  // null if no slot was free
  const std::uint32_t number_;
  bool listed_ = false;
};

}  // namespace pinfold::observation
