// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Lists of objects of this process that other code must be able to find.
#pragma once

#include "os/mutex.hpp"
#include "os/wiped_pages.hpp"

#include <atomic>
#include <cstdint>

namespace pinfold::os {

/// The base class of an object in a `process_list`.
template <class T>
class listed {
  friend T;
  template <class>
  friend class process_list;

  listed() noexcept = default;
  listed(const listed&) = delete;
  listed& operator=(const listed&) = delete;

  T* next_ = nullptr;
  std::uint64_t number_ = 0;  // ascending in the list; 0: not in it
};

/// The list of the objects of a type. Empty in a child of fork(2). Thread-safe.
template <class T>
class process_list {
 public:
  static process_list& here() noexcept {
    static constinit std::atomic<process_list*> current{nullptr};
    static constinit process_list not_wiped;  // where the kernel cannot wipe (before Linux 4.14)
    process_list* const wiped = wiped_object(current);
    return wiped != nullptr ? *wiped : not_wiped;
  }

  void join(T& one) noexcept {
    scoped_lock guard(mutex_);
    node(one).number_ = ++last_number_;
    T** at = &first_;
    while (*at != nullptr) at = &node(**at).next_;
    *at = &one;
  }

  /// Does nothing if the object is not in the list.
  void leave(T& one) noexcept {
    if (node(one).number_ == 0) return;
    scoped_lock guard(mutex_);
    for (T** at = &first_; *at != nullptr; at = &node(**at).next_) {
      if (*at != &one) continue;
      *at = node(one).next_;
      return;
    }
  }

  /// Finds the next object for which `suits` holds, calls `keep` for it, and returns true. Both are called with the
  /// list's mutex held; the result of `keep` must keep the object alive after that. `last` is 0 at first.
  template <class Suits, class Keep>
  [[nodiscard]] bool next(std::uint64_t& last, Suits suits, Keep keep) noexcept {
    scoped_lock guard(mutex_);
    T* one = first_;
    while (one != nullptr && (node(*one).number_ <= last || !suits(*one))) one = node(*one).next_;
    if (one == nullptr) return false;
    last = node(*one).number_;
    keep(*one);
    return true;
  }

 private:
  static listed<T>& node(T& one) noexcept { return one; }

  mutex mutex_;
  T* first_ PINFOLD_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t last_number_ PINFOLD_GUARDED_BY(mutex_) = 0;
};

}  // namespace pinfold::os
