// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Runs a thread of the library near the memory that it works on, where the host has several NUMA nodes.
#pragma once

#include <pinfold/range.hpp>

#include <bitset>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinfold::os {

inline constexpr std::size_t most_cpus = 8192;  ///< the most that Linux is built for

/// CPUs by number. A set of the layout that sched_setaffinity(2) takes.
using cpu_numbers = std::bitset<most_cpus>;

/// Parses a list as the kernel writes it: `0-3,8`. Returns nothing for any other text, and for numbers from 8192 on.
[[nodiscard]] std::optional<cpu_numbers> parse_cpus(std::string_view list);

class numa_nodes {
 public:
  /// Reads the nodes from a folder like /sys/devices/system/node. Without the folder, there is one node. Throws
  /// `std::bad_alloc`.
  explicit numa_nodes(const std::string& folder = "/sys/devices/system/node");

  /// Returns whether there are at least two nodes that have CPUs.
  [[nodiscard]] bool several() const noexcept { return with_cpus_ > 1; }

  /// Returns the CPUs of a node; none if there is no such node.
  [[nodiscard]] cpu_numbers cpus_of(std::size_t node) const noexcept {
    return node < cpus_.size() ? cpus_[node] : cpu_numbers{};
  }

 private:
  std::vector<cpu_numbers> cpus_;  // by node
  std::size_t with_cpus_ = 0;
};

/// Returns the node of the first present page among those at the beginning, in the middle and at the end of the range.
/// If none is present, the node that the mapping is bound to (mbind(2)). Makes no page present.
[[nodiscard]] std::optional<std::size_t> node_of(const range& memory) noexcept;

/// Moves the calling thread, which must be the library's own, between nodes. Does nothing on a host with one node.
class near_memory {
 public:
  /// Remembers the CPUs that the thread may use; it never gets others. `nodes` must outlive this object.
  explicit near_memory(const numa_nodes& nodes) noexcept;

  /// Moves the thread to its CPUs on the node of this memory; to all its CPUs if the node is unknown or has none of
  /// them. If the kernel refuses, the thread stays where it is: slower, not wrong.
  void move_to(const range& memory) noexcept;

  /// As `move_to`, for a known node.
  void move_to_node(std::optional<std::size_t> node) noexcept;

 private:
  const numa_nodes* nodes_;
  cpu_numbers allowed_;  // empty: the thread stays where it is
  cpu_numbers now_;
};

}  // namespace pinfold::os
