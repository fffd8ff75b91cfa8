// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A multiset of ranges of pages.
#pragma once

#include <pinfold/range.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace pinfold::mlocks {

/// Not thread-safe.
class range_list {
 public:
  using map = std::multimap<std::uintptr_t, std::uintptr_t>;  // first page and end
  using node = map::node_type;

  /// Makes a node that can be added later without an allocation. Throws std::bad_alloc.
  [[nodiscard]] static node make(const range& pages) { return map{{pages.begin, pages.end}}.extract(pages.begin); }

  void add(node&& one) noexcept { all_.insert(std::move(one)); }

  /// Removes one such range. Returns an empty node if there is none.
  [[nodiscard]] node take(const range& pages) noexcept {
    const auto [first, last] = all_.equal_range(pages.begin);
    const auto found = std::find_if(first, last, [&](const auto& one) { return one.second == pages.end; });
    return found == last ? node() : all_.extract(found);
  }

  [[nodiscard]] bool any_overlaps(const range& pages) const noexcept {
    return std::any_of(all_.begin(), all_.end(),
                       [&](const auto& one) { return one.first < pages.end && pages.begin < one.second; });
  }

  /// Calls `use(range)` for each part of `pages`, in order, that no range here covers. `use` returns an errno; the call
  /// stops and returns it unless it is 0.
  template <class Use>
  int for_each_gap(const range& pages, Use&& use) const {
    auto from = pages.begin;
    for (const auto& [begin, end] : all_) {
      if (begin >= pages.end || from >= pages.end) break;
      if (end <= from) continue;
      if (begin > from)
        if (const int native = use(range{from, begin}); native != 0) return native;
      from = std::max(from, end);
    }
    return from < pages.end ? use(range{from, pages.end}) : 0;
  }

  template <class Gone>
  void remove_if(Gone&& gone) noexcept {
    std::erase_if(all_, [&](const auto& one) { return gone(range{one.first, one.second}); });
  }

  template <class Use>
  void for_each(Use&& use) const {
    for (const auto& [begin, end] : all_) use(range{begin, end});
  }

 private:
  map all_;
};

}  // namespace pinfold::mlocks
