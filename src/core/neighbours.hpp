// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The engines of this process whose drivers refuse memory that another of them has registered.
#pragma once

#include "os/process_list.hpp"

#include <pinfold/range.hpp>

namespace pinfold::detail {
class engine;
}

namespace pinfold::core {

/// An engine's place in the list.
class neighbour : public os::listed<neighbour> {
 public:
  explicit neighbour(detail::engine& mine) noexcept : mine_(mine) {}

  /// Lets other engines call this one, until `leave`. Calls begin only while the engine's cache lives.
  void join() noexcept { os::process_list<neighbour>::here().join(*this); }
  /// Does nothing before `join`.
  void leave() noexcept { os::process_list<neighbour>::here().leave(*this); }

  /// Makes all engines with a driver of that name but `asking` close the registrations there that no lease holds.
  /// Returns whether any registration was closed. Calls drivers and sinks: requires that the thread holds no mutex.
  static bool close_idle(const char* driver, const range& where, const detail::engine* asking) noexcept;

 private:
  detail::engine& mine_;
};

}  // namespace pinfold::core
