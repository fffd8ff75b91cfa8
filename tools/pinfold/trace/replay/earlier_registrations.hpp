// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory that a cache has registered so far.
#pragma once

#include "trace/replay/recorded.hpp"

#include <cstdint>
#include <iterator>
#include <map>

namespace tool {

/// All registrations so far, closed or not: a trace does not say when they are closed. Holds only those that lie in no
/// other, whose begins and ends are therefore in the same order.
class earlier_registrations {
 public:
  /// Returns the kind of a miss on a range.
  [[nodiscard]] miss_kind kind_of(std::uint64_t peer, const pinfold::range& asked) const {
    const auto found = ends_.find(peer);
    if (found == ends_.end()) return miss_kind::cold;
    const auto& own = found->second;
    const auto after_begin = own.upper_bound(asked.begin);
    if (after_begin != own.begin() && std::prev(after_begin)->second >= asked.end) return miss_kind::again;
    const auto after_end = own.lower_bound(asked.end);
    if (after_end == own.begin() || std::prev(after_end)->second <= asked.begin) return miss_kind::cold;
    return miss_kind::extent;
  }

  /// Adds a registration.
  void add(std::uint64_t peer, const pinfold::range& memory) {
    auto& own = ends_[peer];
    auto next = own.upper_bound(memory.begin);
    if (next != own.begin() && std::prev(next)->second >= memory.end) return;
    if (next != own.begin() && std::prev(next)->first == memory.begin) --next;
    while (next != own.end() && next->second <= memory.end) next = own.erase(next);
    own.emplace(memory.begin, memory.end);
  }

 private:
  std::map<std::uint64_t, std::map<std::uintptr_t, std::uintptr_t>> ends_;  // by peer and begin
};

}  // namespace tool
