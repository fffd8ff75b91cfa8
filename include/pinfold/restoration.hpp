// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Registering again, in the background, what `quiesce` closed.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace pinfold {

namespace detail {
class engine;
}

/// How far a restoration is. A registration that is invalidated before its turn counts in `total` only.
struct restore_progress {
  std::size_t total = 0;     ///< registrations that the cache remembered when the restoration began
  std::size_t restored = 0;  ///< of those, registered again; also those that a request had registered meanwhile
  std::size_t skipped = 0;   ///< not registered: the budget has no room left for them
  std::size_t failed = 0;    ///< not registered: the driver refused, or the memory was unmapped or invalidated
  std::size_t bytes = 0;     ///< bytes of the restored ones
};

/// Options of one restoration.
struct restore_options {
  unsigned workers = 4;  ///< threads that register, at least 1
  /// Called after each registration, by one worker's thread at a time. It must not use the restoration. If it throws,
  /// it is not called any more.
  std::function<void(const restore_progress&)> progress{};
};

/// A restoration that goes on in the background. Every member may be called on any thread at any time, except that the
/// destructor and a move must not run at the same time as another member. It may outlive its cache. In a child of
/// fork(2) it does not go on, and `wait` returns at once.
class [[nodiscard]] restoration {
 public:
  /// One that is done.
  PINFOLD_EXPORT restoration() noexcept;
  /// Moves.
  PINFOLD_EXPORT restoration(restoration&&) noexcept;
  /// Moves.
  PINFOLD_EXPORT restoration& operator=(restoration&&) noexcept;
  /// Cancels, and waits for the registrations in progress.
  PINFOLD_EXPORT ~restoration();

  /// Returns how far it is.
  [[nodiscard]] PINFOLD_EXPORT restore_progress progress() const noexcept;
  /// Returns whether no thread works on it any more.
  [[nodiscard]] PINFOLD_EXPORT bool done() const noexcept;
  /// Waits until it is done.
  PINFOLD_EXPORT void wait() noexcept;
  /// Waits until it is done, at most for `longest`. Returns whether it is.
  [[nodiscard]] PINFOLD_EXPORT bool wait_for(std::chrono::milliseconds longest) noexcept;
  /// Makes it stop after the registrations in progress. The cache remembers the others, for another `restore`.
  PINFOLD_EXPORT void cancel() noexcept;
  /// Returns the first failure of a registration, with the driver's code; success if there was none.
  [[nodiscard]] PINFOLD_EXPORT result<void> failure() const noexcept;

  struct state;  ///< of the implementation
  /// For the caches. Errors: those of `cache_base::restore`.
  [[nodiscard]] PINFOLD_EXPORT static result<restoration> begin(detail::engine* on, restore_options how) noexcept;

 private:
  explicit restoration(std::unique_ptr<state> begun) noexcept;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold
