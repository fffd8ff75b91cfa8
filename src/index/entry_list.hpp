// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A first-in first-out list of entries, linked through the entries. Not thread-safe: guarded by the shard's mutex.
#pragma once

#include "index/record_page.hpp"

#include <cstddef>

namespace pinfold::index {

class entry_list {
 public:
  explicit entry_list(list_id self) noexcept : self_(self) {}
  entry_list(const entry_list&) = delete;
  entry_list& operator=(const entry_list&) = delete;

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] entry* front() const noexcept { return first_; }
  [[nodiscard]] entry* back() const noexcept { return last_; }

  /// Requires that the entry is in no list.
  void push_back(entry* added) noexcept {
    PINFOLD_ASSERT(added->in == list_id::none, "an entry is in one list at most");
    PINFOLD_ASSERT((first_ == nullptr) == (size_ == 0) && (last_ == nullptr) == (size_ == 0),
                   "a list that counts no entry has none");
    added->in = self_;
    added->previous = last_;
    added->next = nullptr;
    if (last_ != nullptr) {
      last_->next = added;
    } else {
      first_ = added;
    }
    last_ = added;
    ++size_;
  }

  /// Requires that the entry is in this list.
  void remove(entry* gone) noexcept {
    PINFOLD_ASSERT(gone->in == self_, "an entry leaves the list that it is in");
    gone->in = list_id::none;
    entry* const before = gone->previous.get();
    entry* const after = gone->next.get();
    PINFOLD_ASSERT((before != nullptr ? before->next.get() : first_) == gone,
                   "the entry before one that leaves links to it");
    PINFOLD_ASSERT((after != nullptr ? after->previous.get() : last_) == gone,
                   "the entry behind one that leaves links to it");
    if (before != nullptr) {
      before->next = gone->next;
    } else {
      first_ = after;
    }
    if (after != nullptr) {
      after->previous = gone->previous;
    } else {
      last_ = before;
    }
    --size_;
  }

 private:
  entry* first_ = nullptr;
  entry* last_ = nullptr;
  std::size_t size_ = 0;
  const list_id self_;
};

}  // namespace pinfold::index
