// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory of peers that was invalidated.
#pragma once

#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace pinfold::core {

/// A set of ranges; those that touch are joined. Not thread-safe.
class gone_ranges {
 public:
  /// Throws `std::bad_alloc`, and changes nothing then.
  void add(peer_id peer, range gone) {
    auto next = all_.upper_bound({peer, gone.begin});
    if (next != all_.begin() && std::prev(next)->first.first == peer && std::prev(next)->second >= gone.begin) --next;
    const auto first = next;
    for (; next != all_.end() && next->first.first == peer && next->first.second <= gone.end; ++next) {
      gone.begin = std::min(gone.begin, next->first.second);
      gone.end = std::max(gone.end, next->second);
    }
    if (first == next) {
      all_.emplace_hint(next, std::pair(peer, gone.begin), gone.end);
      return;
    }
    all_.erase(std::next(first), next);
    auto joined = all_.extract(first);
    joined.key().second = gone.begin;
    joined.mapped() = gone.end;
    all_.insert(std::move(joined));
  }

  [[nodiscard]] bool touches(peer_id peer, const range& memory) const noexcept {
    const auto after = all_.lower_bound({peer, memory.end});
    return after != all_.begin() && std::prev(after)->first.first == peer && std::prev(after)->second > memory.begin;
  }

  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
  void clear() noexcept { all_.clear(); }

 private:
  std::map<std::pair<peer_id, std::uintptr_t>, std::uintptr_t> all_;  // from begin to end
};

}  // namespace pinfold::core
