// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Numbers that distinguish the caches of a process in the words of their records.
#pragma once

#include <pinfold/detail/ledger.hpp>

#include <atomic>
#include <cstdint>

namespace pinfold::core {

/// A number that no other living cache of this process has, or 0 when none is free. The destructor gives it back.
///
/// The table of taken numbers is in a page that the kernel wipes in a child of fork(2), so that a child can take all
/// numbers. A child's copies of its parent's records stay hittable, so the first cache of a child clears the hints of
/// all threads. Thread-safe.
class cache_number {
 public:
  cache_number() noexcept;
  cache_number(const cache_number&) = delete;
  cache_number& operator=(const cache_number&) = delete;
  ~cache_number();

  operator std::uint32_t() const noexcept { return value_; }
  /// Return the hits and the finds that ledgers counted under this number since it was taken.
  [[nodiscard]] std::uint64_t hits() const noexcept { return detail::ledger::hits(value_) - hits_before_; }
  [[nodiscard]] std::uint64_t finds() const noexcept { return detail::ledger::finds(value_) - finds_before_; }
  [[nodiscard]] std::uint64_t hits_before() const noexcept { return hits_before_; }
  [[nodiscard]] std::uint64_t finds_before() const noexcept { return finds_before_; }

 private:
  std::atomic<bool>* const taken_;  // one for each number
  const std::uint32_t value_;
  const std::uint64_t hits_before_;
  const std::uint64_t finds_before_;
};

}  // namespace pinfold::core
