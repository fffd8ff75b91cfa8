// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory that an exporter retires: kept alive, within a budget, until its importers let it go.
#pragma once

#include "os/condition.hpp"
#include "os/this_process.hpp"
#include "os/thread.hpp"

#include <pinfold/release/registry.hpp>
#include <pinfold/release/retirement.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

namespace pinfold::release {

using std::chrono::steady_clock;

/// Frees memory; returns the driver's error.
using free_call = std::function<result<void>()>;

/// One retirement. `retirements::mutex_` guards all members but the constant ones.
struct retired {
  std::uint64_t serial = 0;
  std::size_t bytes = 0;
  steady_clock::time_point deadline;
  free_call free;
  retire_report last;  ///< of memory that is freed, or about to be; `asking` before
  bool done = false;
};

/// All retirements of one exporter. Thread-safe. In a forked child, where a thread of the parent may hold the lock,
/// `report` and `wait` are refused, and `statistics` returns zeros. Calls each `free` once, without its lock, on a
/// thread of its own: a slow `free` must delay no importer. `free` may end the exporter.
class retirements : public std::enable_shared_from_this<retirements> {
 public:
  retirements(std::shared_ptr<release_registry> registry, std::size_t limbo_bytes) noexcept;

  /// Starts the thread, once. Not with the first retirement, which would then need descriptors and memory of its own.
  [[nodiscard]] result<void> start() noexcept;

  /// Begins the retirement of memory in the registry. On an error, nothing has changed, and `free` is not taken.
  [[nodiscard]] result<std::shared_ptr<retired>> begin(std::uint64_t serial, std::size_t bytes,
                                                       std::chrono::milliseconds timeout, free_call& free) noexcept;

  /// Makes the thread free the memory without holders, and the oldest memory over the budget.
  void settle() noexcept;

  /// Returns the time until the next deadline; at most `most`.
  [[nodiscard]] std::chrono::milliseconds next_deadline(std::chrono::milliseconds most) noexcept;

  /// Frees everything: the exporter ends.
  void abandon() noexcept;
  /// Called in a forked child, which has no such thread.
  void leave_to_parent() noexcept { own_ = nullptr; }

  /// Removes the holds of an importer whose process has ended from the registry.
  void died(std::uint64_t peer) noexcept;
  [[nodiscard]] result<retire_report> report(const retired& what) noexcept;
  [[nodiscard]] result<retire_report> wait(const retired& what, std::chrono::milliseconds timeout) noexcept;
  [[nodiscard]] release_statistics statistics() noexcept;

 private:
  using list = std::list<std::shared_ptr<retired>>;

  [[nodiscard]] result<retire_report> report_locked(const retired& what) const noexcept;
  [[nodiscard]] std::size_t limbo_locked(steady_clock::time_point now) const noexcept;
  void take_unheld_locked(list& into) noexcept;
  void take_over_budget_locked(list& into) noexcept;
  void take_locked(list& into, list::iterator what, retire_report last) noexcept;
  void free_all(list& taken) noexcept;
  void free_until_stopped() noexcept;

  const std::shared_ptr<release_registry> registry_;
  const std::size_t limbo_bytes_;
  const std::uint64_t process_ = os::this_process();
  std::mutex mutex_;
  os::condition changed_;
  list pending_;  ///< in the order in which they began
  list due_;      ///< to be freed by the thread
  os::thread freeing_;
  std::shared_ptr<retirements> own_;  ///< the reference of the thread
  bool abandoned_ = false;
  bool looks_again_ = false;  ///< there was no memory for the report of unheld memory
  release_statistics counts_;
};

}  // namespace pinfold::release
