// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The engines of this process whose drivers refuse memory that another of them has registered.
#pragma once

#include <pinfold/range.hpp>

#include <cstdint>

namespace pinfold::detail {
class engine;
}

namespace pinfold::core {

/// An engine's place in the list. Empty in a child of fork(2).
class neighbour {
 public:
  explicit neighbour(detail::engine& mine) noexcept : mine_(mine) {}
  neighbour(const neighbour&) = delete;
  neighbour& operator=(const neighbour&) = delete;

  /// From now on other engines may call this one, until `leave`. Calls begin only while the engine's cache lives.
  void join() noexcept;
  /// Does nothing before `join`.
  void leave() noexcept;

  /// Makes all engines with a driver of that name but `asking` close what no lease holds there. Returns whether any
  /// registration was closed. Calls drivers and sinks: requires that the thread holds no mutex.
  static bool close_idle(const char* driver, const range& where, const detail::engine* asking) noexcept;

 private:
  struct list;
  [[nodiscard]] static list& all() noexcept;

  detail::engine& mine_;
  neighbour* next_ = nullptr;
  std::uint64_t number_ = 0;  // ascending
};

}  // namespace pinfold::core
