// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What is replayed: registrations, what each costs, and in which order they are asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tool {

/// One memory range that can be registered.
struct replay_object {
  std::size_t bytes = 0;
  std::size_t room = 0;  ///< what it takes of the budget: its bytes, or 1 where entries are counted
  double open_ns = 0;
  double close_ns = 0;
  double misjudged = 1;  ///< how many times what it costs a policy believes it to cost

  /// The cost of a unit of room, as policies see it: who has little of it should go first.
  [[nodiscard]] double density() const noexcept { return misjudged * cost() / static_cast<double>(room); }

  /// What it costs to have thrown it away and to need it again.
  [[nodiscard]] double cost() const noexcept { return open_ns + close_ns; }
};

/// The requests of one cache.
struct workload {
  std::string name;
  std::vector<replay_object> objects;
  std::vector<std::uint32_t> requests;  ///< indexes of objects

  /// The bytes of all objects: with that much room, every object is opened once.
  [[nodiscard]] std::size_t footprint() const noexcept {
    std::size_t sum = 0;
    for (const auto& one : objects) sum += one.bytes;
    return sum;
  }
};

}  // namespace tool
