// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How far memory is from devices, for `set_policy::near_first`. Linux's sysfs and move_pages(2) are the sources.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/set_options.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace pinfold {

/// The node of memory or of a device whose node the system does not report.
inline constexpr int unknown_node = -1;

/// Returns the NUMA node of the page at `address`; `unknown_node` if there is no page yet. Does not touch the page.
/// Errors: `invalid_range` (EFAULT: not mapped), `unsupported` (a kernel without NUMA), `not_permitted`.
[[nodiscard]] PINFOLD_EXPORT result<int> numa_node_of(const void* address) noexcept;

/// Returns the NUMA node of an RDMA device, such as "mlx5_0"; `unknown_node` if the device has none, as on machines
/// with one node, and for software devices. Errors: `invalid_argument` (no device name), `unsupported` (no such device
/// here).
[[nodiscard]] PINFOLD_EXPORT result<int> numa_node_of_rdma(std::string_view device) noexcept;

/// Returns the distance between two nodes as the firmware reports it: 10 within a node. 0 if either is unknown. If the
/// system does not report it: 10 for equal nodes, 255 (unreachable) for others.
[[nodiscard]] PINFOLD_EXPORT std::uint32_t numa_distance(int from, int to) noexcept;

/// Returns a function for `set_options::distance`: from the first page of the memory to each member, whose device is at
/// `nodes[member]`. Members without a node, and all members while the memory has none, are equally near. Throws
/// `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT member_distance distance_by_node(std::vector<int> nodes);

}  // namespace pinfold
