// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A workload: registrations, their costs, and the order of the requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tool {

/// One memory range that can be registered.
struct replay_object {
  std::size_t bytes = 0;
  std::size_t room = 0;  ///< its share of the budget: its bytes, or 1 where entries are counted
  double open_ns = 0;
  double close_ns = 0;
  double misjudged = 1;  ///< the factor by which a policy misjudges its cost

  /// Returns the cost per unit of room, as policies see it: objects with little of it should be evicted first.
  [[nodiscard]] double density() const noexcept { return misjudged * cost() / static_cast<double>(room); }

  /// Returns the cost of evicting the object and needing it again.
  [[nodiscard]] double cost() const noexcept { return open_ns + close_ns; }
};

/// The requests of one cache.
struct workload {
  std::string name;
  std::vector<replay_object> objects;
  std::vector<std::uint32_t> requests;  ///< indexes of objects

  /// Returns the bytes of all objects: with that much room, every object is opened once.
  [[nodiscard]] std::size_t footprint() const noexcept {
    std::size_t sum = 0;
    for (const auto& one : objects) sum += one.bytes;
    return sum;
  }
};

}  // namespace tool
