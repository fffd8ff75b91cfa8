// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The buffers that an importer has promised never to open again.
#pragma once

#include "os/check.hpp"

#include <pinfold/release/message.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace pinfold::release {

/// A set with a node for each block of 64 serials of which it has some, and one for each run of complete blocks: an
/// exporter numbers its memory in order, and an importer may get every second or tenth. Not thread-safe.
class retired_serials {
 public:
  /// Throws `std::bad_alloc`, and then changes nothing.
  void add(const release_id& id) {
    if (contains(id)) return;
    const auto some = some_.try_emplace(block_of(id), 0).first;
    if ((some->second | bit_of(id)) != all) {
      some->second |= bit_of(id);
      return;
    }
    add_block(some->first);
    some_.erase(some);
  }

  [[nodiscard]] bool contains(const release_id& id) const noexcept {
    const release_id block = block_of(id);
    if (const auto some = some_.find(block); some != some_.end()) return (some->second & bit_of(id)) != 0;
    auto after = ends_.upper_bound(block);
    if (after == ends_.begin()) return false;
    const auto run = std::prev(after);
    PINFOLD_ASSERT(run->first.serial < run->second, "a run has a block at least");
    return run->first.exporter == block.exporter && block.serial < run->second;
  }

  [[nodiscard]] std::size_t nodes() const noexcept { return some_.size() + ends_.size(); }

 private:
  using map = std::map<release_id, std::uint64_t>;
  static constexpr std::uint64_t in_block = 64;
  static constexpr std::uint64_t all = UINT64_MAX;

  static release_id block_of(const release_id& id) noexcept { return {id.exporter, id.serial / in_block}; }
  static std::uint64_t bit_of(const release_id& id) noexcept { return std::uint64_t{1} << (id.serial % in_block); }
  static bool touches(map::const_iterator run, map::const_iterator next) noexcept {
    return run->first.exporter == next->first.exporter && run->second == next->first.serial;
  }

  void add_block(const release_id& block) {
    auto [here, first] = ends_.try_emplace(block, block.serial + 1);
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

  map some_;  ///< bits, by block
  map ends_;  ///< of each run: the block behind its last, by its first
};

}  // namespace pinfold::release
