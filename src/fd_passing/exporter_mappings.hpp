// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The open mappings of one importer by their exporter, so that a cache is told of those whose exporter has ended.
#pragma once

#include "fd_passing/connection.hpp"

#include <pinfold/error.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace pinfold::fd_passing {

/// Thread-safe. Calls nothing with its lock.
class exporter_mappings {
 public:
  using call = std::function<void(peer_id peer, range where)>;

 private:
  struct mapping {
    exporter_id from;
    peer_id peer;
    range where;
  };
  using map = std::map<std::uint64_t, mapping>;

 public:
  /// Room for one mapping, allocated before an open that could not be undone.
  using room = map::node_type;
  [[nodiscard]] static result<room> make_room(const exporter_id& from, peer_id peer, const range& where) noexcept;

  void add(std::uint64_t key, room in) noexcept;
  void remove(std::uint64_t key) noexcept;

  /// Calls `to` from now on. Throws `std::bad_alloc`.
  void tell(call to);

  /// Tells of each mapping of the exporter.
  void ended(const exporter_id& exporter) noexcept;

 private:
  std::mutex mutex_;
  map all_;
  std::shared_ptr<const call> tell_;
};

/// Returns a table that calls `mappings->ended`.
[[nodiscard]] inline std::shared_ptr<connection_table> links_that_tell(std::shared_ptr<exporter_mappings> mappings) {
  return std::make_shared<connection_table>(
      [told = std::move(mappings)](const exporter_id& exporter) { told->ended(exporter); });
}

}  // namespace pinfold::fd_passing
