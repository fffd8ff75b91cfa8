// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memories that an importer has promised never to open again.
#pragma once

#include <pinfold/release/message.hpp>

#include <cstdint>
#include <iterator>
#include <map>

namespace pinfold::release {

/// A set that takes one node for each run of adjacent serials, because an exporter counts its memory. Not thread-safe.
class retired_serials {
 public:
  /// Throws `std::bad_alloc`, and then has changed nothing.
  void add(const release_id& id) {
    if (contains(id)) return;
    auto [here, first] = ends_.try_emplace(id, id.serial + 1);
    if (const auto after = std::next(here); after != ends_.end() && touches(here, after)) {
      here->second = after->second;
      ends_.erase(after);
    }
    if (here == ends_.begin()) return;
    if (const auto before = std::prev(here); touches(before, here)) {
      before->second = here->second;
      ends_.erase(here);
    }
  }

  [[nodiscard]] bool contains(const release_id& id) const noexcept {
    auto after = ends_.upper_bound(id);
    if (after == ends_.begin()) return false;
    const auto run = std::prev(after);
    return run->first.exporter == id.exporter && id.serial < run->second;
  }

  /// Returns the number of runs.
  [[nodiscard]] std::size_t runs() const noexcept { return ends_.size(); }

 private:
  using map = std::map<release_id, std::uint64_t>;
  static bool touches(map::const_iterator run, map::const_iterator next) noexcept {
    return run->first.exporter == next->first.exporter && run->second == next->first.serial;
  }
  map ends_;  ///< the serial after the last, by the first
};

}  // namespace pinfold::release
