// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A list of objects, linked through two arrays, so that each knows its place and no call allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tool {

class object_list {
 public:
  using object = std::uint32_t;
  static constexpr object none = UINT32_MAX;

  explicit object_list(std::size_t objects) : links_(objects) {}

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] object front() const noexcept { return first_; }
  [[nodiscard]] bool holds(object one) const noexcept { return links_[one].in; }
  /// Returns `none` at the end.
  [[nodiscard]] object after(object one) const noexcept { return links_[one].next; }

  void push_back(object one) noexcept {
    links_[one] = {last_, none, true};
    (last_ != none ? links_[last_].next : first_) = one;
    last_ = one;
    ++size_;
  }

  /// Removes an object, which must be in the list.
  void remove(object one) noexcept {
    const auto [previous, next, in] = links_[one];
    (previous != none ? links_[previous].next : first_) = next;
    (next != none ? links_[next].previous : last_) = previous;
    links_[one] = {};
    --size_;
  }

  object pop_front() noexcept {
    const auto first = first_;
    remove(first);
    return first;
  }

 private:
  struct link {
    object previous = none;
    object next = none;
    bool in = false;
  };

  std::vector<link> links_;
  object first_ = none;
  object last_ = none;
  std::size_t size_ = 0;
};

}  // namespace tool
